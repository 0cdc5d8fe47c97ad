"""What a person may ask of a reader besides the file."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

from workloads.errors import WorkloadError

Failures: TypeAlias = Literal["error", "drop", "prefill", "impute"]
TimeUnit: TypeAlias = Literal["s", "ms", "us", "ns"]

UNITS_PER_S: Mapping[str, int] = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """How a file is read.

    Parameters
    ----------
    strict : bool, default True
        True: the first bad row, or row out of order, is an error. False: bad rows are
        dropped and counted by reason, rows out of order are sorted.
    failures : {'error', 'drop', 'prefill', 'impute'}, optional
        Rows without output, which some services write for a failed request. ``error``: a bad
        row like any other. ``drop``: left out and counted. ``prefill``: kept with an output
        of one token, the one that comes out of the prefill. ``impute``: given the output of
        another row, drawn with a fixed seed. What the format says if left out: ``drop``
        where its publisher marks failures in this way, else ``error``.
    start_s, end_s : float, optional
        Keep rows that arrive in ``[start_s, end_s)``, in seconds after the first row. Rows
        outside are counted; a strict reader stops at the end of the window.
    max_rows : int, optional
        Stop after so many rows are kept.
    time_unit : {'s', 'ms', 'us', 'ns'}, optional
        Unit of the times in the file; what the format says if left out.
    block_size : int, optional
        Tokens in a block of a prefix chain; what the format says if left out.
    default_output : int, optional
        Output tokens of rows that name none; they are bad rows if left out.
    columns : mapping of str to str, optional
        For the generic formats: the file's names for ``arrival``, ``prompt_tokens``,
        ``output_tokens``, and for ``max_tokens``, ``tenant``, ``priority``, ``size``, ``ttft_slo``,
        ``tpot_slo``, ``conversation`` or ``hash_ids``. A dot leads into a JSON object.
    """

    strict: bool = True
    failures: Failures | None = None
    start_s: float | None = None
    end_s: float | None = None
    max_rows: int | None = None
    time_unit: TimeUnit | None = None
    block_size: int | None = None
    default_output: int | None = None
    columns: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if self.failures not in (None, "error", "drop", "prefill", "impute"):
            _refuse("failures", self.failures, "error, drop, prefill or impute")
        if self.time_unit is not None and self.time_unit not in UNITS_PER_S:
            _refuse("time_unit", self.time_unit, "s, ms, us or ns")
        for name in ("max_rows", "block_size", "default_output"):
            value = getattr(self, name)
            if value is not None and value < 1:
                _refuse(name, value, "a whole number of at least 1")
        if self.start_s is not None and self.end_s is not None and self.start_s >= self.end_s:
            _refuse("start_s", self.start_s, f"less than end_s, {self.end_s:g}")


def _refuse(name: str, value: object, expected: str) -> None:
    raise WorkloadError(f"expected {expected} as {name}", value=value)
