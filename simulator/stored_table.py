"""Tables in Parquet files, read by column or a block of rows at a time."""

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
from numpy.typing import NDArray

from simulator.columns import Columns
from simulator.parquet import as_column

if TYPE_CHECKING:
    import pyarrow as pa
    from pyarrow.parquet import ParquetFile

KEY: Final = "request_id"
"""Rows are shown in the order of this column where there is one."""


class StoredTable(Mapping[str, NDArray[np.generic]]):
    """The columns of a Parquet file, each read when it is asked for and not kept.

    Parameters
    ----------
    path : Path
        The file. Rows are shown by `request_id` where there is such a column.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with self._open() as file:
            self._names: list[str] = file.schema_arrow.names
            self.num_rows: int = file.metadata.num_rows

    def move(self, path: Path) -> None:
        """Give the file another place."""
        if path != self.path:
            shutil.move(self.path, path)
            self.path = path

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        if name not in self._names:
            raise KeyError(name)
        return next(self.blocks([name], max(self.num_rows, 1)))[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def blocks(self, names: Sequence[str], size: int) -> Iterator[Columns]:
        """Yield some columns, a number of rows at a time, in the order of the file.

        Within a block, rows stand by `request_id`. An empty table has one block.

        Parameters
        ----------
        names : sequence of str
        size : int
            Rows of every block but the last.
        """
        sorted_by = [KEY] if KEY in self._names else []
        wanted = list(dict.fromkeys([*names, *sorted_by]))
        with self._open() as file:
            for table in _in_pieces(file, wanted, size):
                block = {name: as_column(table.column(name)) for name in wanted}
                if sorted_by:
                    order = np.argsort(block[KEY], kind="stable")
                    block = {name: column[order] for name, column in block.items()}
                yield {name: block[name] for name in names}

    def _open(self) -> "ParquetFile":
        from pyarrow import types
        from pyarrow.parquet import ParquetFile, read_schema

        texts = [field.name for field in read_schema(self.path) if types.is_string(field.type)]
        return ParquetFile(self.path, read_dictionary=texts)


def _in_pieces(file: "ParquetFile", names: Sequence[str], size: int) -> "Iterator[pa.Table]":
    """Yield the rows of a file in tables of `size` rows, whatever its own groups of rows."""
    import pyarrow as pa

    held = file.read_row_groups([], columns=names)
    for group in range(file.num_row_groups):
        more = file.read_row_group(group, columns=names, use_threads=False)  # less memory
        held = pa.concat_tables([held, more])
        while held.num_rows > size:
            yield held.slice(0, size)
            held = held.slice(size)
    yield held
