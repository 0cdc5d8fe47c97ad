"""Arrays of an operator profile from timing rows."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simulator.calibrate.checks import CACHE_SHARE, traffic_of
from simulator.calibrate.rows import merge_repeats
from simulator.cost.gpus import Gpu
from simulator.cost.models import Dtype
from simulator.cost.operators import roofline_s
from simulator.errors import UserError

Arrays = dict[str, NDArray[Any]]

DEFAULT_COLD_FRACTION = 0.87
DEFAULT_SERIAL_US = 0.0135
TILES = (0, 64, 128)
"""Queries per tile that are tried; 0: unknown, all tiles run at once."""
FEWEST_BEHIND = 10
"""Rows with a stored context that a serial term is fitted to."""
MAX_HEAD_ROWS = 4096


def build_tables(
    frames: Mapping[str, pd.DataFrame], gpu: Gpu, dtype: Dtype
) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays of a profile, and the metadata that follow from the rows.

    Parameters
    ----------
    frames : mapping of str to DataFrame
        Checked rows by operator; `linear`, `decode` and `prefill` are needed.
    gpu : Gpu
        Peaks, cache and multiprocessors.
    dtype : {"bfloat16", "fp8"}
        Number format.

    Returns
    -------
    arrays : dict of str to array
        Tables of `OperatorProfile`.
    metadata : dict
        GPU, peaks, fitted scalars, ranges.

    Raises
    ------
    UserError
        If a needed operator was not measured.
    """
    for operator in ("linear", "decode", "prefill"):
        if operator not in frames:
            raise UserError(f"no {operator} timings in {dtype}: a profile needs them")
    head_sizes = {
        int(size) for name in ("decode", "prefill") for size in frames[name]["head_size"].unique()
    }
    if len(head_sizes) > 1:
        raise UserError(f"head sizes {sorted(head_sizes)}: a profile holds one")
    weight_bytes = 1 if dtype == "fp8" else 2
    tflops = gpu.bf16_tflops * (2 if dtype == "fp8" else 1)
    merged = {operator: merge_repeats(frame, operator) for operator, frame in frames.items()}
    arrays = (
        _linear(merged["linear"], tflops * 1e12, gpu.hbm_gb_per_s * 1e9, weight_bytes)
        | _decode(merged["decode"])
        | _prefill(merged["prefill"])
    )
    if "elementwise" in merged:
        arrays |= _elementwise(merged["elementwise"])
    if "all_reduce" in merged:
        arrays |= _all_reduce(merged["all_reduce"])
    metadata: dict[str, Any] = {
        "gpu": gpu.key,
        "gpu_record": asdict(gpu),
        "dtype": dtype,
        "head_size": head_sizes.pop(),
        "peaks": {"tflops": tflops, "hbm_gb_per_s": gpu.hbm_gb_per_s},
        "cold_hbm_fraction": _cold_fraction(merged["decode"], gpu, weight_bytes),
        "max_sampled": min(MAX_HEAD_ROWS, int(arrays["gemm_tokens"][-1])),
        **_serial(merged["prefill"], gpu),
    }
    return arrays, metadata


def _linear(table: pd.DataFrame, flops: float, bandwidth: float, weight_bytes: int) -> Arrays:
    """Return shapes, token counts and roofline efficiencies."""
    grid = table.pivot(
        index=["out_features", "in_features"], columns="tokens", values="time_us"
    ).sort_index()
    shapes = np.array(grid.index.to_list(), dtype=np.float64)
    tokens = grid.columns.to_numpy(dtype=np.float64)
    shortest = roofline_s(tokens, shapes[:, :1], shapes[:, 1:], flops, bandwidth, weight_bytes)
    efficiency = _without_gaps(shortest * 1e6 / grid.to_numpy(dtype=np.float64), tokens)
    return {
        "gemm_shapes": shapes.astype(np.int32),
        "gemm_tokens": tokens.astype(np.int32),
        "gemm_efficiency": efficiency.astype(np.float32),
    }


def _decode(table: pd.DataFrame) -> Arrays:
    """Return decode attention by layout, batch and context; NaN where not measured."""
    layouts, layout = np.unique(table[["q_heads", "kv_heads"]], axis=0, return_inverse=True)
    batches, batch = np.unique(table["batch"], return_inverse=True)
    contexts, context = np.unique(table["context"], return_inverse=True)
    times = np.full((len(layouts), len(batches), len(contexts)), np.nan, dtype=np.float32)
    times[layout.ravel(), batch, context] = table["time_us"]
    return {
        "decode_layouts": layouts.astype(np.int32),
        "decode_batches": batches.astype(np.int32),
        "decode_contexts": contexts.astype(np.int32),
        "decode_us": times,
    }


