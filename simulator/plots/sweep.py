"""Figures over the runs of a sweep: latency and goodput against rate, Pareto front.

They take the table of runs (`runs.parquet`): a row a point and seed, with parameters and metrics.
Points are means over the seeds, bands 95 % intervals.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray

from simulator.errors import UserError
from simulator.experiments.paired import VARIANT, parameters, plain, with_variant
from simulator.plots import add_legend, line_style, new_axes, new_figure, positive, style, tidy
from simulator.plots import marker as mark
from simulator.stats import mean_interval

if TYPE_CHECKING:
    import pandas as pd

TOKENS_PER_USER = "tokens_per_s_per_user"
"""Axis of a Pareto front: 1000 / median of `norm_ms`, the speed that half of the requests get."""

_TITLES = {
    "request_goodput": "Goodput (requests/s)",
    "slo_attainment": "SLO attainment (fraction)",
    "request_throughput": "Throughput (requests/s)",
    "output_throughput": "Output token throughput (tokens/s)",
    "busy_fraction": "GPU busy (fraction)",
    "mean_batch_size": "Mean requests in a step",
    "max_wait_ms": "Longest wait (ms)",
    "max_batch_size": "Largest batch (requests)",
    "request_rate": "Offered rate (requests/s)",
    TOKENS_PER_USER: "Output tokens/s per user (median request)",
}


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
        x, y = rows["output_throughput"].to_numpy(float), positive(rows[latency].to_numpy(float))
        ax.plot(x, y, marker=mark(number), label=str(policy), **line_style(number))
        for rate, left, bottom in zip(rows["request_rate"], x, y, strict=True):
            ax.annotate(f"{rate:g}", (left, bottom), (4, 4), textcoords="offset points", fontsize=7)
    ax.set_yscale("log")
    ax.set_xlabel("Output token throughput (tokens/s)")
    ax.set_ylabel(metric_label(latency))
    ax.set_title("Labels: offered requests/s", fontsize=8, loc="right")
    add_legend(ax)
    return ax


def metric_label(key: str) -> str:
    """Return the axis label of a metric or parameter.

    Examples
    --------
    >>> metric_label("p99_ttft_ms"), metric_label("request_goodput")
    ('P99 TTFT (ms)', 'Goodput (requests/s)')
    """
    parts = key.split("_")
    if key in _TITLES or len(parts) != 3 or parts[2] != "ms":
        return _TITLES.get(key, key)
    statistic, name, unit = parts
    name = {"itl": "TBT", "e2el": "E2E", "norm": "latency per token"}.get(name, name.upper())
    return f"{statistic.capitalize()} {name} ({unit})"


def against_rate(
    frame: "pd.DataFrame",
    metric: str = "p99_ttft_ms",
    ax: Axes | None = None,
    *,
    objective: float | None = None,
    x: str = "request_rate",
) -> Axes:
    """Draw a metric against the offered rate, one line a policy, a band over the seeds.

    Latencies stand on a logarithmic axis, which cannot show zeros; a line of zeros says so in the
    legend. The attainment has lines at 0.9 and 0.99.

    Parameters
    ----------
    frame : pandas.DataFrame
        Table of runs.
    metric : str
        Such as `p99_ttft_ms`, `p99_itl_ms`, `request_goodput`, `slo_attainment`.
    ax : matplotlib.axes.Axes, optional
    objective : float, optional
        Drawn as a line, in the unit of the metric.
    x : str
        Column of the horizontal axis.
    """
    check_columns(frame, metric, x)
    ax = ax or new_axes()
    for number, (name, rows) in enumerate(with_variant(frame, [x]).groupby(VARIANT, sort=False)):
        points = means(rows, [x], metric).sort_values(x)
        places = points[x].to_numpy(float)
        mean, low, high = (points[c].to_numpy(float) for c in ("mean", "low", "high"))
        label = str(name)
        if metric.endswith("_ms"):
            label += ": 0" if (mean == 0).all() else ""
            mean = np.where(mean > 0, mean, np.nan)
            low, high = positive(low), positive(high)
        look = line_style(number)
        ax.plot(places, mean, marker=mark(number), markersize=5, label=label, **look)
        if np.isfinite(low).any() and np.isfinite(mean).any():
            ax.fill_between(places, low, high, color=look["color"], alpha=0.2, linewidth=0)
    if metric == "slo_attainment":
        for level in (0.9, 0.99):
            ax.axhline(level, color="0.4", linewidth=0.8, linestyle=":")
    if objective is not None:
        ax.axhline(objective, color="black", linewidth=1, linestyle="--", label="objective")
    if metric.endswith("_ms"):
        ax.set_yscale("log")
        tidy(ax.yaxis)
    else:
        ax.set_ylim(bottom=0)
    ax.set_xlabel(metric_label(x))
    ax.set_ylabel(metric_label(metric))
    add_legend(ax)
    return ax


def pareto(
    frame: "pd.DataFrame",
    latency: str = "p99_ttft_ms",
    ax: Axes | None = None,
    *,
    throughput: str = "output_throughput",
    num_gpus: int = 1,
) -> Axes:
    """Draw throughput against latency, a marker a point, and the front that no point beats.

    Parameters
    ----------
    frame : pandas.DataFrame
        Table of runs.
    latency : str
        A latency (lower is better), or `tokens_per_s_per_user` (higher is better).
    ax : matplotlib.axes.Axes, optional
    throughput : str
        Metric of the vertical axis.
    num_gpus : int
        GPUs of a point; the throughput is divided by it.

    Notes
    -----
    Points on the front are labelled with the parameters in which the points of a policy differ.
    """
    source = {TOKENS_PER_USER: "median_norm_ms"}.get(latency, latency)
    check_columns(frame, source, throughput)
    ax = ax or new_axes()
    axes = parameters(frame)
    x = means(frame, axes, source)
    x["y"] = means(frame, axes, throughput)["mean"].to_numpy(float) / num_gpus
    x["x"] = 1e3 / x["mean"] if latency == TOKENS_PER_USER else positive(x["mean"].to_numpy(float))
    points = x.dropna(subset=["x", "y"])
    groups = points.groupby("policy", sort=False) if "policy" in points else [("points", points)]
    for number, (policy, rows) in enumerate(groups):
        look = {"color": line_style(number)["color"], "marker": mark(number)}
        ax.plot(rows["x"], rows["y"], linestyle="none", label=str(policy), markersize=5, **look)
    best = points.loc[_front(points["x"], points["y"], higher=latency == TOKENS_PER_USER)]
    best = best.sort_values("x")
    ax.plot(best["x"], best["y"], color="black", linewidth=1, zorder=1, label="front")
    told = [axis for axis in axes if axis != "policy"]
    _label_points(ax, best, points, told)
    ax.set_xscale("log")
    tidy(ax.xaxis)
    ax.set_ylim(bottom=0)
    ax.set_xlabel(metric_label(latency))
    per_gpu = " per GPU" if num_gpus > 1 else ""
    ax.set_ylabel(metric_label(throughput).replace(" (", f"{per_gpu} ("))
    if told:
        ax.set_title(f"Labels: {', '.join(told)}", fontsize=8, loc="right")
    add_legend(ax)
    return ax


def _label_points(
    ax: Axes, best: "pd.DataFrame", points: "pd.DataFrame", told: Sequence[str]
) -> None:
    """Write parameters beside the best points, one of those that lie on top of each other."""
    span = float(np.ptp(np.log(points["x"].to_numpy(float)))) if len(points) else 0.0
    top = float(points["y"].max()) if len(points) else 0.0
    last: tuple[float, float] | None = None
    for row in best.to_dict("records"):
        here = float(np.log(float(row["x"]))), float(row["y"])
        if last and here[0] - last[0] < 0.08 * span and abs(here[1] - last[1]) < 0.05 * top:
            continue
        last = here
        text = ", ".join(plain(row[axis]) for axis in told if row[axis] == row[axis])
        ax.annotate(text, (row["x"], row["y"]), (5, -9), textcoords="offset points", fontsize=7)


def _front(x: "pd.Series[float]", y: "pd.Series[float]", *, higher: bool) -> NDArray[np.bool_]:
    """Return which points no other one beats in both directions."""
    cost = (-x if higher else x).to_numpy(float)
    gain = y.to_numpy(float)
    beaten = [
        np.any((cost <= c) & (gain >= g) & ((cost < c) | (gain > g)))
        for c, g in zip(cost, gain, strict=True)
    ]
    return ~np.array(beaten, bool)


def overview(frame: "pd.DataFrame", title: str = "") -> Figure:
    """Draw what a sweep over rates is looked at for on one page; return the figure.

    P99 TTFT and TBT, goodput (throughput if there are no objectives) and the Pareto front.

    Parameters
    ----------
    frame : pandas.DataFrame
        Table of runs with a column `request_rate`.
    title : str
        Heading of the page.
    """
    with style():
        figure = new_figure(10.0, 7.0)
        axes = figure.subplots(2, 2)
    has_goal = "request_goodput" in frame and frame["request_goodput"].notna().any()
    against_rate(frame, "p99_ttft_ms", axes[0, 0])
    against_rate(frame, "p99_itl_ms", axes[0, 1])
    against_rate(frame, "request_goodput" if has_goal else "request_throughput", axes[1, 0])
    pareto(frame, "p99_e2el_ms", axes[1, 1])
    figure.suptitle(title)
    return figure


def means(frame: "pd.DataFrame", keys: Sequence[str], metric: str) -> "pd.DataFrame":
    """Return mean and 95 % interval over the seeds of a metric at every point."""
    import pandas as pd

    rows = []
    groups = frame.groupby(list(keys), sort=False, dropna=False) if keys else [((), frame)]
    for at, group in groups:
        sample = pd.to_numeric(group[metric]).dropna().to_numpy(float)
        mean, low, high = mean_interval(sample)
        rows.append([*at, mean, low, high])
    found = pd.DataFrame(rows, columns=[*keys, "mean", "low", "high"])
    return found.astype(dict.fromkeys(("mean", "low", "high"), float))


def check_columns(frame: "pd.DataFrame", *names: str) -> None:
    """Check that a table of runs has what a figure needs.

    Raises
    ------
    UserError
        Naming the first column that is missing.
    """
    for name in names:
        if name not in frame:
            raise UserError(f"{name!r}: the table of runs has no such column")
