"""Figures of a trace file of any length, in memory that does not grow with its rows."""

from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np

from workloads.base import FloatArray, IntArray
from workloads.errors import WorkloadError
from workloads.readers import READERS, detect_format
from workloads.readers.options import Failures, ReadOptions
from workloads.readers.remarks import about_rate, told_dropped
from workloads.readers.rows import Rows
from workloads.readers.text import TextFile

_LONGEST: Final = 2**21
_MOST_BINS: Final = 2**27
_PERCENTS: Final = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9)


def summarise(
    path: str | PathLike[str],
    format: str | None = None,
    *,
    strict: bool = True,
    **options: Any,
) -> dict[str, Any]:
    """Describe a trace file without storing its rows.

    Parameters
    ----------
    path : path-like
        The file.
    format, strict, **options
        As for `read_trace`.

    Returns
    -------
    dict
        Rows read, kept and dropped by reason; span, rate, CV, dispersion at 1, 10 and 60 s;
        mean, percentiles and maximum of the lengths; SHA-256 and warnings. Memory: 65,536
        rows at a time, 8 bytes a second of the trace, and 8 bytes for each length up to the
        longest. Rows have to be in order of time, also where `strict` is False.

    Raises
    ------
    WorkloadError
        As for `read_trace`, and for rows out of order or a span of more than four years.
    """
    file = TextFile(path)
    name = format or detect_format(path)
    if name not in READERS:
        raise WorkloadError(f"expected a format out of {', '.join(READERS)}", value=format)
    reader = READERS[name]
    tally = Tally(file.path, ReadOptions(strict=strict, **options), reader.failures)
    reader.read(file, tally)
    return tally.summary(file.digest(), name)


class Tally(Rows):
    """Takes rows like `Rows`, but keeps sums and counts only."""

    def __init__(self, path: Path, options: ReadOptions, failures: Failures = "error") -> None:
        super().__init__(path, options, failures)
        self._rows = 0
        self._start: Any = 0
        self._before = 0.0
        self._squares = 0.0
        self._per_second = np.zeros(1024, np.int64)
        self._lengths = {name: np.zeros(1024, np.int64) for name in ("prompt", "output")}

    def declare(self, **columns: Any) -> None:
        """Say which columns come; prefix chains are not kept."""
        super().declare(**columns | {"block_size": 0})

    @property
    def block_size(self) -> int:
        """Tokens in a block, for the check of the chains."""
        return self.options.block_size or 512

    def _flush(self) -> None:
        if self._pending:
            times = np.array(self._times)
            if not self._rows:
                self._start = times[0]
            self._fold_times((times - self._start) / self._ticks_per_s)
            columns = np.array([row[1:3] for row in self._pending], np.int64).T
            for name, lengths in zip(self._lengths, columns, strict=True):
                self._lengths[name] = _counted(self._lengths[name], np.minimum(lengths, _LONGEST))
        self._pending.clear()
        del self._times[:]

    def _fold_times(self, since: FloatArray) -> None:
        gaps = np.diff(since, prepend=self._before)
        if gaps.min(initial=0.0) < 0:
            raise WorkloadError("expected rows in order of time", path=self.path)
        if since[-1] >= _MOST_BINS:
            raise WorkloadError("expected a span of at most four years", path=self.path)
        self._squares += float(gaps @ gaps)
        self._per_second = _counted(self._per_second, since.astype(np.int64))
        self._rows += since.size
        self._before = float(since[-1])

    def summary(self, sha256: str, format_name: str) -> dict[str, Any]:
        """Return the figures of all rows."""
        self._flush()
        if not self._rows:
            raise WorkloadError(f"no rows{told_dropped(self._dropped)}", path=self.path)
        span, rows = self._before, self._rows
        columns = {f"{name}_tokens": _figures(self._lengths[name]) for name in self._lengths}
        tokens = columns["prompt_tokens"]["mean"] + columns["output_tokens"]["mean"]
        mean = span / (rows - 1) if rows > 1 else 0.0
        cv = (max(self._squares / (rows - 1) - mean**2, 0.0)) ** 0.5 / mean if mean else None
        warnings = [told if n == 1 else f"{n} times: {told}" for told, n in self.remarks.items()]
        return {
            "source": self.path.name,
            "format": format_name,
            "sha256": sha256,
            "rows_read": rows + self._dropped.total(),
            "rows_kept": rows,
            "dropped": dict(self._dropped),
            "warnings": warnings + about_rate(rows, span, tokens),
            "span_s": span,
            "rate": 1 / mean if mean else None,
            "cv": cv,
            "dispersion": {f"{width} s": self._dispersion(width) for width in (1, 10, 60)},
            **columns,
        }

    def _dispersion(self, width: int) -> float | None:
        number = int(self._before) // width
        if number < 5:
            return None
        counts = self._per_second[: number * width].reshape(number, width).sum(1)
        return float(counts.var() / counts.mean())


def _counted(table: IntArray, values: IntArray) -> IntArray:
    """Return a table of counts with more values in it, longer if need be."""
    largest = int(values.max())
    if largest >= table.size:
        more = np.zeros(max(largest + 1, 2 * table.size), np.int64)
        more[: table.size] = table
        table = more
    found = np.bincount(values)
    table[: found.size] += found
    return table


def _figures(table: IntArray) -> dict[str, float]:
    total = np.cumsum(table)
    rows = int(total[-1])
    ranks = np.ceil(np.array(_PERCENTS) / 100 * rows).clip(1)
    found = np.searchsorted(total, ranks).tolist()
    mean = float(table @ np.arange(table.size)) / rows
    percents = {f"p{percent:g}": value for percent, value in zip(_PERCENTS, found, strict=True)}
    return {"mean": mean, **percents, "max": int(np.flatnonzero(table)[-1])}
