"""Figures of a trace file of any length, in memory that does not grow with its rows."""

from collections.abc import Callable, Iterable
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np

from workloads.base import FloatArray, IntArray
from workloads.character import WIDTHS_S, Characterisation, bin_width
from workloads.errors import WorkloadError
from workloads.provenance import origin
from workloads.readers import READERS, detect_format
from workloads.readers.options import Failures, ReadOptions
from workloads.readers.remarks import about_rate, exact_seconds, told_dropped
from workloads.readers.rows import Rows
from workloads.readers.text import TextFile

_LENGTHS: Final = ("prompt", "output")
_LONGEST: Final = 2**21
_MOST_BINS: Final = 2**27
_PERCENTS: Final = (1, 5, 10, 25, 50, 75, 90, 95, 99, 99.9)
_WIDTHS: Final = tuple(int(width) for width in WIDTHS_S)


def summarise(
    path: str | PathLike[str],
    format: str | None = None,
    *,
    strict: bool = True,
    on_rows: Callable[[int], object] | None = None,
    **options: Any,
) -> Characterisation:
    """Describe a trace file without storing its rows.

    Parameters
    ----------
    path : path-like
        The file.
    format, strict, **options
        As for `read_trace`.
    on_rows : callable, optional
        Told from time to time how many more rows have been read.

    Returns
    -------
    Characterisation
        The sections of `characterise` that need no rows: account, rate, CV, dispersion,
        longest gap, lengths. Memory: 65,536 rows at a time, 8 bytes a second of the trace, 8
        bytes for each length up to the longest, and the sessions and blocks of prefixes that
        the checks of some formats have to remember. Rows have to be in order of time, also
        where `strict` is False.

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
    tally.on_rows = on_rows
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
        self._longest = 0.0
        self.on_rows: Callable[[int], object] | None = None
        self._per_second = np.zeros(1024, np.int64)
        self._lengths = {name: np.zeros(1024, np.int64) for name in _LENGTHS}

    def declare(self, **columns: Any) -> None:
        """Say which columns come; prefix chains are not kept."""
        super().declare(**columns | {"block_size": 0})

    @property
    def block_size(self) -> int:
        """Tokens in a block, for the check of the chains."""
        return self.options.block_size or 512

    def codes_of(self, name: str) -> None:
        """Return None: no column is kept, so nothing can be said of it."""

    def _flush(self) -> None:
        if self.on_rows is not None:
            self.on_rows(len(self._pending))
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
        self._longest = max(self._longest, float(gaps.max()))
        self._per_second = _counted(self._per_second, since.astype(np.int64))
        self._rows += since.size
        self._before = float(since[-1])

    def summary(self, sha256: str, format_name: str) -> Characterisation:
        """Return the figures of all rows."""
        self._flush()
        if not self._rows:
            raise WorkloadError(f"no rows{told_dropped(self._dropped)}", path=self.path)
        prompts, outputs = (_figures(self._lengths[name]) for name in _LENGTHS)
        warnings = [told if n == 1 else f"{n} times: {told}" for told, n in self.remarks.items()]
        if self.timed:
            tokens = prompts["mean"] + outputs["mean"]
            warnings += about_rate(self._rows, self._before, tokens)
        start = exact_seconds(self._start.item(), self._ticks_per_s)
        notes = {"format": format_name, "first_time_s": start}
        notes |= {} if self.timed else {"clock": "none"}
        account = origin(
            self.path.name, self._rows, sha256=sha256, dropped=self._dropped, notes=notes
        )
        return Characterisation(
            account=account | {"warnings": warnings},
            arrivals=self._arrivals(),
            prompt_tokens=prompts,
            output_tokens=outputs,
            series={
                "bin_s": (width := max(1, int(bin_width(self._before)))),
                "requests_per_bin": self._counts(width).tolist(),
                **{f"{name}_quantiles": _at(self._lengths[name], range(101)) for name in _LENGTHS},
            },
        )

    def _arrivals(self) -> dict[str, Any]:
        span, rows = self._before, self._rows
        found: dict[str, Any] = {"requests": rows, "span_s": span}
        if not span:
            return found | {"rate": None, "cv": None, "dispersion": {}, "fits": []}
        mean = span / (rows - 1)
        return found | {
            "rate": 1 / mean,
            "cv": (max(self._squares / (rows - 1) - mean**2, 0.0)) ** 0.5 / mean,
            "dispersion": {f"{width} s": self._dispersion(width) for width in _WIDTHS},
            "longest_gap_s": self._longest,
            "fits": [],
        }

    def _counts(self, width: int) -> IntArray:
        number = int(self._before) // width
        counts: IntArray = self._per_second[: number * width].reshape(number, width).sum(1)
        return counts

    def _dispersion(self, width: int) -> float | None:
        counts = self._counts(width)
        return float(counts.var() / counts.mean()) if counts.size >= 5 else None


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


def _figures(table: IntArray) -> dict[str, Any]:
    mean = float(table @ np.arange(table.size)) / float(table.sum())
    percents = zip(_PERCENTS, _at(table, _PERCENTS), strict=True)
    named = {f"p{percent:g}": value for percent, value in percents}
    return {"mean": mean, **named, "max": int(np.flatnonzero(table)[-1]), "fits": []}


def _at(table: IntArray, percents: Iterable[float]) -> list[int]:
    """Return the lengths at some percentiles of a table of counts."""
    total = np.cumsum(table)
    ranks = np.ceil(np.fromiter(percents, np.float64) / 100 * total[-1]).clip(1)
    return [int(length) for length in np.searchsorted(total, ranks)]
