"""Draw the examples of docs/figures.md.

python scripts/figure_examples.py [FOLDER]

Without a folder, docs/figures/examples of this checkout is brought up to date.
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from simulator import (
    Result,
    RunSpec,
    plots,
    plots_heat,
    plots_requests,
    plots_steps,
    plots_sweep,
    simulate,
)
from simulator.lifelines import Lifelines, Span, spans_of

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "figures" / "examples"

POLICIES: Mapping[str, dict[str, Any]] = {
    "static": {"kind": "static", "max_batch_size": 16},
    "sarathi": {"kind": "sarathi"},
    "vllm-v1": {"kind": "vllm-v1"},
}
RATES = (1, 2, 4, 8, 16)
SEEDS = 3
REQUESTS = 400


def spec(policy: dict[str, Any], rate: float, number: int = REQUESTS, **engine: int) -> RunSpec:
    """Return a run of the default preset on the default machine."""
    return RunSpec.from_dict(
        {
            "workload": {
                "name": "azure-conv-2023",
                "request_rate": rate,
                "num_requests": number,
            },
            "policy": policy,
            "engine": engine,
            "measure": {"goodput": {"ttft_ms": 500, "tpot_ms": 50}},
        }
    )


def loads() -> pd.DataFrame:
    """Return the runs of three policies over five rates."""
    return pd.DataFrame(
        {"policy": name, "request_rate": rate, "replication": seed}
        | simulate(spec(policy, rate), replication=seed).metrics
        for name, policy in POLICIES.items()
        for rate in RATES
        for seed in range(SEEDS)
    )


def grid() -> pd.DataFrame:
    """Return the runs of a window policy over wait time and batch size."""
    rows = []
    for wait in (0, 50, 200, 1000, 5000):
        for size in (1, 2, 4, 8, 16):
            policy = {"kind": "window-pull", "max_wait_ms": wait, "max_batch_size": size}
            for seed in range(SEEDS):
                metrics = simulate(spec(policy, 1), replication=seed).metrics
                head = {"policy": "window-pull", "max_wait_ms": wait, "max_batch_size": size}
                rows.append(head | {"replication": seed} | metrics)
    return pd.DataFrame(rows)


def watched(policy: dict[str, Any], rate: float, number: int, **engine: int) -> tuple[Result, Any]:
    """Run with someone who notes what every request does."""
    watch = Lifelines()
    result = simulate(spec(policy, rate, number, **engine), observers=[watch])
    return result, spans_of(result.tables, watch)


def preemptions(spans: Mapping[int, list[Span]]) -> list[float]:
    """Return when requests were preempted, seconds."""
    return sorted(s.start for row in spans.values() for s in row if s.phase == "preempted")


def examples() -> dict[str, Callable[[], Axes | Figure]]:
    """Return name to figure."""
    sweep, waits = loads(), grid()
    runs = [simulate(spec(policy, 4)) for policy in POLICIES.values()]
    names = list(POLICIES)
    busy, spans = watched(POLICIES["vllm-v1"], 16, 200, num_blocks=1500)
    batch, rows = watched({"kind": "static", "max_batch_size": 8}, 4, 30)
    return {
        "f1-latency": lambda: plots_sweep.against_rate(sweep, "p99_ttft_ms", objective=500),
        "f2-pareto": lambda: plots_sweep.pareto(sweep, plots_sweep.TOKENS_PER_USER),
        "f3-goodput": lambda: plots_sweep.against_rate(sweep, "request_goodput"),
        "f3-attainment": lambda: plots_sweep.against_rate(sweep, "slo_attainment"),
        "f4-cdf": lambda: plots.latency_cdf(runs, "e2e", labels=names),
        "f5-heat-map": lambda: plots_heat.heat_map(waits, "p99_e2el_ms", objective=10_000),
        "f6-steps": lambda: plots_steps.steps_figure(busy),
        "f7-capacity": lambda: plots_steps.capacity_figure(busy, preemptions(spans)),
        "f8-batches": lambda: plots_steps.batch_sizes(runs, labels=names),
        "f9-arrivals": lambda: plots_requests.arrivals(runs[:1], labels=["azure-conv-2023"]),
        "f10-gantt": lambda: plots_requests.request_gantt(batch, spans=rows),
        "f11-breakdown": lambda: plots_requests.breakdown(runs, labels=names),
    }


def main(folder: Path = FOLDER) -> None:
    """Draw all examples, in few colours: a quarter of the size."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in examples().items():
        path = folder / f"{name}.png"
        plots.save(draw(), path)
        with Image.open(path) as image:
            width = 640
            small = image.convert("RGB").resize((width, width * image.height // image.width))
        small.quantize(64, dither=Image.Dither.NONE).save(path, optimize=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
