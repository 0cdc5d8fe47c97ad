"""Read the layer times of LLMServingSim (measured inside vLLM) into an operator profile."""

from pathlib import Path
from typing import Any

import cost_tables
import numpy as np
import pandas as pd

from simulator.cost.gpus import GPUS
from simulator.cost.layers import elementwise_bytes, linear_shapes
from simulator.cost.models import MODELS
from simulator.cost.operators import roofline_s
from simulator.cost.profile_file import encode_profile

SOURCE = "LLMServingSim 5daddb2, layers timed inside vLLM 0.19.0"
GPU_KEYS = ("rtxpro6000", "rtx4090")
MODEL_KEYS = {
    "Llama-3.1-8B": "llama-3.1-8b",
    "Qwen3-32B": "qwen3-32b",
    "Qwen3-30B-A3B-Instruct-2507": "qwen3-30b-a3b",
}
PEER = "l40s"
"""Whose all-reduce over PCIe stands in."""
HOT_LIMIT = 0.95
"""Greatest fraction of the peak bandwidth that reading weights from memory is believed to reach."""
PREFILL_TILE = 64
"""Queries in one tile of FlashAttention-2 on these GPUs; see docs/cost-model.md."""


def build(kernels: Path, gpu: str) -> bytes:
    """Return the profile file of one of `GPU_KEYS`; `kernels` holds the folders of the tables."""
    directory = kernels / "llmservingsim"
    layers = _rows_of(directory / "vllm_dense_layers.csv.gz", gpu)
    rows = _rows_of(directory / "vllm_per_sequence_layers.csv.gz", gpu)
    attention = _rows_of(directory / "vllm_attention_mixed.csv.gz", gpu)
    experts = _rows_of(directory / "vllm_moe.csv.gz", gpu)
    tables = {
        "linear layers": read_linears(layers, rows, gpu),
        "elementwise": read_elementwise(layers),
        "decode attention": read_decode(attention),
        "prefill attention": read_prefill(attention),
        "sampler": read_sampler(rows),
        "all-reduce": cost_tables.read_all_reduce(kernels / "aiconfigurator", PEER),
    }
    if len(experts):
        tables["expert layers"] = read_experts(experts)
    record = GPUS[gpu]
    metadata: dict[str, Any] = {
        "gpu": gpu,
        "source": SOURCE,
        "source_key": gpu,
        "licence": "MIT (all-reduce: Apache-2.0)",
        "attribution": "Copyright the LLMServingSim authors; all-reduce: copyright NVIDIA "
        "CORPORATION & AFFILIATES; measurements rearranged by the batchlab authors",
        "dtype": cost_tables.BFLOAT16,
        "peaks": {"tflops": record.bf16_tflops, "hbm_gb_per_s": record.hbm_gb_per_s},
        "cold_hbm_fraction": 0.95,
        "serial_us_per_token": _serial_us(attention),
        "prefill_tile": PREFILL_TILE,
        "max_sampled": int(rows["num_seqs"].max()),
        "how_made": "linear layers stored as roofline time over measured time, capped at "
        f"{HOT_LIMIT} of the bandwidth where memory-bound, held beyond the last count; prompts "
        "longer than the longest chunk follow from that chunk behind a stored context",
        "all_reduce_notes": [f"all-reduce of {PEER} over PCIe stands for {gpu}"],
        "tables": {name: about for name, (_, about) in tables.items()},
    }
    arrays = {name: array for part, _ in tables.values() for name, array in part.items()}
    return encode_profile(arrays, metadata)


