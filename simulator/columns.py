"""Tables that grow a row at a time: new rows as tuples, many rows as columns."""

from array import array
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Columns = Mapping[str, NDArray[np.generic]]
"""A table: column name to array, all of one length."""

Sink = Callable[[Columns], None]
"""Takes a block of rows away."""

BLOCK: Final = 1 << 14
"""Rows that are kept as tuples at most: a tuple takes several times the memory of its numbers."""


class RowStore:
    """A table under construction.

    Parameters
    ----------
    types : dict
        Column name to type, in the order of the entries of a row.
    finish : callable, optional
        Turns blocks of these columns into those of the table.
    sink : callable, optional
        Takes blocks of rows away; they are kept if left out.

    Examples
    --------
    >>> store = RowStore({"request_id": np.int64, "arrival_s": np.float64})
    >>> store.append((0, 0.5))
    >>> store.columns()["arrival_s"]
    array([0.5])
    """

    def __init__(
        self,
        types: Mapping[str, type],
        finish: Callable[[Columns], Columns] | None = None,
        sink: Sink | None = None,
    ) -> None:
        self._types = types
        self._finish = finish
        self._rows: list[Sequence[object]] = []
        self._blocks: list[Columns] = []
        self._keep = self._blocks.append if sink is None else sink

    def append(self, row: Sequence[object]) -> None:
        """Add a row."""
        self._rows.append(row)
        if len(self._rows) == BLOCK:
            self._keep(self._block(self._rows))
            self._rows = []

    def _block(self, rows: Sequence[Sequence[object]]) -> Columns:
        columns = as_columns(rows, self._types)
        return columns if self._finish is None else self._finish(columns)

    def columns(self, more: Sequence[Sequence[object]] = ()) -> Columns:
        """Return what is kept of the table, with further rows at its end."""
        blocks = [*self._blocks, self._block([*self._rows, *more])]
        if len(blocks) == 1:
            return blocks[0]
        return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


class NumberStore:
    """A table of numbers under construction, column by column.

    Parameters
    ----------
    types : dict
        Column name to type, float64 or int64.
    sink : callable, optional
        Takes blocks of rows away; they are kept if left out.
    """

    def __init__(self, types: Mapping[str, type], sink: Sink | None = None) -> None:
        self._types = types
        codes = {"f": "d", "i": "q"}
        self.arrays: list[array[Any]] = [
            array(codes[np.dtype(dtype).kind]) for dtype in types.values()
        ]
        """The columns; whoever appends to one appends to all, and then calls `settle`."""
        self._sink = sink

    def settle(self) -> None:
        """Hand rows to the sink once they are many."""
        if self._sink is not None and len(self.arrays[0]) >= BLOCK:
            self._sink(self.columns())
            for column in self.arrays:
                del column[:]

    def columns(self) -> Columns:
        """Return what is kept of the table."""
        return {
            name: np.array(column, dtype)
            for (name, dtype), column in zip(self._types.items(), self.arrays, strict=True)
        }


def as_columns(rows: Sequence[Sequence[object]], types: Mapping[str, type]) -> Columns:
    """Return rows as columns.

    Examples
    --------
    >>> as_columns([(1, "a"), (2, "b")], {"n": np.int64, "s": np.str_})["n"].tolist()
    [1, 2]
    """
    columns = zip(*rows, strict=True) if rows else ((),) * len(types)
    return {
        name: np.array(column, dtype=dtype)
        for (name, dtype), column in zip(types.items(), columns, strict=True)
    }
