"""Published times of every request of a run."""

import gzip
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from simulator.errors import UserError
from simulator.validation.names import gpu_key, model_key
from simulator.validation.rows import Measurement
from workloads.base import FloatArray, IntArray
from workloads.trace import Trace

KEYS = ("gpu", "model", "tp_size", "max_num_seqs", "max_num_batched_tokens")
"""Columns that tell the runs of a file apart."""
VALUES = ("input_tokens", "output_tokens", "arrival_s", "first_token_s", "last_token_s")
"""Columns of a request."""
TIMES = ("arrival_s", "queued_s", "first_token_s", "last_token_s")


@dataclass(frozen=True)
class RequestLog:
    """The requests of one run, in order of arrival; times in seconds from its start.

    Attributes
    ----------
    gpu, model : str
        As in the file.
    tp, max_num_seqs, max_num_batched_tokens : int
        Tensor-parallel degree and limits of the scheduler.
    arrival_s, queued_s, first_token_s, last_token_s : array of float
        When the client sent each request, when the engine queued it (the same where the file does
        not say), and when the client got its first and last token.
    input_tokens, output_tokens : array of int
        Lengths.
    """

    gpu: str
    model: str
    tp: int
    max_num_seqs: int
    max_num_batched_tokens: int
    arrival_s: FloatArray
    queued_s: FloatArray
    first_token_s: FloatArray
    last_token_s: FloatArray
    input_tokens: IntArray
    output_tokens: IntArray

    def trace(self) -> Trace:
        """Return the requests as a workload."""
        return Trace(self.arrival_s, self.input_tokens, self.output_tokens)

    @property
    def ttft_s(self) -> FloatArray:
        """Time to the first token of each request."""
        return self.first_token_s - self.arrival_s

    @property
    def tpot_s(self) -> FloatArray:
        """Mean time per later token of each request; NaN for a single token."""
        gaps = np.where(self.output_tokens > 1, self.output_tokens - 1, np.nan)
        return (self.last_token_s - self.first_token_s) / gaps

    def belongs_to(self, row: Measurement) -> bool:
        """Tell whether it is the log of that row."""
        number = row.num_requests
        return (
            gpu_key(self.gpu) == gpu_key(row.gpu)
            and model_key(self.model) == model_key(row.model)
            and self.tp == (row.tp or 1)
            and (number is None or round(number) == len(self.arrival_s))
            and "log available" in row.isl_dist
        )


def read_request_logs(path: Path) -> list[RequestLog]:
    """Read a file of per-request times, CSV, plain or gzip.

    Raises
    ------
    UserError
        If it cannot be read, lacks a column, or a value is no number, out of order in time, or a
        length below 1.
    """
    try:
        raw = path.read_bytes()
        text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        table = pd.read_csv(io.BytesIO(text))
    except (OSError, EOFError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a CSV"
        raise UserError(f"{path}: cannot be read: {reason}") from None
    missing = [name for name in (*KEYS, *VALUES) if name not in table]
    if missing:
        raise UserError(f"{path.name}: no column {', '.join(missing)}")
    if table.empty:
        raise UserError(f"{path.name}: holds no row")
    if "queued_s" not in table:
        table["queued_s"] = table["arrival_s"]
    for name in (*KEYS[2:], *VALUES, "queued_s"):
        table[name] = pd.to_numeric(table[name], errors="coerce")
    _check(table, path.name)
    return [_log(key, rows) for key, rows in table.groupby(list(KEYS), sort=False)]


def _check(table: pd.DataFrame, where: str) -> None:
    """Refuse rows that cannot be true."""
    numbers = table[[*KEYS[2:], *VALUES, "queued_s"]].to_numpy(np.float64)
    bad = ~np.isfinite(numbers).all(axis=1)
    bad |= (table["input_tokens"] < 1) | (table["output_tokens"] < 1)
    bad |= (table["arrival_s"] < 0) | (table["first_token_s"] < table["arrival_s"])
    bad |= table["last_token_s"] < table["first_token_s"]
    if bad.any():
        line = int(np.flatnonzero(bad)[0]) + 2
        raise UserError(
            f"{where}, line {line}: expected lengths of at least 1 and times in the order arrival, "
            "first token, last token"
        )


def _log(key: Any, rows: pd.DataFrame) -> RequestLog:
    gpu, model, tp, seats, budget = key
    rows = rows.sort_values("arrival_s", kind="stable")
    return RequestLog(
        str(gpu),
        str(model),
        int(tp),
        int(seats),
        int(budget),
        *(rows[name].to_numpy(np.float64) for name in TIMES),
        *(rows[name].to_numpy(np.int64) for name in ("input_tokens", "output_tokens")),
    )