def read_linears(
    layers: pd.DataFrame, rows: pd.DataFrame, gpu: str
) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return shapes, token counts and efficiencies of the linear layers and the output head."""
    names = {"qkv_proj": "qkv", "o_proj": "o", "gate_up_proj": "gate_up", "down_proj": "down"}
    parts = []
    for (model, tp, layer), group in layers.groupby(["model", "tp_size", "layer"]):
        if layer in names:
            shape = linear_shapes(MODELS[MODEL_KEYS[model]], tp)[names[layer]]
            parts.append(_shaped(group, shape, "num_tokens"))
    for (model, tp), group in rows[rows["layer"] == "lm_head"].groupby(["model", "tp_size"]):
        architecture = MODELS[MODEL_KEYS[model]]
        shape = (architecture.vocabulary_size // tp, architecture.hidden_size)
        parts.append(_shaped(group, shape, "num_seqs"))
    table = pd.concat(parts)
    grid = table.pivot_table(index=["n", "k"], columns="m", values="time_us", sort=True)
    shapes = np.array(grid.index.to_list(), dtype=np.float64)
    tokens = grid.columns.to_numpy(dtype=np.float64)
    flops, bandwidth = GPUS[gpu].bf16_tflops * 1e12, GPUS[gpu].hbm_gb_per_s * 1e9
    shortest = roofline_s(tokens, shapes[:, :1], shapes[:, 1:], flops, bandwidth)
    efficiency = shortest * 1e6 / grid.to_numpy(dtype=np.float64)
    computing = 2.0 * tokens * shapes[:, :1] * shapes[:, 1:] / flops
    hot = (computing < shortest) & (efficiency > HOT_LIMIT)
    efficiency[hot] = HOT_LIMIT
    filled = cost_tables.fill_gaps(efficiency, tokens)
    arrays = {
        "gemm_shapes": shapes.astype(np.int32),
        "gemm_tokens": tokens.astype(np.int32),
        "gemm_efficiency": efficiency.astype(np.float32),
    }
    about = {
        "rows": len(table),
        "shapes": len(shapes),
        "interpolated_gaps": filled,
        "capped_from_cache": int(hot.sum()),
        "tokens": cost_tables.span(tokens),
    }
    return arrays, about


def read_elementwise(layers: pd.DataFrame) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return norms, rotary embedding and activation over the bytes they move: median per bin."""
    kernels = {"layernorm": 0, "rotary_emb": 2, "act_fn": 3}
    table = layers[layers["layer"].isin(kernels)].copy()
    per_token = [
        elementwise_bytes(MODELS[MODEL_KEYS[model]], tp)[kernels[layer]]
        for model, tp, layer in zip(table["model"], table["tp_size"], table["layer"], strict=True)
    ]
    table["bytes"] = np.array(per_token) * table["num_tokens"]
    table["bin"] = np.round(2 * np.log2(table["bytes"])) / 2
    times = np.maximum.accumulate(table.groupby("bin")["time_us"].median().to_numpy())
    sizes = 2.0 ** np.unique(table["bin"])
    arrays = {
        "elementwise_bytes": sizes.astype(np.float32),
        "elementwise_us": times.astype(np.float32),
    }
    return arrays, {"rows": len(table), "bytes": cost_tables.span(sizes)}


def read_decode(attention: pd.DataFrame) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the decode attention by layout, batch and context."""
    table = attention[attention["prefill_chunk_tokens"] == 0]
    grids = {
        layout: rows.pivot_table(
            index="decode_seqs", columns="decode_kv_tokens_per_seq", values="time_us"
        )
        for layout, rows in table.groupby(["num_q_heads", "num_kv_heads"])
    }
    first = next(iter(grids.values()))
    batches, contexts = first.index.to_numpy(), first.columns.to_numpy()
    arrays = {
        "decode_layouts": np.array(list(grids), dtype=np.int32),
        "decode_batches": batches.astype(np.int32),
        "decode_contexts": contexts.astype(np.int32),
        "decode_us": np.stack([grid.to_numpy(dtype=np.float32) for grid in grids.values()]),
    }
    about = {
        "rows": len(table),
        "layouts": len(grids),
        "batches": cost_tables.span(batches),
        "contexts": cost_tables.span(contexts),
    }
    return arrays, about


def read_prefill(attention: pd.DataFrame) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the attention of whole prompts.

    A prompt of L tokens, longer than the longest chunk c, takes the time of that chunk behind
    p = L - c stored tokens, times L² / (c (c + 2 p)), the ratio of their work.
    """
    alone = attention[attention["decode_seqs"] == 0]
    longest = int(alone["prefill_chunk_tokens"].max())
    past = alone["prefill_past_kv_tokens"]
    table = alone[(past == 0) | (alone["prefill_chunk_tokens"] == longest)].copy()
    past = table["prefill_past_kv_tokens"].to_numpy(dtype=np.float64)
    chunk = table["prefill_chunk_tokens"].to_numpy(dtype=np.float64)
    table["length"] = (chunk + past).astype(int)
    table["whole_us"] = table["time_us"] * (chunk + past) ** 2 / (chunk * (chunk + 2 * past))
    grid = table.pivot_table(
        index=["num_q_heads", "num_kv_heads"], columns="length", values="whole_us"
    )
    lengths = grid.columns.to_numpy()
    arrays = {
        "prefill_layouts": np.array(grid.index.to_list(), dtype=np.int32),
        "prefill_tokens": lengths.astype(np.int32),
        "prefill_us": grid.to_numpy(dtype=np.float32),
    }
    about = {
        "rows": len(table),
        "layouts": len(grid),
        "tokens": cost_tables.span(lengths),
        "longest_chunk": longest,
    }
    return arrays, about


