"""Tables that are kept in files while they grow, for runs of more rows than memory holds."""

import shutil
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simulator.columns import Columns, Sink
from simulator.metrics import with_latencies
from simulator.parquet import as_table

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetWriter


class TableFiles:
    """Writes tables block by block, one Parquet file each.

    Parameters
    ----------
    folder : Path
        Existing folder that takes `requests.parquet` and so on.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writers: dict[str, ParquetWriter] = {}

    @property
    def sinks(self) -> dict[str, Sink]:
        """What appends a block of rows to each table."""
        return {name: partial(self._append, name) for name in ("requests", "steps", "gaps")}

    def _append(self, name: str, block: Columns) -> None:
        from pyarrow.parquet import ParquetWriter

        table = as_table(with_latencies(block) if name == "requests" else block)
        if name not in self._writers:
            path = self._folder / f"{name}.parquet"
            self._writers[name] = ParquetWriter(path, table.schema, compression="zstd")
        self._writers[name].write_table(table)

    def close(self, rest: Mapping[str, Columns]) -> dict[str, Columns]:
        """Append the last rows and complete the files; return the tables."""
        for name, block in rest.items():
            self._append(name, block)
        for writer in self._writers.values():
            writer.close()
        return {name: StoredTable(self._folder / f"{name}.parquet") for name in rest}


class StoredTable(Mapping[str, NDArray[np.generic]]):
    """The columns of a Parquet file, each read when it is asked for and not kept.

    Parameters
    ----------
    path : Path
        The file. Rows are shown by `request_id` where there is such a column.
    """

    def __init__(self, path: Path) -> None:
        from pyarrow.parquet import read_schema

        self.path = path
        self._names = read_schema(path).names
        self._order: NDArray[np.intp] | None = None
        if "request_id" in self._names:
            self._order = np.argsort(self._read("request_id"), kind="stable")

    def move(self, path: Path) -> None:
        """Give the file another place."""
        if path != self.path:
            shutil.move(self.path, path)
            self.path = path

    def __getitem__(self, name: str) -> NDArray[np.generic]:
        if name not in self._names:
            raise KeyError(name)
        column = self._read(name)
        return column if self._order is None else column[self._order]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _read(self, name: str) -> NDArray[np.generic]:
        from pyarrow import types
        from pyarrow.parquet import read_table

        column = read_table(self.path, columns=[name]).column(0)
        if types.is_string(column.type):
            return np.array(column.to_pylist(), np.str_)
        values: NDArray[np.generic] = column.to_numpy()
        return values
