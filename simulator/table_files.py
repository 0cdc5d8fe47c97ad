"""Tables that are kept in files while they grow, for runs of more rows than memory holds."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from simulator.columns import Columns, Sink
from simulator.metrics.requests import with_latencies
from simulator.parquet import as_table
from simulator.stored_table import StoredTable

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