def read_sampler(rows: pd.DataFrame) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the sampler of Llama-3.1-8B by rows."""
    wanted = (rows["layer"] == "sampler") & (rows["model"] == "Llama-3.1-8B")
    times = rows[wanted & (rows["tp_size"] == 1)].set_index("num_seqs")["time_us"].sort_index()
    arrays = {
        "sampler_rows": times.index.to_numpy(dtype=np.int32),
        "sampler_us": times.to_numpy(dtype=np.float32),
    }
    return arrays, {"rows": len(times), "sequences": cost_tables.span(times.index.to_numpy())}


def read_experts(experts: pd.DataFrame) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Return the expert layer as if every token found experts that no other token uses."""
    model = MODELS["qwen3-30b-a3b"]
    used = np.minimum(experts["num_tokens"] * model.num_active_experts, model.num_experts)
    times = experts[experts["activated_experts"] == used].set_index("num_tokens")["time_us"]
    times = times.sort_index()
    layer = [
        model.hidden_size,
        model.ffn_size,
        model.num_experts,
        model.num_active_experts,
        1,
    ]
    arrays = {
        "moe_layers": np.array([layer], dtype=np.int32),
        "moe_tokens": times.index.to_numpy(dtype=np.int32),
        "moe_us": times.to_numpy(dtype=np.float32)[None, :],
    }
    about = {
        "rows": len(times),
        "layers": [model.key],
        "tokens": cost_tables.span(times.index.to_numpy()),
    }
    return arrays, about


def _rows_of(path: Path, gpu: str) -> pd.DataFrame:
    """Return the rows of a GPU, with the head layout of the model on each GPU."""
    table = pd.read_csv(path)
    table = table[table["gpu"] == gpu].copy()
    heads = [
        MODELS[MODEL_KEYS[model]].heads(tp)
        for model, tp in zip(table["model"], table["tp_size"], strict=True)
    ]
    table["num_q_heads"] = [query for query, _ in heads]
    table["num_kv_heads"] = [kv for _, kv in heads]
    return table


def _shaped(group: pd.DataFrame, shape: tuple[int, int], count: str) -> pd.DataFrame:
    """Return shape, rows of the input and time of one linear layer."""
    return pd.DataFrame(
        {"n": shape[0], "k": shape[1], "m": group[count], "time_us": group["time_us"]}
    )


def _serial_us(attention: pd.DataFrame) -> float:
    """Return the time per attended token of chunks too short to do anything but walk."""
    alone = attention[attention["decode_seqs"] == 0]
    floor = alone.groupby(["num_q_heads", "num_kv_heads"])["time_us"].transform("min")
    chunk, past = alone["prefill_chunk_tokens"], alone["prefill_past_kv_tokens"]
    short = (chunk <= PREFILL_TILE) & (past >= 2048)
    return round(float(((alone["time_us"] - floor) / (chunk + past))[short].median()), 5)
