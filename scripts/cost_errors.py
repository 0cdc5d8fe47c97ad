"""Print the tables of errors in docs/cost-model.md.

Usage: python scripts/cost_errors.py KERNELS_DIR

KERNELS_DIR holds the folders `aiconfigurator`, `frontier` and `llmservingsim`.
"""

import argparse
from pathlib import Path

import cost_layers
import pandas as pd

from simulator.calibrate import CalibrationReport, calibrate
from simulator.calibrate.errors import hold_out
from simulator.calibrate.rows import read_timings
from simulator.cost import StepWork, load_profile, table_cost
from simulator.cost.gpus import GPUS
from simulator.cost.models import MODELS

TABLES = {
    "a100": ("a100_sxm", "bfloat16"),
    "h100": ("h100_sxm", "bfloat16"),
    "h200": ("h200_sxm", "bfloat16"),
    "b200": ("b200_sxm", "bfloat16"),
    "l40s": ("l40s", "bfloat16"),
}


def held_out_report(kernels: Path, gpu: str, dtype: str) -> CalibrationReport:
    """Calibrate a GPU from the tables of AIConfigurator."""
    key, _ = TABLES[gpu]
    names = (f"gemm_{key}", "attention_decode", "attention_prefill", "collectives")
    paths = [kernels / "aiconfigurator" / f"{name}.csv.gz" for name in names]
    return calibrate(paths, gpu, dtype=dtype)  # type: ignore[arg-type]


def print_held_out(kernels: Path) -> None:
    """Print errors of rows held out, by GPU, operator and split."""
    cells = {}
    for gpu in TABLES:
        for dtype in ("bfloat16", "fp8"):
            if dtype == "fp8" and gpu == "a100":
                continue
            frame = held_out_report(kernels, gpu, dtype).frame()
            cells[f"{gpu} {dtype}"] = {
                f"{row.operator}, {row.split}": f"{row.mape:.1%} / {row.p95:.0%} / {row.bias:+.1%}"
                for row in frame.dropna().itertuples()
            }
    print(pd.DataFrame(cells).fillna("-").T.to_markdown())


def print_behind_context(kernels: Path) -> None:
    """Print errors of prompt chunks behind a stored context (Frontier, H800)."""
    table = pd.read_csv(kernels / "frontier" / "attention_chunk_past.csv.gz")
    table = table[(table["gpu"] == "h800") & (table["phase"] == "prefill")]
    table = table[table["batch_seqs"] == 1]
    own = read_timings(
        [kernels / "aiconfigurator" / f"{name}.csv.gz" for name in ("gemm_h100_sxm",)]
        + [kernels / "aiconfigurator" / "attention_decode.csv.gz"],
        GPUS["h100"],
        "bfloat16",
    ).frames
    names = {
        "num_q_heads_per_gpu": "q_heads",
        "num_kv_heads_per_gpu": "kv_heads",
        "chunk_tokens": "tokens",
        "past_kv_tokens": "past",
        "attn_us": "time_us",
    }
    for heads, rows in table.rename(columns=names).groupby("q_heads"):
        frames = {**own, "prefill": rows.assign(head_size=128)}
        for held in hold_out(frames, GPUS["h100"], "bfloat16", 0):
            if held.split == "behind context":
                print(f"H800, {heads} heads: {held.mape:.1%} / {held.p95:.0%} / {held.bias:+.1%}")


def print_layers(kernels: Path) -> None:
    """Print errors of attention on the GPUs that were measured inside vLLM."""
    for gpu in cost_layers.GPU_KEYS:
        path = kernels / "llmservingsim" / "vllm_attention_mixed.csv.gz"
        table = pd.read_csv(path)
        table = table[table["gpu"] == gpu]
        for (model, tp), rows in table.groupby(["model", "tp_size"]):
            print_layers_of(gpu, cost_layers.MODEL_KEYS[model], int(tp), rows)


def print_layers_of(gpu: str, model: str, tp: int, rows: pd.DataFrame) -> None:
    """Print the error of attention of one model by kind of step."""
    architecture = MODELS[model]
    if architecture.num_experts:  # only attention is compared, which the experts do not touch
        architecture = MODELS["qwen3-32b"]
        if architecture.heads(2) != MODELS[model].heads(tp):
            return
        cost = table_cost(gpu, "qwen3-32b", 2, engine_profile="ideal")
    else:
        cost = table_cost(gpu, model, tp, engine_profile="ideal")
    errors: dict[str, list[float]] = {"decode": [], "prefill": [], "mixed": []}
    for row in rows.itertuples():
        chunk, past = int(row.prefill_chunk_tokens), int(row.prefill_past_kv_tokens)
        decodes, context = int(row.decode_seqs), int(row.decode_kv_tokens_per_seq)
        chunks = ((chunk, past),) if chunk else ()
        parts = cost.breakdown(StepWork(decodes, decodes * context, chunks, 1, 1))
        predicted = parts["attention_decode"] + parts["attention_prefill"]
        kind = "mixed" if chunk and decodes else "prefill" if chunk else "decode"
        if kind == "mixed" and not (chunk >= 256 and decodes <= 128 and 128 <= context <= 4096):
            continue
        time_us = predicted / architecture.num_layers * 1e6
        errors[kind].append(time_us / row.time_us - 1)
    text = []
    for kind, values in errors.items():
        series = pd.Series(values)
        text.append(
            f"{kind} {len(series)} rows {series.abs().mean():.1%} / "
            f"{series.abs().quantile(0.95):.0%} / {series.mean():+.1%}"
        )
    print(f"{gpu} {model} tp {tp}: {'; '.join(text)}")


def main() -> None:
    """Read the argument and print all tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", type=Path, metavar="KERNELS_DIR")
    kernels = parser.parse_args().kernels
    print("Rows held out (MAPE / p95 / bias):\n")
    print_held_out(kernels)
    print("\nChunks behind a context:\n")
    print_behind_context(kernels)
    print("\nAttention inside vLLM, against all rows:\n")
    print_layers(kernels)
    print("\nProfiles:", ", ".join(f"{gpu} {load_profile(gpu).sha256[:12]}" for gpu in GPUS))


if __name__ == "__main__":
    main()
