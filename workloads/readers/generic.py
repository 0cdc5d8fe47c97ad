"""Any table with a column map: CSV, JSON lines and Parquet."""

from collections.abc import Iterator, Mapping
from math import nan
from typing import Any, Final

import numpy as np

from workloads.errors import WorkloadError
from workloads.readers.cells import BadCell, in_units, timestamps
from workloads.readers.csv_format import CsvFormat, add_conversations
from workloads.readers.json_values import ChainCheck, Json, lookup, number, whole
from workloads.readers.jsonl_format import Dialect, JsonlFormat
from workloads.readers.options import UNITS_PER_S, Failures, ReadOptions
from workloads.readers.rows import Enough, Rows
from workloads.readers.sample import Sample
from workloads.readers.text import TextFile

KNOWN: Final[Mapping[str, str]] = {
    "arrival": "arrival_s",
    "prompt_tokens": "prompt_tokens",
    "output_tokens": "output_tokens",
    "max_tokens": "max_tokens",
    "tenant": "tenant",
    "priority": "priority",
    "size": "size",
    "ttft_slo": "ttft_slo_s",
    "tpot_slo": "tpot_slo_s",
    "conversation": "conversation",
    "hash_ids": "hash_ids",
}
"""What may be mapped, and the names looked for where nothing is."""

_LENGTHS: Final = ("prompt_tokens", "output_tokens")
_OBJECTIVES: Final = ("ttft_slo", "tpot_slo")
_GENERIC_BLOCK: Final = 16
"""Block size where a row does not say ``id_block_size``, as files of this package do."""


def column_map(options: ReadOptions) -> dict[str, str]:
    """Return the file's name of each column.

    Raises
    ------
    WorkloadError
        A column of ours that does not exist.
    """
    given = dict(options.columns or {})
    for name in given:
        if name not in KNOWN:
            raise WorkloadError(f"expected columns out of {', '.join(KNOWN)}", value=name)
    return {**KNOWN, **given}


class GenericCsv:
    """A table with a header and names of its own; the format that this package writes."""

    name = "csv"
    about = "any CSV table, with a column map; without one the names this package writes"
    failures: Failures = "error"

    def fits(self, sample: Sample) -> float:
        """Say how well the beginning of a file fits: 1 is certain, 0 is not at all."""
        return sum(name in sample.cells for name in _LENGTHS) / 2 - 0.02

    def read(self, file: TextFile, rows: Rows) -> None:
        """Read a file; see `CsvFormat.read`. Times are numbers, or ISO 8601 timestamps."""
        names = column_map(rows.options)
        stamps = self._has_timestamps(file, names["arrival"])
        unit = UNITS_PER_S[rows.options.time_unit or "s"]
        format_ = CsvFormat(
            name=self.name,
            about=self.about,
            time=names["arrival"],
            prompt_tokens=names["prompt_tokens"],
            output_tokens=names["output_tokens"],
            make_time_reader=timestamps if stamps else in_units(unit),
            ticks_per_s=1_000_000_000 if stamps else 1,
            time_optional=True,
            numbers={names[name]: name for name in ("max_tokens", "priority", "size")},
            seconds={names[name]: name for name in _OBJECTIVES},
            texts={names["tenant"]: "tenant"},
            conversation=names["conversation"],
        )
        format_.read(file, rows)

    def _has_timestamps(self, file: TextFile, column: str) -> bool:
        lines = [text for _, (_, text) in zip(range(2), file.lines(), strict=False)]
        if len(lines) < 2:
            return False
        cells = dict(zip(map(str.strip, lines[0].split(",")), lines[1].split(","), strict=False))
        try:
            timestamps()(cells.get(column, ""))
        except BadCell:
            return False
        return True


