"""Rows on their way from a file to a trace: kept, or counted by the reason they were not."""

import math
from array import array
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from workloads.base import FloatArray, IntArray
from workloads.errors import WorkloadError
from workloads.provenance import Provenance, after, origin
from workloads.readers.cells import BadCell
from workloads.trace import Trace

_PLAUSIBLE_RATE = (1e-4, 1e5)
_FLUSH = 65_536


class Rows:
    """Collects the rows of one file, eight bytes a number, and makes the trace of them.

    Parameters
    ----------
    path : Path
        The file.
    strict : bool
        True: a bad row or one out of order is an error. False: bad rows are dropped and
        counted, rows out of order are sorted.
    ticks_per_s : int
        Units of the times per second; 1 for times that are floats in seconds.
    extra : sequence of str
        Names of further whole-number columns.
    """

    def __init__(
        self, path: Path, *, strict: bool, ticks_per_s: int, extra: Sequence[str] = ()
    ) -> None:
        self._path = path
        self._strict = strict
        self._ticks_per_s = ticks_per_s
        self._times: array[int] | array[float] = array("d" if ticks_per_s == 1 else "q")
        self._numbers = {
            name: array("q") for name in ("line", "prompt_tokens", "output_tokens", *extra)
        }
        self._dropped: Counter[str] = Counter()
        self._pending: list[tuple[int, ...]] = []

    def add(self, line: int, time: float, numbers: tuple[int, ...]) -> None:
        """Keep one row.

        Parameters
        ----------
        line : int
            Its line in the file.
        time : int or float
            Its time in the file's own units.
        numbers : tuple of int
            Prompt tokens, output tokens, then the extra columns in order.

        Raises
        ------
        BadCell
            Strict, and the time lies before that of the row above.
        """
        if self._strict and self._times and time < self._times[-1]:
            raise BadCell("out of order", "a time that is not before that of the row above")
        self._times.append(time)  # type: ignore[arg-type]
        self._pending.append((line, *numbers))
        if len(self._pending) >= _FLUSH:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            pending = zip(*self._pending, strict=True)
            for column, numbers in zip(self._numbers.values(), pending, strict=True):
                column.extend(numbers)
        self._pending.clear()

    def reject(self, line: int, bad: BadCell) -> None:
        """Drop one row, or stop where that is not allowed.

        Raises
        ------
        WorkloadError
            Strict: names file, line, column, value and what was expected.
        """
        if self._strict:
            raise WorkloadError(
                f"expected {bad.expected}",
                path=self._path,
                line=line,
                column=bad.column,
                value=bad.value,
            ) from None
        self._dropped[f"{bad.column}: {bad.reason}" if bad.column else bad.reason] += 1

    def trace(self, sha256: str | None, format_name: str) -> Trace:
        """Sort, move the first arrival to 0 s and return what was kept.

        Parameters
        ----------
        sha256 : str or None
            Digest of the file.
        format_name : str
            Name of the format it was read as.

        Raises
        ------
        WorkloadError
            No row is left.
        """
        if not self._times:
            raise WorkloadError(f"no rows{self._told()}", path=self._path)
        self._flush()
        times = np.frombuffer(self._times, dtype=self._times.typecode)
        order = np.argsort(times, kind="stable")
        first = times[order[0]]
        columns: dict[str, IntArray] = {
            name: np.frombuffer(numbers, dtype=np.int64)[order]
            for name, numbers in self._numbers.items()
        }
        account = origin(
            self._path.name,
            times.size,
            sha256=sha256,
            dropped=self._dropped,
            notes={"format": format_name, "first_time_s": self._exact_seconds(first.item())},
        )
        return Trace(
            (times[order] - first) / self._ticks_per_s,
            columns.pop("prompt_tokens"),
            columns.pop("output_tokens"),
            columns=columns,
            provenance=_with_remarks(account, times, self._ticks_per_s),
        )

    def _exact_seconds(self, time: float) -> str:
        if self._ticks_per_s == 1:
            return repr(time)
        seconds, ticks = divmod(int(time), self._ticks_per_s)
        return f"{seconds}.{ticks:0{len(str(self._ticks_per_s)) - 1}d}"

    def _told(self) -> str:
        if not self._dropped:
            return ""
        reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(self._dropped.items()))
        return f" left: {self._dropped.total()} dropped ({reasons})"


def _with_remarks(
    account: Provenance, times: FloatArray | IntArray, ticks_per_s: int
) -> Provenance:
    """Add what was sorted, and a warning where the unit of time looks wrong."""
    steps_back = int(np.count_nonzero(np.diff(times) < 0))
    if steps_back:
        account = after(account, "sort", {"steps_back": steps_back}, times.size)
        account["warnings"].append(f"times stepped back {steps_back} times; rows were sorted")
    span = float(np.ptp(times)) / ticks_per_s
    rate = (times.size - 1) / span if span else math.inf
    if times.size > 1 and not _PLAUSIBLE_RATE[0] <= rate <= _PLAUSIBLE_RATE[1]:
        account["warnings"].append(f"{rate:.3g} requests/s: is the unit of time right?")
    return account
