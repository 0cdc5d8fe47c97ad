"""Tables of step times: which step is the largest that meets an objective.

The format is that of vllm-ascend's `profile_table.csv`, releases/v0.13.0 and v0.18.0.
"""

import csv
from collections.abc import Iterable, Sequence
from itertools import pairwise
from math import isfinite
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    """A step of `d_num` decodes at context `ctx_len` and `chunk_size` tokens takes `cost` ms."""

    ctx_len: int
    d_num: int
    chunk_size: int
    cost: float


class LookupTable:
    """The largest step size whose cost is within a limit, by context and number of decodes.

    Parameters
    ----------
    rows : sequence of Row
        At least one.
    limit : float
        Largest cost, ms.
    in_set_order : bool
        Search keys in the order in which CPython iterates over a set of them.

    Attributes
    ----------
    smallest : int
        Smallest step size of all rows.
    largest : dict
        Largest step size within the limit, by context and number; without those that have none.

    Examples
    --------
    >>> rows = [Row(128, 2, 256, 22), Row(128, 2, 512, 34), Row(512, 2, 256, 27)]
    >>> table = LookupTable(rows, limit=30)
    >>> table.find(100, 1), table.find(129, 2), table.find(100, 3)
    (256, 256, None)
    """

    def __init__(self, rows: Sequence[Row], limit: float, in_set_order: bool = False) -> None:
        self.smallest = min(row.chunk_size for row in rows)
        self.largest: dict[tuple[int, int], int] = {}
        for ctx, number, size, cost in rows:
            if cost <= limit:
                self.largest[ctx, number] = max(size, self.largest.get((ctx, number), 0))
        self._contexts = _ordered({ctx for ctx, _ in self.largest}, in_set_order)
        self._numbers = _ordered({number for _, number in self.largest}, in_set_order)

    def find(self, context: float, number: int) -> int | None:
        """Return the size at the first keys that are not below; None if there is none."""
        ctx = next((key for key in self._contexts if key >= context), None)
        decodes = next((key for key in self._numbers if key >= number), None)
        if ctx is None or decodes is None:
            return None
        return self.largest.get((ctx, decodes))


def _ordered(keys: Iterable[int], in_set_order: bool) -> tuple[int, ...]:
    ascending = sorted(keys)
    # Whole numbers are their own hashes, so the order of the set is the same in every run.
    return tuple(set(ascending)) if in_set_order else tuple(ascending)


def read_table(path: str) -> list[Row]:
    """Return the rows of a table file.

    Raises
    ------
    ValueError
        If the file cannot be read, or rows are wrong, missing or not in ascending order.
    """
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            lines = list(csv.DictReader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path}: cannot be read: {getattr(error, 'strerror', error)}") from None
    rows = [_row(f"{path}, line {number}", line) for number, line in enumerate(lines, 2)]
    if not rows:
        raise ValueError(f"{path}: expected rows with columns {', '.join(Row._fields)}")
    for number, (before, row) in enumerate(pairwise(rows), 3):
        if row[:3] <= before[:3]:
            raise ValueError(
                f"{path}, line {number}: {row[:3]} follows {before[:3]}, expected rows in "
                "ascending order of ctx_len, d_num, chunk_size"
            )
    _refuse_gaps(path, rows)
    return rows


def _row(where: str, line: dict[str, str | None]) -> Row:
    try:
        values = [line[name] or "" for name in Row._fields]
        row = Row(int(values[0]), int(values[1]), int(values[2]), float(values[3]))
    except (KeyError, ValueError):
        row = Row(0, 0, 0, 0.0)
    if min(row) <= 0 or not isfinite(row.cost):
        raise ValueError(
            f"{where}: expected ctx_len, d_num, chunk_size (whole numbers) and cost (ms), all "
            f"above 0, got {line}"
        )
    return row


def _refuse_gaps(path: str, rows: Sequence[Row]) -> None:
    """Refuse a table that lacks a combination of the values that occur in it."""
    present = {row[:3] for row in rows}
    contexts, numbers, sizes = (sorted(set(column)) for column in list(zip(*rows, strict=True))[:3])
    for ctx in contexts:
        for number in numbers:
            for size in sizes:
                if size >= number and (ctx, number, size) not in present:
                    raise ValueError(
                        f"{path}: there is no row for ctx_len {ctx}, d_num {number}, "
                        f"chunk_size {size}"
                    )