class _Objects(Dialect):
    """Objects with names of their own; a dot in a name leads into an inner object."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        self._names = column_map(rows.options)
        self._per_s = self.per_s("s")
        self._conversations: list[int] = []
        self._labels: dict[str, int] = {}
        self._ready = False
        self._unstated = {"size", *_OBJECTIVES}
        self._chain: ChainCheck | None = None

    def take(self, line: int, row: Json) -> None:
        if not self._ready:
            self._declare(row)
        names, rows = self._names, self.rows
        time = number(row, names["arrival"]) / self._per_s if rows.timed else 0.0
        prompt = whole(row, names["prompt_tokens"])
        least = 0 if rows.failures != "error" else 1
        output = whole(row, names["output_tokens"], least, rows.options.default_output)
        cap = whole(row, names["max_tokens"], output, max(output, 1))
        priority = lookup(row, names["priority"])
        extra = (
            cap,
            priority if type(priority) is int else 0,
            whole(row, names["size"], 1, 1),
            *(number(row, names[name], nan) for name in _OBJECTIVES),
            rows.code("tenant", str(lookup(row, names["tenant"]) or "")),
        )
        if self._unstated:
            self._unstated -= {n for n in self._unstated if lookup(row, names[n]) is not None}
        chain = self._chain(row, prompt) if self._chain else ()
        try:
            kept = rows.keep(line, time, prompt, output, extra, chain)
        except BadCell as bad:
            bad.column, bad.value = names["arrival"], repr(lookup(row, names["arrival"]))
            raise
        if kept:
            label = lookup(row, names["conversation"])
            code = -1 if label is None else self._labels.setdefault(str(label), len(self._labels))
            self._conversations.append(code)

    def _declare(self, row: Json) -> None:
        self._ready = True
        self.rows.timed = lookup(row, self._names["arrival"]) is not None
        chained = lookup(row, self._names["hash_ids"]) is not None
        own = row.get("id_block_size")
        block_size = own if type(own) is int else _GENERIC_BLOCK
        self.rows.declare(
            numbers=["max_tokens", "priority", "size"],
            reals=_OBJECTIVES,
            texts=["tenant"],
            block_size=block_size if chained else 0,
        )
        if chained:
            size, key = self.rows.block_size, self._names["hash_ids"]
            self._chain = ChainCheck(key, size, short=block_size == own)

    def end(self) -> None:
        for name in sorted(self._unstated) if self._ready else ():
            self.rows.leave_out(name)
        if self._labels:
            add_conversations(self.rows, np.array(self._conversations, np.int64))


class GenericParquet:
    """A Parquet table with names of its own, read batch by batch."""

    name = "parquet"
    about = "any Parquet table, with a column map"
    failures: Failures = "error"

    def fits(self, sample: Sample) -> float:
        """Say how well the beginning of a file fits: 1 is certain, 0 is not at all."""
        return 1.0 if sample.magic == b"PAR1" else 0.0

    def read(self, file: TextFile, rows: Rows) -> None:
        """Read a file; column ``line`` is the number of the row, from 1.

        Raises
        ------
        WorkloadError
            Not a Parquet file, a column missing, or a bad row while strict.
        """
        dialect = _Objects(rows)
        try:
            for line, row in _parquet_rows(file, dialect):
                try:
                    dialect.take(line, row)
                except BadCell as bad:
                    rows.reject(line, bad)
        except Enough:
            pass
        dialect.end()


def _parquet_rows(file: TextFile, dialect: _Objects) -> Iterator[tuple[int, dict[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(file.path) as table:
            wanted = _wanted(table.schema_arrow.names, file, dialect)
            line = 0
            for batch in table.iter_batches(65_536, columns=wanted):
                for row in batch.to_pylist():
                    line += 1
                    yield line, row
    except (pa.ArrowException, OSError, OverflowError, ValueError) as error:
        if isinstance(error, WorkloadError):
            raise
        raise WorkloadError(f"damaged data: {error}", path=file.path) from None


def _wanted(names: list[str], file: TextFile, dialect: _Objects) -> list[str]:
    """Return the columns to read; refuse a table without lengths."""
    present = set(names)
    for name in _LENGTHS:
        if dialect._names[name] not in present:
            told = f"missing; found {', '.join(sorted(present))!r}"
            raise WorkloadError(told, path=file.path, column=dialect._names[name])
    return [name for name in dialect._names.values() if name in present]


GENERIC_JSONL = JsonlFormat(
    "jsonl",
    "any table of JSON objects, one a line, with a column map",
    _Objects,
    required=("arrival_s", "prompt_tokens", "output_tokens"),
)
