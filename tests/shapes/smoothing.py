"""S10: prefills one after the other, between decodes, instead of all together.

Published: vLLM pull request 33743, gemma-3-27b, 16 simultaneous requests of 1024 + 350 tokens; the
GPU is not named, and gemma's sliding window is not modelled. Stand-in: qwen2.5-32b on one H200.
The baseline takes all prompts in one step (budget 16384); the smoothed run has a budget of 1024
tokens a step.
"""

from pathlib import Path

from tests.shapes.common import Line, burst, percent, run

REQUESTS = [(1024, 350)] * 16
COST = {"kind": "table", "gpu": "h200", "model": "qwen2.5-32b"}
BUDGETS = (16384, 1024)


def lines(folder: Path) -> list[Line]:
    """Compare TTFT and TPOT of both."""
    together, apart = (
        run(
            burst(REQUESTS),
            {"kind": "vllm-v1", "max_num_batched_tokens": budget},
            COST,
            measure={"percentiles": [50]},
        )
        for budget in BUDGETS
    )
    ttft = [result.requests["ttft_s"] * 1e3 for result in (together, apart)]
    tpot = [result.metrics["mean_tpot_ms"] for result in (together, apart)]
    pairs = {
        "TTFT, mean": (3975, 2634, ttft[0].mean(), ttft[1].mean()),
        "TTFT, slowest (published: p99)": (4219, 4610, ttft[0].max(), ttft[1].max()),
        "TPOT, mean": (46.97, 51.78, tpot[0], tpot[1]),
    }
    result = []
    for what, (before, after, ours, smoothed) in pairs.items():
        told = f"{before} -> {after} ms ({percent(after / before)})"
        shown = f"{ours:.0f} -> {smoothed:.0f} ms ({percent(smoothed / ours)})"
        same_sign = (after > before) is bool(smoothed > ours)
        result.append(Line(f"{what}, 16 requests of 1024 + 350", told, shown, "order", same_sign))
    spread = (ttft[0].max() - ttft[0].min()) / ttft[0].mean()
    shown = f"all within {spread:.1%} of the mean"
    what = "first tokens of the baseline"
    result.append(Line(what, "all together (p50 = p99)", shown, "order", bool(spread < 0.02)))
    half = ttft[1].mean() / ttft[1].max()
    told = "a half and more (average of k/n): 0.57"
    holds = bool(0.4 < half < 0.7)
    result.append(Line("mean over slowest TTFT, smoothed", told, f"{half:.2f}", "order", holds))
    return result
