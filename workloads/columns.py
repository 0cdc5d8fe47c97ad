"""The columns of a trace: made read-only, checked, hashed, and turned into requests."""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from hashlib import sha256
from itertools import repeat
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from workloads.chains import Chains
from workloads.errors import WorkloadError
from workloads.request import RequestSpec

Column = NDArray[Any]

MAIN: Final = ("arrival_s", "prompt_tokens", "output_tokens", "max_tokens")
"""Columns that every trace has."""

OPTIONAL: Final[Mapping[str, DTypeLike]] = MappingProxyType(
    {
        "priority": np.int64,
        "tenant": np.str_,
        "size": np.int64,
        "ttft_slo": np.float64,
        "tpot_slo": np.float64,
        "deadline": np.float64,
        "conversation": np.int64,
        "turn": np.int64,
    }
)
"""Further columns that reach the requests, and their types; NaN stands for none."""


_DEFAULTS: Final = RequestSpec._field_defaults

_unchecked: Final = partial(tuple.__new__, RequestSpec)
"""Makes a request of a row of columns that have been checked."""

_CHUNK: Final = 65_536
"""Requests made from the columns at a time."""


def freeze(name: str, values: ArrayLike, dtype: DTypeLike) -> Column:
    """Return a read-only column of the type asked for; copies what others could change.

    Raises
    ------
    WorkloadError
        Not one-dimensional, not numbers, or a fraction where whole numbers are expected.
    """
    try:
        column = np.asarray(values)
        wanted = column.astype(dtype) if column.dtype != dtype else column
    except (TypeError, ValueError, OverflowError) as error:
        raise WorkloadError(f"cannot be a column: {error}", column=name) from None
    if wanted.ndim != 1:
        raise WorkloadError(f"expected one dimension, got {wanted.ndim}", column=name)
    if wanted.dtype.kind == "i" and column.dtype.kind not in "iu" and np.any(wanted != column):
        raise WorkloadError("expected whole numbers", column=name)
    if wanted.flags.writeable:
        wanted = wanted.copy() if wanted is column else wanted
        wanted.flags.writeable = False
    return wanted


def freeze_all(columns: Mapping[str, ArrayLike]) -> Mapping[str, Column]:
    """Return read-only optional columns in the order of their names."""
    table = {
        name: freeze(name, columns[name], OPTIONAL.get(name, np.asarray(columns[name]).dtype))
        for name in sorted(columns)
    }
    for name, column in table.items():
        if name in MAIN or column.dtype.kind not in "iufbU":
            raise WorkloadError("expected another name, or numbers or text", column=name)
    return MappingProxyType(table)


def check(table: Mapping[str, Column]) -> None:
    """Check the columns of a trace against the rules of a request.

    Raises
    ------
    WorkloadError
        No rows, unequal lengths, or the first request that breaks a rule.
    """
    arrival_s, prompts, outputs, caps = (table[name] for name in MAIN)
    if arrival_s.size == 0:
        raise WorkloadError("no rows: expected a trace of at least one request")
    for name, column in table.items():
        if column.size != arrival_s.size:
            raise WorkloadError(f"expected {arrival_s.size} rows", column=name, value=column.size)
    _require(
        np.isfinite(arrival_s) & (arrival_s >= 0), "a finite time of at least 0", "arrival_s", table
    )
    later = np.concatenate(([True], arrival_s[1:] >= arrival_s[:-1]))
    _require(later, "a time not before that of the request above", "arrival_s", table)
    _require(prompts >= 1, "a length of at least 1", "prompt_tokens", table)
    _require(outputs >= 1, "a length of at least 1", "output_tokens", table)
    _require(caps >= outputs, "a cap of at least output_tokens", "max_tokens", table)
    if "size" in table:
        _require(table["size"] >= 1, "at least 1 row", "size", table)


def name_row(table: Mapping[str, Column], row: int) -> str:
    """Name a request in an error: its number, and its line where it came from a file."""
    lines = table.get("line")
    return f"request {row}" if lines is None else f"request {row} (line {lines[row]})"


def digest(table: Mapping[str, Column], chains: Chains | None) -> str:
    """Return the SHA-256 of everything that reaches the requests."""
    result = sha256(b"trace 1")
    for name in (*MAIN, *OPTIONAL):
        if name in table:
            column = table[name]
            result.update(f"{name} {column.size} ".encode())
            result.update(
                json.dumps(column.tolist()).encode()
                if column.dtype.kind == "U"
                else column.astype(column.dtype.newbyteorder("<")).tobytes()
            )
    if chains is not None:
        result.update(b"chains " + chains.digest())
    return result.hexdigest()


def to_requests(table: Mapping[str, Column], chains: Chains | None) -> Iterator[RequestSpec]:
    """Yield the rows as requests, numbered from 0."""
    for low in range(0, table[MAIN[0]].size, _CHUNK):
        rows = range(low, min(low + _CHUNK, table[MAIN[0]].size))
        main = [table[name][low : rows.stop].tolist() for name in MAIN]
        others = [_optional(table.get(name), name, rows) for name in OPTIONAL]
        if chains is not None:
            others += [map(chains.__getitem__, rows), repeat(chains.block_size)]
        else:
            others += [repeat(()), repeat(0)]
        yield from map(_unchecked, zip(rows, *main, *others, strict=False))


def _optional(column: Column | None, name: str, rows: range) -> Iterable[Any]:
    """Return the values of a field of `RequestSpec`; NaN stands for one that is not given."""
    if column is None:
        return repeat(_DEFAULTS[name])
    values = column[rows.start : rows.stop].tolist()
    return [None if value != value else value for value in values] if _may_lack(name) else values


def _may_lack(name: str) -> bool:
    return OPTIONAL[name] is np.float64


def _require(
    good: NDArray[np.bool_], expected: str, name: str, table: Mapping[str, Column]
) -> None:
    if not good.all():
        row = int(np.argmin(good))
        where = f"{name} of {name_row(table, row)}"
        raise WorkloadError(f"expected {expected} as {where}", value=table[name][row].item())
