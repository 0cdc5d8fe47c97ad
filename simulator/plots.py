"""Figures. Every function takes an `ax` (None: a new one), draws into it and returns it.

Lines differ in dash pattern and marker as well as colour, so that they can be told apart in print.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from simulator.cost import TableSpec
from simulator.errors import UserError
from simulator.metrics import measured_window
from simulator.stats import Floats, overlap
from simulator.utilisation import use_of_steps

if TYPE_CHECKING:
    import pandas as pd

    from simulator.result import Result

STYLE: dict[str, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": "medium",
    "figure.constrained_layout.use": True,
    "figure.dpi": 100,
    "font.size": 9,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "savefig.dpi": 150,
    "svg.hashsalt": "batchlab",
}
"""Settings of all figures."""

LATENCIES = {
    "ttft": ("Time to first token (ms)", "ttft_s"),
    "tbt": ("Time between tokens (ms)", ""),
    "e2e": ("End-to-end latency (ms)", "e2e_s"),
    "queue": ("Queueing delay (ms)", "queue_s"),
}
"""Latency name to axis label and column of the requests table."""

TIMELINES = {
    "batch_size": "Requests in the step",
    "num_waiting": "Requests waiting",
    "kv_usage": "KV blocks used (fraction)",
    "utilisation": "GPU busy (fraction)",
}
"""Quantity over time to axis label."""

GPU_TIMELINES = {
    "mfu": "Peak FLOP/s reached (fraction)",
    "bandwidth": "Memory bandwidth used (fraction)",
}
"""The same for what only a GPU as the cost model has."""

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


@contextmanager
def style() -> Iterator[None]:
    """Apply the settings of all figures for a while."""
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]  # keys are checked by matplotlib
        yield


def new_axes(width: float = 6.0, height: float = 3.6) -> Axes:
    """Return empty axes on a figure of their own, in inches; no window is opened."""
    with style():
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        return figure.add_subplot()


def line_style(number: int) -> dict[str, Any]:
    """Return colour and dash pattern of the n-th line."""
    return {
        "color": _COLOURS[number % len(_COLOURS)],
        "linestyle": _DASHES[number % len(_DASHES)],
    }


def latency_cdf(
    results: "Sequence[Result]",
    latency: str = "ttft",
    ax: Axes | None = None,
    labels: Sequence[str] = (),
) -> Axes:
    """Draw the cumulative distribution of a latency, one line a result.

    Parameters
    ----------
    results : sequence of Result
    latency : {"ttft", "tbt", "e2e", "queue"}
    ax : matplotlib.axes.Axes, optional
    labels : sequence of str
        Names of the lines; policy names if empty.
    """
    label, column = _choose(LATENCIES, latency)
    ax = ax or new_axes()
    for number, (name, result) in enumerate(_named(results, labels)):
        values, counts = _samples(result, column)
        if not len(values):
            continue
        legend = f"{name} (n = {int(counts.sum()):,})"
        zeros = counts[values <= 0].sum() / counts.sum()
        if zeros:
            legend += f", {zeros:.0%} are 0"
        look = line_style(number)
        _thin(ax.ecdf(_positive(values * 1e3), weights=counts, label=legend, **look))
    ax.set_xscale("log")
    ax.set_xlabel(label)
    ax.set_ylabel("Fraction of tokens" if latency == "tbt" else "Fraction of requests")
    ax.set_ylim(0, 1.01)
    _legend(ax)
    return ax


def timeline(
    results: "Sequence[Result]",
    what: str = "batch_size",
    ax: Axes | None = None,
    labels: Sequence[str] = (),
    bins: int = 200,
) -> Axes:
    """Draw a quantity over time, averaged over equal intervals, one line a result.

    Parameters
    ----------
    results : sequence of Result
    what : {"batch_size", "num_waiting", "kv_usage", "utilisation", "mfu", "bandwidth"}
        The last two need a GPU as the cost model.
    ax : matplotlib.axes.Axes, optional
    labels : sequence of str
        Names of the lines; policy names if empty.
    bins : int
        Number of intervals.
    """
    offered = TIMELINES | GPU_TIMELINES
    label, _ = _choose({key: (text, key) for key, text in offered.items()}, what)
    ax = ax or new_axes()
    for number, (name, result) in enumerate(_named(results, labels)):
        edges, values = binned(result, what, bins)
        ax.stairs(values, edges, label=name, baseline=None, **line_style(number))
    ax.set_xlabel("Time (s)")
    ax.set_ylabel(label)
    ax.set_ylim(bottom=0)
    _legend(ax)
    return ax


def overview(results: "Sequence[Result]", labels: Sequence[str], title: str) -> Figure:
    """Draw all quantities over time below each other; return the figure."""
    names = list(TIMELINES)
    if results and all(isinstance(result.spec.cost, TableSpec) for result in results):
        names += GPU_TIMELINES
    with style():
        figure = Figure(figsize=(7.0, 2.0 * len(names)), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(len(names), sharex=True)
    for ax, what in zip(axes, names, strict=True):
        timeline(results, what, ax, labels)
        ax.label_outer()
        if ax is not axes[0] and ax.get_legend() is not None:
            ax.get_legend().remove()
    axes[0].set_title(title)
    return figure


def save(drawing: Axes | Figure, path: Path) -> None:
    """Write a figure to a file; the ending says which format.

    Files of equal figures are equal: no date is written into them.
    """
    figure = drawing.figure if isinstance(drawing, Axes) else drawing
    assert isinstance(figure, Figure)
    metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    with style():
        figure.savefig(path, metadata=metadata.get(path.suffix.removeprefix(".")))


def throughput_latency(frame: "pd.DataFrame", latency: str, ax: Axes | None = None) -> Axes:
    """Draw a latency against the throughput reached, one line a policy, one point a rate.

    Parameters
    ----------
    frame : pandas.DataFrame
        Columns `policy`, `request_rate` (asked, per s), `output_throughput` and the latency.
    latency : str
        Metric key such as `p99_ttft_ms`.
    ax : matplotlib.axes.Axes, optional
    """
    ax = ax or new_axes()
    for number, (policy, rows) in enumerate(frame.groupby("policy", sort=False)):
        marker = _MARKERS[number % len(_MARKERS)]
        x, y = rows["output_throughput"].to_numpy(float), _positive(rows[latency].to_numpy(float))
        ax.plot(x, y, marker=marker, label=str(policy), **line_style(number))
        for rate, left, bottom in zip(rows["request_rate"], x, y, strict=True):
            ax.annotate(f"{rate:g}", (left, bottom), (4, 4), textcoords="offset points", fontsize=7)
    ax.set_yscale("log")
    ax.set_xlabel("Output token throughput (tokens/s)")
    ax.set_ylabel(metric_label(latency))
    ax.set_title("Labels: offered requests/s", fontsize=8, loc="right")
    _legend(ax)
    return ax


def metric_label(key: str) -> str:
    """Return the axis label of a latency metric.

    Examples
    --------
    >>> metric_label("p99_ttft_ms")
    'P99 TTFT (ms)'
    """
    statistic, name, unit = key.split("_")
    name = {"itl": "TBT", "e2el": "E2E"}.get(name, name.upper())
    return f"{statistic.capitalize()} {name} ({unit})"


def binned(result: "Result", what: str, bins: int) -> tuple[Floats, Floats]:
    """Return interval edges in seconds and the time average of a quantity in each interval."""
    window = measured_window(result.tables, result.spec.measure)
    edges = np.linspace(window.start, window.end, bins + 1)
    if not window.length:
        return edges, np.zeros(bins)
    steps = result.tables["steps"]
    start, end, held, decodes, chunks = (
        steps[name].astype(np.float64)
        for name in ("start_s", "end_s", "kv_block_s", "decode_rows", "prefill_chunks")
    )
    width = np.diff(edges)
    if what == "num_waiting":
        return edges, _per(_waiting(result, edges), width)
    if what == "utilisation":
        share = np.full(len(start), 1 / result.spec.engine.num_replicas)
        return edges, _per(_integrate(start, end, share, edges), width)
    if what in GPU_TIMELINES:
        shares = use_of_steps(result.spec, result.tables["steps"])
        if shares is None:
            raise UserError(f"{what}: the cost model {result.spec.cost.kind!r} has no GPU")
        share = shares[what == "bandwidth"] / result.spec.engine.num_replicas
        return edges, _per(_integrate(start, end, share, edges), width)
    if what == "kv_usage":
        total = (result.num_blocks or np.nan) * result.spec.engine.num_replicas
        share = held / (end - start) / total
        return edges, _per(_integrate(start, end, share, edges), width)
    busy = _integrate(start, end, np.ones(len(start)), edges)
    rows = _integrate(start, end, decodes + chunks, edges)
    return edges, _per(rows, busy)


def _per(amount: Floats, time: Floats) -> Floats:
    """Divide by a time; 0 where there is none."""
    quotient: Floats = np.divide(amount, time, out=np.zeros(len(time)), where=time > 0)
    return quotient


def _integrate(start: Floats, end: Floats, values: Floats, edges: Floats) -> Floats:
    """Integrate a quantity that holds `values` on [start, end) over each interval.

    The intervals of several replicas may overlap; their values add up.
    """
    times = np.concatenate([start, end])
    order = np.argsort(times, kind="stable")
    rates = np.cumsum(np.concatenate([values, -values])[order])
    times = times[order]
    if not len(times):
        return np.zeros(len(edges) - 1)
    area = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(times))])
    return np.diff(np.interp(edges, times, area))


def _waiting(result: "Result", edges: Floats) -> Floats:
    """Return the seconds of waiting for a first step in each interval, over all requests."""
    table = result.tables["requests"]
    arrival = table["arrival_s"].astype(float)
    until = np.where(
        np.isnan(table["first_scheduled_s"].astype(float)),
        table["finish_s"].astype(float),
        table["first_scheduled_s"].astype(float),
    )
    until = np.nan_to_num(until, nan=edges[-1])
    return np.array([overlap(arrival, until, low, high).sum() for low, high in pairwise(edges)])


def _samples(result: "Result", column: str) -> tuple[Floats, Floats]:
    if not column:
        gaps = result.tables["gaps"]
        return gaps["gap_s"].astype(float), gaps["count"].astype(float)
    values = result.requests[column].dropna().to_numpy(float)
    return values, np.ones(len(values))


def _thin(line: Line2D, most: int = 2000) -> None:
    """Keep at most that many points of a line, more than a figure can show."""
    x, y = (np.asarray(data) for data in line.get_data())
    if len(x) > most:
        kept = np.linspace(0, len(x) - 1, most).astype(int)
        line.set_data(x[kept], y[kept])


def _positive(values: Floats) -> Floats:
    """Lift zeros onto a logarithmic axis, to a thousandth of a millisecond."""
    return np.maximum(values, 1e-3)


def _named(results: "Sequence[Result]", labels: Sequence[str]) -> "list[tuple[str, Result]]":
    names = list(labels) or [result.spec.policy_kind for result in results]
    return list(zip(names, results, strict=True))


def _choose(table: dict[str, tuple[str, str]], name: str) -> tuple[str, str]:
    if name not in table:
        raise UserError(f"{name!r}: expected one of {', '.join(table)}")
    return table[name]


def _legend(ax: Axes) -> None:
    if ax.get_legend_handles_labels()[0]:
        ax.legend(fontsize=8, framealpha=0.7)
