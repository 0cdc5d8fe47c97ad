"""Blocks of rows: what is computed from tables is computed from one block after the other."""

from collections.abc import Iterator, Sequence
from typing import Final

from simulator.columns import Columns
from simulator.stored_table import StoredTable

BLOCK: Final = 1 << 18
"""Rows of a block; a fixed number, so that sums do not depend on where a table is kept."""


def num_rows(table: Columns) -> int:
    """Return the number of rows of a table."""
    if isinstance(table, StoredTable):
        return table.num_rows
    return len(next(iter(table.values())))


def blocks(table: Columns, names: Sequence[str]) -> Iterator[Columns]:
    """Yield some columns of a table, block by block; an empty table has one block.

    Examples
    --------
    >>> import numpy as np
    >>> [len(block["x"]) for block in blocks({"x": np.zeros(BLOCK + 1)}, ["x"])]
    [262144, 1]
    """
    if isinstance(table, StoredTable):
        yield from table.blocks(names, BLOCK)
        return
    for first in range(0, max(num_rows(table), 1), BLOCK):
        yield {name: table[name][first : first + BLOCK] for name in names}
