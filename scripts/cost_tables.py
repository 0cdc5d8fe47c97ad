"""Read the measured kernel tables of one GPU into the arrays of an operator profile."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

SOURCE = "NVIDIA AIConfigurator, aiconfigurator-core 0.12.0, vLLM tables"
SOURCE_KEYS = {
    "h100": "h100_sxm",
    "a100": "a100_sxm",
    "h200": "h200_sxm",
    "b200": "b200_sxm",
    "l40s": "l40s",
}
BFLOAT16 = "bfloat16"
WEIGHT_BYTES = {"bfloat16": 2, "fp8": 1}


def read_gemm(
    directory: Path, gpu: str, dtype: str, peak_flops: float, hbm_bytes_per_s: float
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return shapes, token counts and efficiencies of the linear layers.

    Parameters
    ----------
    directory : pathlib.Path
        Folder of the tables.
    gpu : str
        Key of `SOURCE_KEYS`.
    dtype : str
        Key of `WEIGHT_BYTES`.
    peak_flops, hbm_bytes_per_s : float
        Peaks that an efficiency of 1 stands for.

    Returns
    -------
    arrays : dict of str to array
        `gemm_shapes`, `gemm_tokens`, `gemm_efficiency`.
    about : dict
        Rows used and ranges.
    """
    from simulator.cost.operators import roofline_s

    table = pd.read_csv(directory / f"gemm_{SOURCE_KEYS[gpu]}.csv.gz")
    table = table[table["gemm_dtype"] == dtype]
    grid = table.pivot(index=["n", "k"], columns="m", values="time_us").sort_index()
    shapes = np.array(grid.index.to_list(), dtype=np.float64)
    tokens = grid.columns.to_numpy(dtype=np.float64)
    shortest = roofline_s(
        tokens, shapes[:, :1], shapes[:, 1:], peak_flops, hbm_bytes_per_s, WEIGHT_BYTES[dtype]
    )
    efficiency = shortest * 1e6 / grid.to_numpy(dtype=np.float64)
    filled = fill_gaps(efficiency, tokens)
    arrays = {
        "gemm_shapes": shapes.astype(np.int32),
        "gemm_tokens": tokens.astype(np.int32),
        "gemm_efficiency": efficiency.astype(np.float32),
    }
    about = {
        "rows": len(table),
        "shapes": len(shapes),
        "interpolated_gaps": filled,
        "tokens": span(tokens),
    }
    return arrays, about


