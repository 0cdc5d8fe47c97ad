"""Which figures a run, a comparison or a sweep is looked at with, and what each shows."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from simulator.experiments.paired import is_load, parameters, plain
from simulator.lifelines import spans_of
from simulator.result import MANIFEST, Result, dump_json, versions
from simulator.saved import Saved, Spans

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Format = Literal["svg", "pdf", "png"]

SMALL = 60
"""Requests of a run that is small enough for a row a request."""


@dataclass(frozen=True)
class Drawing:
    """A figure that can be drawn.

    Attributes
    ----------
    key : str
        F1 to F11, as numbered in `docs/figures.md`.
    name : str
        Stem of its file.
    title, caption : str
    draw : callable
        Returns the axes or the figure.
    """

    key: str
    name: str
    title: str
    caption: str
    draw: "Callable[[], Axes | Figure]"


def drawings(saved: Saved) -> list[Drawing]:
    """Return the figures that apply, in the order of their keys."""
    found = [*_of_frame(saved)] if len(saved.frame) > 1 else []
    if saved.kind == "run":
        (name,) = saved.runs
        found += _of_run(saved.runs[name], saved.spans.get(name))
    else:
        for suffix, heading, runs in _by_load(saved):
            found += _of_runs(runs, suffix, heading, saved)
    return sorted(found, key=lambda drawing: int(drawing.key[1:]))


def write_figures(saved: Saved, folder: Path, ending: Format) -> list[Path]:
    """Draw all figures that apply into an existing folder; return the files."""
    from simulator import plots

    paths = []
    for drawing in drawings(saved):
        path = folder / f"{drawing.key.lower()}-{drawing.name}.{ending}"
        plots.save(drawing.draw(), path)
        paths.append(path)
    dump_json(folder / MANIFEST, {"kind": "figures", "versions": versions()})
    return paths


def _of_run(result: Result, watched: Spans | None) -> Iterator[Drawing]:
    from simulator.plots import requests as plots_requests
    from simulator.plots import steps as plots_steps

    spans = watched if watched is not None else spans_of(result.tables)
    preempted = sorted(s.start for row in spans.values() for s in row if s.phase == "preempted")
    yield from _cdfs([result], [result.spec.policy_kind], "", "")
    yield Drawing(
        "F6", "steps", "Requests and steps over time",
        "Above, averages over 200 equal intervals. Below, every step or run of equal decode steps "
        "at its number of tokens; steps with prompts take longer, and running requests wait.",
        lambda: plots_steps.steps_figure(result),
    )  # fmt: skip
    lost = result.metrics["num_preemptions"]
    marks = "" if preempted or not lost else f" {lost} preemptions, whose times were not kept."
    yield Drawing(
        "F7", "capacity", "KV cache and GPU over time",
        "Averages over 200 equal intervals. What is at its limit first, memory or time?" + marks,
        lambda: plots_steps.capacity_figure(result, preempted),
    )  # fmt: skip
    yield _batches([result], [result.spec.policy_kind], "", "")
    yield _arrivals(result, "", "")
    if len(spans) <= SMALL:
        yield Drawing(
            "F10", "gantt", "What every request did",
            "In order of arrival. Held: its tokens are computed, its batch is not.",
            lambda: plots_requests.request_gantt(result, spans=spans, most=SMALL),
        )  # fmt: skip
    yield _breakdown([result], [result.spec.policy_kind], [spans], "", "")


def _of_runs(runs: dict[str, Result], suffix: str, heading: str, saved: Saved) -> Iterator[Drawing]:
    from simulator import plots

    results = list(runs.values())
    kinds = [result.spec.policy_kind for result in results]
    names = kinds if len(set(kinds)) == len(kinds) else list(runs)
    yield from _cdfs(results, names, suffix, heading)
    end = window_of(results)

    def overview() -> "Figure":
        figure = plots.overview(results, names, f"First {end:.0f} s", bins=80)
        figure.axes[0].set_xlim(0, end)
        return figure

    yield Drawing(
        "F6", f"timeline{suffix}", f"Batch, queue, memory, GPU over time{heading}",
        "Averages over 80 equal intervals of each run.", overview,
    )  # fmt: skip
    yield _batches(results, names, suffix, heading)
    yield _arrivals(results[0], suffix, heading)
    spans = [saved.spans.get(name) or spans_of(result.tables) for name, result in runs.items()]
    yield _breakdown(results, names, spans, suffix, heading)


def window_of(runs: Sequence[Result]) -> float:
    """Return the end of the longest run, or twice the time of the last arrival, seconds.

    A run that is overloaded goes on for so long that it would hide the others.
    """
    last = max(float(run.tables["requests"]["arrival_s"].max()) for run in runs)
    return min(2 * last, max(float(run.tables["steps"]["end_s"].max()) for run in runs))


def _cdfs(
    results: Sequence[Result], names: Sequence[str], suffix: str, heading: str
) -> Iterator[Drawing]:
    from simulator import plots

    titles = {"ttft": "Time to first token", "tbt": "Time between tokens", "e2e": "End to end"}
    for latency, title in titles.items():
        unit = "tokens" if latency == "tbt" else "requests"
        yield Drawing(
            "F4", f"{latency}-cdf{suffix}", f"{title}{heading}",
            f"Fraction of all {unit} at or below a latency; logarithmic axis.",
            partial(plots.latency_cdf, results, latency, labels=names),
        )  # fmt: skip


def _batches(results: Sequence[Result], names: Sequence[str], suffix: str, heading: str) -> Drawing:
    from simulator.plots import steps as plots_steps

    return Drawing(
        "F8", f"batches{suffix}", f"Batch sizes{heading}",
        "Share of the busy time spent in steps of that many requests.",
        lambda: plots_steps.batch_sizes(results, labels=names),
    )  # fmt: skip


def _arrivals(result: Result, suffix: str, heading: str) -> Drawing:
    from simulator.plots import requests as plots_requests

    return Drawing(
        "F9", f"arrivals{suffix}", f"Arrivals{heading}",
        "Was the load what it was meant to be? CV: standard deviation over mean of the times "
        "between arrivals, 1 for a Poisson process.",
        lambda: plots_requests.arrivals([result], labels=["arrivals"]),
    )  # fmt: skip


def _breakdown(
    results: Sequence[Result],
    names: Sequence[str],
    spans: Sequence[Spans],
    suffix: str,
    heading: str,
) -> Drawing:
    from simulator.plots import requests as plots_requests

    return Drawing(
        "F11", f"breakdown{suffix}", f"Where the time of a request goes{heading}",
        "Mean over the finished requests. Decode beside prompts: its steps computed prompts, too.",
        lambda: plots_requests.breakdown(results, labels=names, spans=spans),
    )  # fmt: skip


def _by_load(saved: Saved) -> Iterator[tuple[str, str, dict[str, Result]]]:
    """Yield the runs of a comparison that meet the same load, with a suffix and a heading."""
    if not saved.runs:
        return
    loads = [key for key in parameters(saved.frame) if is_load(key)]
    groups: dict[tuple[str, ...], dict[str, Result]] = {}
    for row in saved.frame.to_dict("records"):
        at = tuple(plain(row[key]) for key in loads)
        groups.setdefault(at, {})[str(row["run"])] = saved.runs[str(row["run"])]
    for at, runs in groups.items():
        pairs = zip(loads, at, strict=True)
        words = [f"{v} requests/s" if k.endswith("request_rate") else f"{k}={v}" for k, v in pairs]
        yield "".join(f"-{value}" for value in at), "".join(f", {word}" for word in words), runs


def _of_frame(saved: Saved) -> Iterator[Drawing]:
    """Yield the figures over the runs of a sweep or comparison."""
    frame, goal = saved.frame, objectives(saved)
    if any(key.endswith("request_rate") for key in parameters(frame)):
        yield from _against_rate(frame, goal)
    yield from _paretos(saved)
    yield from _heat_maps(frame, goal)


def objectives(saved: Saved) -> dict[str, float]:
    """Return metric name to objective, for the latencies that have one at all points."""
    goodput = saved.specs[0].measure.goodput if saved.specs else None
    if goodput is None:
        return {}
    limits = goodput.model_dump(exclude_none=True)
    return {f"p99_{name}": limit for name, limit in limits.items()}


def _against_rate(frame: Any, goal: dict[str, float]) -> Iterator[Drawing]:
    from simulator.plots import sweep as plots_sweep

    said = "Mean over the seeds with a 95 % band; logarithmic axis."
    metrics = ["p50_ttft_ms", "p99_ttft_ms", "p99_itl_ms", "p99_tpot_ms", "p99_e2el_ms"]
    for metric in metrics:
        if metric in frame and frame[metric].notna().any():
            title = f"{plots_sweep.metric_label(metric).removesuffix(' (ms)')} against load"
            yield Drawing(
                "F1", metric.replace("_", "-"), title, said,
                partial(plots_sweep.against_rate, frame, metric, objective=goal.get(metric)),
            )  # fmt: skip
    if frame["slo_attainment"].notna().any():
        yield Drawing(
            "F3", "goodput", "Goodput against load",
            "Requests per second that met all objectives.",
            lambda: plots_sweep.against_rate(frame, "request_goodput"),
        )  # fmt: skip
        yield Drawing(
            "F3", "attainment", "SLO attainment against load",
            "Fraction of requests that met all objectives; dotted: 90 % and 99 %.",
            lambda: plots_sweep.against_rate(frame, "slo_attainment"),
        )  # fmt: skip


def _paretos(saved: Saved) -> Iterator[Drawing]:
    from simulator.plots import sweep as plots_sweep

    frame, gpus = saved.frame, num_gpus(saved)
    spread = frame["output_throughput"].max() / max(frame["output_throughput"].min(), 1e-9)
    if spread < 1.05:  # an open load below capacity: every point delivers what arrives
        return
    titles = {
        "p99_e2el_ms": "Throughput against P99 end-to-end latency",
        plots_sweep.TOKENS_PER_USER: "Throughput against speed for a user",
    }
    for metric, title in titles.items():
        source = {plots_sweep.TOKENS_PER_USER: "median_norm_ms"}.get(metric, metric)
        if source not in frame or not frame[source].notna().any():
            continue
        yield Drawing(
            "F2", metric.replace("_", "-"), title,
            "Means over the seeds. The line joins the points that no other point beats in both.",
            partial(plots_sweep.pareto, frame, metric, num_gpus=gpus),
        )  # fmt: skip


def num_gpus(saved: Saved) -> int:
    """Return the GPUs of a point; 1 if the points differ or there is no GPU."""
    counts = {
        spec.engine.num_replicas * getattr(spec.cost, "tp", 1) * getattr(spec.cost, "pp", 1)
        for spec in saved.specs
    }
    varied = {key.rsplit(".", 1)[-1] for key in parameters(saved.frame)} & {"num_replicas", "tp"}
    return counts.pop() if len(counts) == 1 and not varied else 1


def _tail(frame: Any, name: str) -> str:
    """Return the P99 of a latency, or its P50 where the runs are too short for a P99."""
    key = f"p99_{name}_ms"
    return key if key in frame and frame[key].notna().any() else f"p50_{name}_ms"


def _heat_maps(frame: Any, goal: dict[str, float]) -> Iterator[Drawing]:
    """Yield maps over two numeric parameters, one for every combination of the others."""
    from simulator.plots import heat as plots_heat
    from simulator.plots import sweep as plots_sweep

    keys = parameters(frame)
    numeric = [
        key for key in keys
        if frame[key].dtype.kind in "if" and frame[key].nunique() > 1 and not is_load(key)
    ]  # fmt: skip
    wanted = [key for key in ("max_wait_ms", "max_batch_size") if key in numeric]
    pair = [*wanted, *(key for key in numeric if key not in wanted)][:2]
    if len(pair) < 2:
        return
    x, y = pair
    rest = [key for key in keys if key not in pair and key not in ("run",)]
    rest = [key for key in rest if frame[key].nunique(dropna=False) > 1]
    groups = frame.groupby(rest, sort=False, dropna=False) if rest else [((), frame)]
    metrics = [_tail(frame, name) for name in ("ttft", "e2el")]
    for at, rows in groups:
        rows = rows.dropna(subset=pair)
        where = ", ".join(f"{key}={value}" for key, value in zip(rest, at, strict=True))
        if rows[x].nunique() < 2 or rows[y].nunique() < 2:
            continue
        chosen = [*metrics, *(["slo_attainment"] if goal else [])]
        for metric in chosen:
            if metric in rows and rows[metric].notna().any():
                limit = 0.9 if metric == "slo_attainment" else goal.get(metric)
                yield Drawing(
                    "F5", "-".join(["map", metric.replace("_", "-"), *map(str, at)]),
                    f"{plots_sweep.metric_label(metric)} over {x} and {y}"
                    + (f" ({where})" if where else ""),
                    "Means over the seeds. Hatched where the seeds do not settle it.",
                    partial(plots_heat.heat_map, rows, metric, x=x, y=y, objective=limit),
                )  # fmt: skip
