"""A table of published serving measurements, one operating point a row."""

import csv
import math
from dataclasses import dataclass, fields
from pathlib import Path

from simulator.errors import UserError


@dataclass(frozen=True)
class Measurement:
    """One operating point of a real engine; None and empty text stand for "not stated".

    The fields are columns of the file. Limits keep their text, because `default(256)` tells more
    than a number. Times are in ms, rates per second over the whole system.
    """

    record_id: str
    model: str
    gpu: str
    engine: str
    arrival_kind: str
    sweep_id: str = ""
    source_id: str = ""
    quality: str = ""
    weight_dtype: str = ""
    kv_dtype: str = ""
    engine_version: str = ""
    engine_flags: str = ""
    max_num_seqs: str = ""
    max_num_batched_tokens: str = ""
    max_model_len: str = ""
    chunked_prefill: str = ""
    prefix_caching: str = ""
    regime: str = ""
    dataset: str = ""
    isl_dist: str = ""
    osl_dist: str = ""
    notes: str = ""
    num_gpus: float | None = None
    tp: float | None = None
    kv_capacity_tokens: float | None = None
    request_rate_rps: float | None = None
    max_concurrency: float | None = None
    num_requests: float | None = None
    duration_s: float | None = None
    isl_mean_tok: float | None = None
    osl_mean_tok: float | None = None
    req_throughput_rps: float | None = None
    output_throughput_tok_s: float | None = None
    ttft_mean_ms: float | None = None
    ttft_p50_ms: float | None = None
    tpot_mean_ms: float | None = None
    tpot_p50_ms: float | None = None
    e2e_mean_ms: float | None = None


NEEDED = ("record_id", "model", "gpu", "engine", "arrival_kind")
"""Columns that may not be empty."""

_NUMBERS = tuple(f.name for f in fields(Measurement) if f.type == float | None)
_TEXTS = tuple(f.name for f in fields(Measurement) if f.name not in _NUMBERS)
_MAY_BE_INFINITE = ("request_rate_rps",)


def read_measurements(path: Path) -> list[Measurement]:
    """Read a table of measurements; further columns are ignored.

    Parameters
    ----------
    path : pathlib.Path
        CSV file with a header, UTF-8.

    Returns
    -------
    list of Measurement
        In the order of the file.

    Raises
    ------
    UserError
        If the file cannot be read, lacks a column of `NEEDED`, holds no row, a record twice, or a
        number that is not finite and greater than 0.
    """
    found: dict[str, Measurement] = {}
    for line, cells in read_table(path, NEEDED):
        row = _row(cells, f"{path.name}, line {line}")
        if row.record_id in found:
            raise UserError(f"{path.name}, line {line}: record_id {row.record_id} stands twice")
        found[row.record_id] = row
    return list(found.values())


def read_table(path: Path, needed: tuple[str, ...]) -> list[tuple[int, dict[str, str]]]:
    """Return line number and cells of each row of a CSV file.

    Raises
    ------
    UserError
        If the file cannot be read, lacks a needed column, holds no row, or a row of another width.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.DictReader(file)
            columns = reader.fieldnames or []
            missing = [name for name in needed if name not in columns]
            if missing:
                raise UserError(f"{path.name}: no column {', '.join(missing)}")
            rows = [(reader.line_num, row) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a CSV file in UTF-8"
        raise UserError(f"{path}: cannot be read: {reason}") from None
    for line, row in rows:
        if None in row or None in row.values():
            raise UserError(f"{path.name}, line {line}: expected {len(columns)} cells")
    if not rows:
        raise UserError(f"{path.name}: holds no row")
    return rows


def _row(cells: dict[str, str], where: str) -> Measurement:
    texts = {name: cells.get(name, "").strip() for name in _TEXTS}
    for name in NEEDED:
        if not texts[name]:
            raise UserError(f"{where}: {name} is empty")
    numbers = {name: positive(cells.get(name, ""), name, where) for name in _NUMBERS}
    return Measurement(**texts, **numbers)  # type: ignore[arg-type]


def positive(text: str, name: str, where: str) -> float | None:
    """Return a cell as a number greater than 0; None if it is empty.

    Raises
    ------
    UserError
        If it is anything else.

    Examples
    --------
    >>> positive("1.5", "tp", "a.csv, line 2"), positive("", "tp", "a.csv, line 2")
    (1.5, None)
    """
    if not text.strip():
        return None
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    infinite = name in _MAY_BE_INFINITE and value == math.inf
    if not infinite and not (math.isfinite(value) and value > 0):
        raise UserError(f"{where}: {name} {text!r}: expected a number greater than 0")
    return value
