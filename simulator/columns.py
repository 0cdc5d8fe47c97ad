"""Tables that grow a row at a time: new rows as tuples, many rows as columns."""

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
        return joined([*self._blocks, self._block([*self._rows, *more])])


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
        self.lists: list[list[Any]] = [[] for _ in types]
        """The newest rows by column; who lengthens one lengthens all, and settles them."""
        self._blocks: list[Columns] = []
        self._keep = self._blocks.append if sink is None else sink

    def settle(self) -> None:
        """Put the newest rows into a block."""
        self._keep(self._block())
        for column in self.lists:
            column.clear()

    def _block(self) -> Columns:
        columns = zip(self._types.items(), self.lists, strict=True)
        return {name: np.array(column, dtype) for (name, dtype), column in columns}

    def columns(self) -> Columns:
        """Return what is kept of the table."""
        return joined([*self._blocks, self._block()])


def joined(blocks: Sequence[Columns]) -> Columns:
    """Return blocks of one table as one.

    Examples
    --------
    >>> joined([{"n": np.arange(2)}, {"n": np.arange(1)}])["n"].tolist()
    [0, 1, 0]
    """
    if len(blocks) == 1:
        return blocks[0]
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


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
