"""S2 and S3: what small chunks cost, and from how many tokens on a step is efficient.

S2: Yi-34B on two A100 of 80 GB, time of a whole prefill in chunks relative to one pass, read from
a plot of the Sarathi-Serve paper (OSDI 2024). The prompt length is not printed in our notes; the
range over 4096, 8192 and 16384 tokens is shown. S3: linear layers (QKV, O, MLP) of one layer,
tokens per second relative to the best, worked out from the same kernel tables by others.
"""

from pathlib import Path

import numpy as np

from simulator.cost import MODELS, StepWork, load_profile
from simulator.cost.layers import linear_shapes
from simulator.cost.operators import gemm_s
from simulator.cost.table import TableCost
from tests.shapes.common import Line, machine, percent

PROMPTS = (4096, 8192, 16384)
CHUNKS = {
    512: ("at most about +25 %", 0.25),
    1024: ("+5 to +15 %", 0.15),
    2048: ("negligible", 0.02),
}
"""Chunk size to the published surcharge, and the largest one that this stands for."""

TOKENS = (32, 64, 128, 256, 512, 1024, 2048)
SATURATION = {
    ("a100", "llama-3.1-8b"): (0.16, 0.32, 0.55, 0.69, 0.85, 0.94, 0.99),
    ("a100", "llama-3.1-70b"): (0.16, 0.31, 0.58, 0.86, 0.89, 0.97, 0.98),
    ("h100", "llama-3.1-8b"): (0.10, 0.19, 0.38, 0.66, 0.94, 0.97, 0.98),
    ("l40s", "llama-3.1-8b"): (0.08, 0.17, 0.31, 0.57, 0.93, 1.00, 0.98),
}
LEVEL = 0.05
"""Largest difference from a published fraction of the best."""


def prefill_s(cost: TableCost, prompt: int, chunk: int) -> float:
    """Return the time of a prompt in chunks of equal size."""
    steps = [
        StepWork(chunks=((chunk, past),), num_sampled=int(past + chunk == prompt), num_rows=1)
        for past in range(0, prompt, chunk)
    ]
    return sum(cost.step_time(step) for step in steps)


def chunk_lines(folder: Path) -> list[Line]:
    """Compare the surcharge of chunks (S2)."""
    cost = machine(folder, "yi-34b", "a100", 2).cost()
    lines, means = [], []
    for chunk, (told, most) in CHUNKS.items():
        found = [prefill_s(cost, p, chunk) / prefill_s(cost, p, p) for p in PROMPTS]
        means.append(float(np.mean(found)))
        shown = " / ".join(map(percent, found))
        what = f"chunk {chunk}, prompts of 4096 / 8192 / 16384"
        inside = all(ratio - 1 <= most + 0.05 for ratio in found)
        lines.append(Line(what, told, shown, "level: at most 5 points more", inside))
    falls = means == sorted(means, reverse=True) and means[-1] > 1
    shown = ", ".join(map(percent, means))
    lines.append(Line("surcharge by chunk", "falls", shown, "order", falls))
    alone = [cost.step_time(StepWork(chunks=((n, 0),), num_rows=1)) for n in (256, 257)]
    ratio = alone[1] / alone[0]
    told = "up to about +33 %"
    lines.append(Line("257 tokens against 256", told, percent(ratio), "order", ratio > 1.1))
    return lines


def saturation(gpu: str, model: str) -> list[float]:
    """Return tokens per second relative to the best, at each of `TOKENS`."""
    tokens = np.array(TOKENS, float)
    profile = load_profile(gpu)
    shapes = linear_shapes(MODELS[model], 1).values()
    seconds = sum(gemm_s(profile, n, k, tokens) for n, k in shapes)
    # The best step that the tables know is longer than the longest one shown.
    longer = np.array([4096.0, 8192.0])
    slow = sum(gemm_s(profile, n, k, longer) for n, k in shapes)
    best = max((tokens / seconds).max(), (longer / slow).max())
    return [round(float(value), 2) for value in tokens / seconds / best]


def saturation_lines(folder: Path) -> list[Line]:
    """Compare where prefill saturates (S3)."""
    lines = []
    for (gpu, model), published in SATURATION.items():
        found = saturation(gpu, model)
        close = all(abs(a - b) <= LEVEL for a, b in zip(found, published, strict=True))
        told, shown = (" ".join(f"{v:.2f}" for v in values) for values in (published, found))
        what = f"{gpu}, {model}, 32 to 2048 tokens"
        lines.append(Line(what, told, shown, f"level: within {LEVEL}", close))
    return lines