def _prefill(table: pd.DataFrame) -> Arrays:
    """Return the attention of prompts without stored context by layout and length."""
    alone = table[table["past"] == 0]
    if alone.empty:
        raise UserError("no prefill timings with past 0: a profile needs them")
    grid = alone.pivot(
        index=["q_heads", "kv_heads"], columns="tokens", values="time_us"
    ).sort_index()
    tokens = grid.columns.to_numpy(dtype=np.float64)
    times = _without_gaps(grid.to_numpy(dtype=np.float64), tokens)
    return {
        "prefill_layouts": np.array(grid.index.to_list(), dtype=np.int32),
        "prefill_tokens": tokens.astype(np.int32),
        "prefill_us": times.astype(np.float32),
    }


def _elementwise(table: pd.DataFrame) -> Arrays:
    """Return memory-bound kernels over their bytes: the median of every half octave."""
    bins = np.round(2 * np.log2(table["num_bytes"].to_numpy())) / 2
    times = table.groupby(bins)["time_us"].median()
    return {
        "elementwise_bytes": (2.0 ** times.index.to_numpy()).astype(np.float32),
        "elementwise_us": np.maximum.accumulate(times.to_numpy()).astype(np.float32),
    }


def _all_reduce(table: pd.DataFrame) -> Arrays:
    """Return the all-reduce by number of GPUs and message size."""
    grid = table.pivot(index="num_gpus", columns="num_bytes", values="time_us").sort_index()
    sizes = grid.columns.to_numpy(dtype=np.float64)
    times = _without_gaps(grid.to_numpy(dtype=np.float64), sizes)
    return {
        "all_reduce_gpus": grid.index.to_numpy(dtype=np.int32),
        "all_reduce_bytes": sizes.astype(np.int64),
        "all_reduce_us": times.astype(np.float32),
    }


def _without_gaps(grid: NDArray[np.float64], sizes: NDArray[np.float64]) -> NDArray[np.float64]:
    """Fill missing cells log-log along each row, and hold its ends."""
    filled, position = grid.copy(), np.log(sizes)
    for row in filled:
        known = ~np.isnan(row)
        row[~known] = np.exp(np.interp(position[~known], position[known], np.log(row[known])))
    return filled


def _cold_fraction(decode: pd.DataFrame, gpu: Gpu, kv_bytes: int) -> float:
    """Return the fraction of the peak bandwidth that reading a cache beyond L2 reaches."""
    floor = decode["time_us"].groupby([decode["q_heads"], decode["kv_heads"]]).transform("min")
    _, moved = traffic_of(decode, "decode", kv_bytes)
    cold = moved > 4 * CACHE_SHARE * gpu.l2_mb * 1e6
    if not cold.any():
        return DEFAULT_COLD_FRACTION
    rate = (moved / (decode["time_us"] - floor))[cold] / 1e3 / gpu.hbm_gb_per_s
    return round(float(np.clip(rate.median(), 0.5, 0.95)), 3)


def _serial(prefill: pd.DataFrame, gpu: Gpu) -> dict[str, Any]:
    """Fit the serial term to short chunks behind long contexts, and choose the tile."""
    floor = prefill["time_us"].groupby([prefill["q_heads"], prefill["kv_heads"]]).transform("min")
    attended = prefill["past"] + prefill["tokens"]
    walk = (prefill["time_us"] - floor) / attended
    short = (prefill["past"] >= 1024) & (prefill["tokens"] <= 64)
    if short.sum() < FEWEST_BEHIND:
        return {"serial_us_per_token": DEFAULT_SERIAL_US, "prefill_tile": 0}
    serial = float(walk[short].median())
    long = prefill["past"] >= 1024
    rows, times = prefill[long], prefill.loc[long, "time_us"]
    errors = []
    for tile in TILES:
        tiles = np.ceil(rows["tokens"] / tile) if tile else 1.0
        rounds = np.maximum(np.ceil(tiles * rows["q_heads"] / gpu.num_sms), 1.0)
        own = np.where(rounds > 1.0, rows["tokens"] / 2, rows["tokens"])
        slack = (floor[long] + serial * rounds * (rows["past"] + own)) / times - 1
        errors.append(float(slack.abs().mean()))
    return {
        "serial_us_per_token": round(serial, 5),
        "prefill_tile": TILES[int(np.argmin(errors))],
    }
