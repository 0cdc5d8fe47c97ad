"""Tables of columns as Parquet files, written without pandas, whose import takes longer."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from simulator.columns import Columns

if TYPE_CHECKING:
    import pyarrow as pa


def write_parquet(path: Path, columns: Columns) -> None:
    """Write a table; NaN is stored as missing.

    Parameters
    ----------
    path : Path
        File to write.
    columns : dict
        Column name to array of integers, floats or text, all of one length.
    """
    from pyarrow import parquet

    parquet.write_table(as_table(columns), path, compression="zstd")


def as_table(columns: Columns) -> "pa.Table":
    """Return columns as an Arrow table; NaN is missing there."""
    import pyarrow as pa

    return pa.Table.from_arrays([_as_arrow(column) for column in columns.values()], list(columns))


def _as_arrow(column: NDArray[np.generic]) -> "pa.Array":
    import pyarrow as pa

    if column.dtype.kind == "U":
        texts = [text.encode() for text in column.tolist()]
        ends = np.cumsum([0, *map(len, texts)], dtype=np.int32)
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(b"".join(texts))]
        return pa.Array.from_buffers(pa.string(), len(column), buffers)
    valid = None
    if column.dtype.kind == "f":
        valid = pa.py_buffer(np.packbits(~np.isnan(column), bitorder="little"))
    data = np.ascontiguousarray(column)
    kind = pa.from_numpy_dtype(data.dtype)
    return pa.Array.from_buffers(kind, len(data), [valid, pa.py_buffer(data)])


def as_column(column: "pa.ChunkedArray") -> NDArray[np.generic]:
    """Undo `as_table` for a column of numbers, or of text with a dictionary; missing is NaN."""
    import pyarrow as pa

    array = column.unify_dictionaries().combine_chunks()
    if pa.types.is_dictionary(array.type):
        texts = np.array(array.dictionary.to_pylist(), np.str_)
        found: NDArray[np.generic] = texts[_numbers(array.indices)]
        return found
    return _numbers(array)


def _numbers(array: "pa.Array") -> NDArray[np.generic]:
    """Return an array's numbers; its own `to_numpy` would load pandas."""
    rows = slice(array.offset, array.offset + len(array))
    valid, data = array.buffers()
    dtype = np.dtype(array.type.to_pandas_dtype())
    values = np.frombuffer(data or b"", dtype)[rows]
    if array.null_count == 0:
        return values
    bits = np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")
    return np.where(bits[rows], values, np.nan)