def read_decode(
    directory: Path, gpu: str, dtype: str
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the decode attention times by layout, batch and context; NaN where not measured."""
    table = _rows_of(directory / "attention_decode.csv.gz", gpu, dtype)
    layouts, layout_index = _layouts(table)
    batches, batch_index = np.unique(table["batch_seqs"], return_inverse=True)
    contexts, context_index = np.unique(table["kv_tokens_per_seq"], return_inverse=True)
    times = np.full((len(layouts), len(batches), len(contexts)), np.nan, dtype=np.float32)
    times[layout_index, batch_index, context_index] = table["time_us"]
    arrays = {
        "decode_layouts": layouts.astype(np.int32),
        "decode_batches": batches.astype(np.int32),
        "decode_contexts": contexts.astype(np.int32),
        "decode_us": times,
    }
    about = {
        "rows": len(table),
        "layouts": len(layouts),
        "batches": span(batches),
        "contexts": span(contexts),
        "kernels": sorted(table["kernel"].unique()),
    }
    return arrays, about


def read_prefill(
    directory: Path, gpu: str, dtype: str
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the prefill attention times of single prompts by layout and length."""
    table = _rows_of(directory / "attention_prefill.csv.gz", gpu, dtype)
    table = table[table["batch_seqs"] == 1]
    layouts, layout_index = _layouts(table)
    tokens, token_index = np.unique(table["chunk_tokens"], return_inverse=True)
    times = np.full((len(layouts), len(tokens)), np.nan, dtype=np.float32)
    times[layout_index, token_index] = table["time_us"]
    filled = fill_gaps(times, tokens)
    arrays = {
        "prefill_layouts": layouts.astype(np.int32),
        "prefill_tokens": tokens.astype(np.int32),
        "prefill_us": times,
    }
    about = {
        "rows": len(table),
        "layouts": len(layouts),
        "interpolated_gaps": filled,
        "tokens": span(tokens),
        "kernels": sorted(table["kernel"].unique()),
    }
    return arrays, about


def read_all_reduce(directory: Path, gpu: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the times of vLLM's custom all-reduce in a CUDA graph by GPUs and message size."""
    table = pd.read_csv(directory / "collectives.csv.gz")
    wanted = (
        (table["gpu"] == SOURCE_KEYS[gpu])
        & (table["impl"] == "vllm_graph")
        & (table["op"] == "all_reduce")
    )
    table = table[wanted]
    grid = table.pivot(index="num_gpus", columns="message_bytes", values="time_us").sort_index()
    sizes = grid.columns.to_numpy()
    arrays = {
        "all_reduce_gpus": grid.index.to_numpy(dtype=np.int32),
        "all_reduce_bytes": sizes.astype(np.int64),
        "all_reduce_us": grid.to_numpy(dtype=np.float32),
    }
    about = {
        "rows": len(table),
        "gpus": grid.index.to_list(),
        "bytes": span(sizes),
        "software": sorted(table["software"].unique()),
    }
    return arrays, about


def read_moe(directory: Path, gpu: str) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the bfloat16 expert layers with balanced routing, or nothing where not measured."""
    table = pd.read_csv(directory / "moe.csv.gz")
    wanted = (
        (table["gpu"] == SOURCE_KEYS[gpu])
        & (table["moe_dtype"] == BFLOAT16)
        & (table["routing"] == "balanced")
    )
    table = table[wanted]
    if table.empty:
        return {}, {"rows": 0}
    layer = ["hidden_size", "expert_inter_size", "num_experts", "top_k", "tp_size"]
    grid = table.pivot(index=layer, columns="num_tokens", values="time_us").sort_index()
    if grid.isna().any(axis=None):
        raise ValueError(f"{gpu}: expert layers are not measured on a full grid")
    tokens = grid.columns.to_numpy()
    arrays = {
        "moe_layers": np.array(grid.index.to_list(), dtype=np.int32),
        "moe_tokens": tokens.astype(np.int32),
        "moe_us": grid.to_numpy(dtype=np.float32),
    }
    about = {
        "rows": len(table),
        "layers": sorted(table["model"].unique()),
        "tokens": span(tokens),
        "kernels": sorted(table["kernel"].unique()),
    }
    return arrays, about


def _rows_of(path: Path, gpu: str, dtype: str) -> pd.DataFrame:
    """Return the attention rows of a GPU with heads of 128 and no stored context."""
    table = pd.read_csv(path)
    wanted = (
        (table["gpu"] == SOURCE_KEYS[gpu])
        & (table["kv_dtype"] == dtype)
        & (table["head_dim"] == 128)
    )
    return table[wanted]


def _layouts(table: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return the distinct head layouts in order, and the index of each row's layout."""
    heads = table[["num_q_heads", "num_kv_heads"]].to_numpy()
    layouts, index = np.unique(heads, axis=0, return_inverse=True)
    return layouts, index.ravel()


def fill_gaps(efficiency: np.ndarray, tokens: np.ndarray) -> int:
    """Fill missing cells in place, log-log along the token counts; return how many there were."""
    missing = np.isnan(efficiency)
    position = np.log(tokens)
    for row, gaps in zip(efficiency, missing, strict=True):
        if gaps.any():
            row[gaps] = np.exp(np.interp(position[gaps], position[~gaps], np.log(row[~gaps])))
    return int(missing.sum())


def span(values: np.ndarray) -> list[int]:
    """Return the smallest and the greatest value."""
    return [int(values.min()), int(values.max())]
