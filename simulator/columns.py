"""Tables that grow a row at a time: new rows as tuples, many rows as columns."""

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

Columns = dict[str, NDArray[np.generic]]
"""A table: column name to array, all of one length."""

BLOCK: Final = 1 << 14
"""Rows that are kept as tuples at most: a tuple takes several times the memory of its numbers."""


class RowStore:
    """A table under construction.

    Parameters
    ----------
    types : dict
        Column name to type, in the order of the entries of a row.

    Examples
    --------
    >>> store = RowStore({"request_id": np.int64, "arrival_s": np.float64})
    >>> store.append((0, 0.5))
    >>> store.columns()["arrival_s"]
    array([0.5])
    """

    def __init__(self, types: Mapping[str, type]) -> None:
        self._types = types
        self._rows: list[Sequence[object]] = []
        self._blocks: list[Columns] = []

    def append(self, row: Sequence[object]) -> None:
        """Add a row."""
        self._rows.append(row)
        if len(self._rows) == BLOCK:
            self._blocks.append(as_columns(self._rows, self._types))
            self._rows = []

    def columns(self, more: Sequence[Sequence[object]] = ()) -> Columns:
        """Return the table, with further rows at its end; the store stays as it is."""
        blocks = [*self._blocks, as_columns([*self._rows, *more], self._types)]
        if len(blocks) == 1:
            return blocks[0]
        return {name: np.concatenate([block[name] for block in blocks]) for name in self._types}


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
