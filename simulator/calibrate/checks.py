"""What makes timing rows impossible to believe; calibration refuses them by file and row."""

import pandas as pd

from simulator.calibrate.rows import KEYS, MAY_BE_ZERO, Timings, where
from simulator.cost.gpus import Gpu
from simulator.cost.models import Dtype
from simulator.errors import UserError

MARGIN = 1.05
"""How far above the nominal peaks a measurement may lie: boost clocks, rounding."""

CACHE_SHARE = 1.6
"""Data up to this multiple of the L2 cache may partly come from it, faster than memory."""


def check_rows(timings: Timings, gpu: Gpu, dtype: Dtype) -> dict[str, int]:
    """Refuse rows that cannot be true.

    Parameters
    ----------
    timings : Timings
        Rows by operator.
    gpu : Gpu
        Holds the peaks.
    dtype : {"bfloat16", "fp8"}
        Number format of the linear layers and the KV cache.

    Returns
    -------
    dict of str to int
        Operator to the number of rows faster than memory but small enough to come from L2.

    Raises
    ------
    UserError
        One line with file and rows: a time of zero or less, a size that is no positive whole
        number, a repeated or unsorted row, or one above the peak arithmetic or bandwidth.
    """
    from_cache = {}
    for operator, frame in timings.frames.items():
        _check_values(frame, operator)
        _check_order(frame, operator)
        from_cache[operator] = _check_peaks(frame, operator, gpu, dtype)
    return from_cache


def traffic_of(
    frame: pd.DataFrame, operator: str, element_bytes: int
) -> tuple["pd.Series[float]", "pd.Series[float]"]:
    """Return operations and bytes of each row.

    Parameters
    ----------
    frame : DataFrame
        Rows of one operator.
    operator : str
        A key of `KEYS`.
    element_bytes : int
        Bytes of a weight, or of a stored key or value.

    Returns
    -------
    flops, num_bytes : Series
        What the kernel has to compute and to move at least.

    Examples
    --------
    >>> rows = pd.DataFrame({"num_bytes": [8.0]})
    >>> [series.tolist() for series in traffic_of(rows, "elementwise", 2)]
    [[0.0], [8.0]]
    """
    if operator == "linear":
        n, k, m = (frame[name] for name in KEYS["linear"])
        return 2 * m * n * k, element_bytes * (n * k + m * k) + 2 * m * n
    if operator in ("decode", "prefill"):
        width = frame["q_heads"] * frame["head_size"]
        token = 2 * element_bytes * frame["kv_heads"] * frame["head_size"]
        if operator == "decode":
            keys = frame["batch"] * frame["context"]
            return 4 * width * keys, token * keys
        tokens, past = frame["tokens"], frame["past"]
        return 4 * width * tokens * (past + (tokens + 1) / 2), token * (past + tokens)
    return 0 * frame["num_bytes"], frame["num_bytes"]


def _check_values(frame: pd.DataFrame, operator: str) -> None:
    """Refuse times and sizes that are not positive, and sizes that are not whole."""
    wrong = frame[frame["time_us"] <= 0]
    if len(wrong):
        raise UserError(f"{where(wrong)}: time_us is not above 0 ({operator})")
    for column in KEYS[operator]:
        least = 0 if column in MAY_BE_ZERO else 1
        wrong = frame[(frame[column] < least) | (frame[column] % 1 != 0)]
        if len(wrong):
            raise UserError(
                f"{where(wrong)}: {column} is not a whole number of at least {least} ({operator})"
            )


def _check_order(frame: pd.DataFrame, operator: str) -> None:
    """Refuse a size that occurs twice in a curve, or that stands after a greater one."""
    size = KEYS[operator][-1]
    repeated = frame[frame.duplicated(["curve", size])]
    if len(repeated):
        raise UserError(f"{where(repeated)}: repeats an earlier row ({operator})")
    before = frame.groupby(["file", "curve"])[size].shift()
    unsorted = frame[before > frame[size]]
    if len(unsorted):
        raise UserError(f"{where(unsorted)}: {size} is smaller than in the row before ({operator})")


def _check_peaks(frame: pd.DataFrame, operator: str, gpu: Gpu, dtype: Dtype) -> int:
    """Refuse rows above a peak; return how many are explained by the cache."""
    small = dtype == "fp8"
    flops, moved = traffic_of(frame, operator, 1 if small else 2)
    peak = gpu.bf16_tflops * (2 if small and operator == "linear" else 1)
    tflops = flops / frame["time_us"] / 1e6
    wrong = frame[tflops > MARGIN * peak]
    if len(wrong):
        raise UserError(
            f"{where(wrong)}: {tflops[wrong.index[0]]:.0f} TFLOP/s is above the peak of {peak:g} "
            f"of {gpu.key} ({operator})"
        )
    rate = moved / frame["time_us"] / 1e3
    fast = rate > MARGIN * gpu.hbm_gb_per_s
    large = moved > CACHE_SHARE * gpu.l2_mb * 1e6
    wrong = frame[fast & large]
    if len(wrong):
        raise UserError(
            f"{where(wrong)}: {rate[wrong.index[0]]:.0f} GB/s is above the peak bandwidth of "
            f"{gpu.hbm_gb_per_s:g} of {gpu.key} ({operator})"
        )
    return int(fast.sum())
