"""Rows on their way from a file to a trace: kept, or counted by the reason they were not."""

import math
from array import array
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from workloads.base import FloatArray
from workloads.chains import Chains
from workloads.columns import Column
from workloads.errors import WorkloadError
from workloads.provenance import Provenance, after, origin
from workloads.readers.cells import BadCell
from workloads.readers.failures import with_outputs
from workloads.readers.options import Failures, ReadOptions
from workloads.readers.remarks import about_clock, about_rate, exact_seconds, told_dropped
from workloads.trace import Trace

_FLUSH = 65_536
_MAIN = ("line", "prompt_tokens", "output_tokens")


class Enough(Exception):
    """No further row is wanted; not an error."""


class Rows:
    """Collects the rows of one file, eight bytes a number, and makes the trace of them.

    Parameters
    ----------
    path : Path
        The file.
    options : ReadOptions
        What to keep and what to refuse.
    failures : str, default 'error'
        What happens to rows without output where the options leave it to the format.
    """

    def __init__(self, path: Path, options: ReadOptions, failures: Failures = "error") -> None:
        self.path = path
        self.options = options
        self.failures: Failures = options.failures or failures
        self.remarks: Counter[str] = Counter()
        self.timed = True
        self.clock = "common"
        limits = (options.start_s, options.end_s, options.max_rows)
        self._limited = any(limit is not None for limit in limits)
        self._ticks_per_s = 1
        self._times: array[int] | array[float] = array("d")
        self._columns: dict[str, array[int] | array[float]] = {name: array("q") for name in _MAIN}
        self._labels: dict[str, dict[str, int]] = {}
        self._chain_ids = array("q")
        self._chain_ends = array("q")
        self._block_size = 0
        self._dropped: Counter[str] = Counter()
        self._pending: list[tuple[float, ...]] = []
        self._first: float | None = None
        self._last = -math.inf
        self._steps_back = 0
        self._kept = 0
        self._filled: dict[str, Column] = {}

    def declare(
        self,
        *,
        ticks_per_s: int = 1,
        numbers: Sequence[str] = (),
        reals: Sequence[str] = (),
        texts: Sequence[str] = (),
        block_size: int = 0,
    ) -> None:
        """Say which columns come, before the first row.

        Parameters
        ----------
        ticks_per_s : int, default 1
            Units of whole-number times per second; 1 for times that are floats in seconds.
        numbers, reals, texts : sequence of str
            Names of further columns: whole numbers, floats, and codes made by `code`.
            `keep` takes their values in this order.
        block_size : int, default 0
            Tokens in a block of the prefix chains; 0 if there are none.
        """
        self._ticks_per_s = ticks_per_s
        self._times = array("d" if ticks_per_s == 1 else "q")
        self._block_size = self.options.block_size or block_size if block_size else 0
        for names, kind in ((numbers, "q"), (reals, "d"), (texts, "q")):
            self._columns.update({name: array(kind) for name in names})
        self._labels = {name: {} for name in texts}

    @property
    def block_size(self) -> int:
        """Tokens in a block of the prefix chains."""
        return self._block_size

    def code(self, name: str, text: str) -> int:
        """Return the number that stands for a text in a column of texts."""
        labels = self._labels[name]
        return labels.setdefault(text, len(labels))

    def keep(
        self,
        line: int,
        time: float,
        prompt: int,
        output: int,
        extra: tuple[float, ...] = (),
        chain: Sequence[int] = (),
        *,
        ordered: bool = True,
    ) -> bool:
        """Take one good row, unless the options leave it out.

        Parameters
        ----------
        line : int
            Its line in the file.
        time : int or float
            Its time in ticks or seconds.
        prompt, output : int
            Lengths; 0 as output is a failure.
        extra : tuple
            Values of the declared columns.
        chain : sequence of int, optional
            Its block ids.
        ordered : bool, default True
            False where the time was not stated but derived, and may step back.

        Returns
        -------
        bool
            Whether the row was kept.

        Raises
        ------
        BadCell, Enough
            Strict, and the time lies before that of the row above; no further row is wanted.
        """
        if ordered:
            if time < self._last:
                self._step_back()
            self._last = time
        if self._first is None:
            self._first = time
        if (self._limited and self._outside(time)) or (
            output == 0 and not self._keeps_failure(prompt)
        ):
            return False
        ids = self._ids(chain) if self._block_size else None
        try:
            self._times.append(time)  # type: ignore[arg-type]
        except OverflowError:
            raise BadCell("time out of range", "a time within three centuries") from None
        self._pending.append((line, prompt, output, *extra))
        if ids is not None:
            self._chain_ids.extend(ids)
            self._chain_ends.append(len(self._chain_ids))
        self._kept += 1
        if len(self._pending) >= _FLUSH:
            self._flush()
        return True

    def _ids(self, chain: Sequence[int]) -> "array[int]":
        try:
            return array("q", chain)
        except OverflowError:
            raise BadCell("block id out of range", "block ids of at most 63 bits") from None

    def _step_back(self) -> None:
        if self.options.strict:
            raise BadCell("out of order", "a time that is not before that of the row above")
        self._steps_back += 1

    def _outside(self, time: float) -> bool:
        options = self.options
        self._stop_if_full()
        since = (time - (self._first or 0)) / self._ticks_per_s
        if options.end_s is not None and since >= options.end_s and options.strict:
            raise Enough
        inside = (options.start_s or 0.0) <= since < (options.end_s or math.inf)
        if not inside:
            self._dropped["outside the window"] += 1
        return not inside

    def _stop_if_full(self) -> None:
        if self.options.max_rows is not None and self._kept >= self.options.max_rows:
            raise Enough

    def _keeps_failure(self, prompt: int) -> bool:
        if prompt > 0 and self.failures in ("prefill", "impute"):
            return True
        self._dropped["failure"] += 1
        return False

    def _flush(self) -> None:
        if self._pending:
            pending = zip(*self._pending, strict=True)
            for column, numbers in zip(self._columns.values(), pending, strict=True):
                column.extend(numbers)
        self._pending.clear()

    def reject(self, line: int, bad: BadCell) -> None:
        """Drop one row, or stop where that is not allowed.

        Raises
        ------
        WorkloadError, Enough
            Strict: names file, line, column, value, expectation; no further row is wanted.
        """
        self._stop_if_full()
        if self.options.strict:
            value = {} if bad.value is None else {"value": bad.value}
            expected = f"expected {bad.expected}"
            raise WorkloadError(
                expected, path=self.path, line=line, column=bad.column, **value
            ) from None
        self._dropped[f"{bad.column}: {bad.reason}" if bad.column else bad.reason] += 1

    def codes_of(self, name: str) -> Column | None:
        """Return the codes of a column of texts so far, or None without such a column."""
        self._flush()
        column = self._columns.get(name)
        return None if column is None else np.frombuffer(column, np.int64)

    def drop(self, reason: str) -> None:
        """Count one row that the format itself leaves out."""
        self._dropped[reason] += 1

    def leave_out(self, name: str) -> None:
        """Drop a declared column that turned out to hold nothing."""
        self._flush()
        del self._columns[name]

    def fill(self, name: str, values: Column) -> None:
        """Add a column that is known at the end only, one value a kept row in file order."""
        self._filled[name] = values

    def trace(self, sha256: str | None, format_name: str) -> Trace:
        """Sort, move the first arrival to 0 s and return what was kept.

        Raises
        ------
        WorkloadError
            No row is left.
        """
        if not self._times:
            raise WorkloadError(f"no rows{told_dropped(self._dropped)}", path=self.path)
        self._flush()
        times = np.frombuffer(self._times, dtype=self._times.typecode)
        order = np.argsort(times, kind="stable")
        first = times[order[0]]
        columns = {name: self._column(name)[order] for name in self._columns}
        columns |= {name: values[order] for name, values in self._filled.items()}
        notes = {
            "format": format_name,
            "first_time_s": exact_seconds(first.item(), self._ticks_per_s),
        }
        clock = self.clock if self.timed else "none"
        notes |= {} if clock == "common" else {"clock": clock}
        prompts, outputs = columns.pop("prompt_tokens"), columns.pop("output_tokens")
        outputs, remark = with_outputs(outputs, self.failures, self.path)
        self.remarks.update(remark)
        account = origin(
            self.path.name, times.size, sha256=sha256, dropped=self._dropped, notes=notes
        )
        arrival_s = (times[order] - first) / self._ticks_per_s
        tokens = float(prompts.mean() + outputs.mean())
        return Trace(
            arrival_s,
            prompts,
            outputs,
            columns.pop("max_tokens", None),
            columns,
            provenance=self._with_remarks(account, arrival_s, tokens),
            chains=self._chains(order),
        )

    def _column(self, name: str) -> Column:
        column = self._columns[name]
        values = np.frombuffer(column, dtype=column.typecode)
        if name not in self._labels:
            return values
        labels: Column = np.array(list(self._labels[name]) or [""])
        return labels.take(values)

    def _chains(self, order: Column) -> Chains | None:
        if not self._chain_ids:
            return None
        ids, ends = (np.frombuffer(part, np.int64) for part in (self._chain_ids, self._chain_ends))
        return Chains(ids, ends, self._block_size).take(order)

    def _with_remarks(
        self, account: Provenance, arrival_s: FloatArray, tokens: float
    ) -> Provenance:
        """Add what was sorted, and what a reader should look at."""
        rows = account["rows_kept"]
        if self._steps_back:
            account = after(account, "sort", {"steps_back": self._steps_back}, rows)
            told = f"times stepped back {self._steps_back} times; rows were sorted"
            account["warnings"].append(told)
        for remark, count in self.remarks.items():
            account["warnings"].append(remark if count == 1 else f"{count} times: {remark}")
        if self.timed:
            account["warnings"] += about_rate(rows, float(np.ptp(arrival_s)), tokens)
            account["warnings"] += about_clock(arrival_s)
        return account
