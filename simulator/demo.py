"""The main job in one go: four ways to batch one trace, at three loads, side by side."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.observer import Observer
from simulator.result import MANIFEST, Result, dump_json, versions
from simulator.run import simulate
from simulator.spec import RunSpec

if TYPE_CHECKING:
    import pandas as pd

POLICIES: dict[str, dict[str, Any]] = {
    "none": {"kind": "none"},
    "static": {"kind": "static", "max_batch_size": 16},
    "window-pull": {"kind": "window-pull", "max_batch_size": 16, "max_wait_ms": 1000},
    "vllm-v1": {"kind": "vllm-v1"},
}
"""No batching, batches of what waits, batches that wait for company, continuous batching."""

LOADS: dict[float, int] = {0.2: 400, 2.0: 800, 16.0: 1600}
"""Offered requests per second, and how many requests are sent at that rate."""

GOODPUT = {"ttft_ms": 2000, "tpot_ms": 50}
"""Objectives of the demonstration, ms."""


def specs(seed: int = 0) -> dict[str, RunSpec]:
    """Return the runs of the demonstration by name."""
    return {
        f"{policy}@{rate:g}": RunSpec.from_dict(
            {
                "workload": {
                    "name": "azure-conv-2023",
                    "request_rate": rate,
                    "num_requests": number,
                },
                "policy": parameters,
                "measure": {"goodput": GOODPUT},
                "seed": seed,
            }
        )
        for rate, number in LOADS.items()
        for policy, parameters in POLICIES.items()
    }


def num_requests(runs: dict[str, RunSpec]) -> int:
    """Return how many requests all runs send together."""
    return len(runs) // len(LOADS) * sum(LOADS.values())


def run_all(runs: dict[str, RunSpec], observers: Sequence[Observer] = ()) -> dict[str, Result]:
    """Simulate all runs, one after the other."""
    return {name: simulate(spec, observers=observers) for name, spec in runs.items()}


def frame(results: dict[str, Result]) -> "pd.DataFrame":
    """Return one row a run: policy, offered rate and all metrics."""
    import pandas as pd

    return pd.DataFrame(
        {"run": name, "policy": result.spec.policy_kind} | result.metrics
        for name, result in results.items()
    )


def write(results: dict[str, Result], folder: Path) -> None:
    """Write all runs, their comparison and figures into an existing folder."""
    table = frame(results)
    dump_json(folder / MANIFEST, {"kind": "comparison", "versions": versions()})
    dump_json(folder / "summary.json", {name: result.metrics for name, result in results.items()})
    table.to_csv(folder / "summary.csv", index=False)
    for name, result in results.items():
        below = folder / "runs" / name
        below.mkdir(parents=True)
        result.write(below)
    _figures(results, table, folder / "figures")


def _figures(results: dict[str, Result], table: "pd.DataFrame", folder: Path) -> None:
    from simulator import plots
    from simulator.figures import window_of
    from simulator.plots import sweep as plots_sweep

    folder.mkdir()
    plots.save(plots_sweep.throughput_latency(table, "p99_ttft_ms"), folder / "throughput-ttft.png")
    plots.save(plots_sweep.throughput_latency(table, "p50_e2el_ms"), folder / "throughput-e2e.png")
    for rate in LOADS:
        chosen = {p: results[f"{p}@{rate:g}"] for p in POLICIES}
        runs, labels = list(chosen.values()), list(chosen)
        title = f"{rate:g} requests/s offered"
        for latency in ("ttft", "tbt"):
            ax = plots.latency_cdf(runs, latency, labels=labels)
            ax.set_title(title)
            plots.save(ax, folder / f"{latency}-cdf-{rate:g}.png")
        end = window_of(runs)
        figure = plots.overview(runs, labels, f"{title}, first {end:.0f} s")
        figure.axes[0].set_xlim(0, end)
        plots.save(figure, folder / f"timeline-{rate:g}.png")


def describe() -> str:
    """Return what the demonstration runs, in two lines."""
    amounts = ", ".join(f"{number} at {rate:g}/s" for rate, number in LOADS.items())
    limits = ", ".join(f"{key.removesuffix('_ms')} <= {v} ms" for key, v in GOODPUT.items())
    return (
        "azure-conv-2023 on llama-3.1-8b, one h100 (table, engine profile generic); latencies in "
        f"ms\nrequests: {amounts}; SLO: {limits}"
    )


FOOTNOTE = (
    "TTFT, TBT: p50 and p99 in ms. Static and window batches deliver all tokens when the batch "
    "ends,\nso their TTFT is the whole latency and their gaps are 0. n/a: too few samples."
)
"""What a reader of the table has to know."""
