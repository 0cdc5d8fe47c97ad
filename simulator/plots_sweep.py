"""Figures over the runs of a sweep: latency and goodput against rate, Pareto front, heat map.

They take the table of runs (`runs.parquet`): a row a point and seed, with parameters and metrics.
Points are means over the seeds, bands 95 % intervals.
"""

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from simulator.errors import UserError
from simulator.paired import VARIANT, difference, parameters, with_variant
from simulator.plots import add_legend, line_style, new_axes, positive, style
from simulator.plots import marker as mark
from simulator.stats import Floats, mean_interval

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

    Latencies stand on a logarithmic axis. The attainment has lines at 0.9 and 0.99.

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
        if metric.endswith("_ms"):
            mean, low, high = positive(mean), positive(low), positive(high)
        look = line_style(number)
        ax.plot(places, mean, marker=mark(number), markersize=5, label=str(name), **look)
        if np.isfinite(low).any():
            ax.fill_between(places, low, high, color=look["color"], alpha=0.2, linewidth=0)
    if metric == "slo_attainment":
        for level in (0.9, 0.99):
            ax.axhline(level, color="0.4", linewidth=0.8, linestyle=":")
    if objective is not None:
        ax.axhline(objective, color="black", linewidth=1, linestyle="--", label="objective")
    if metric.endswith("_ms"):
        ax.set_yscale("log")
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
    name = "policy" if "policy" in points else None
    for number, (policy, rows) in enumerate(points.groupby(name, sort=False) if name else []):
        look = {"color": line_style(number)["color"], "marker": mark(number)}
        ax.plot(rows["x"], rows["y"], linestyle="none", label=str(policy), markersize=5, **look)
    best = points[_front(points["x"], points["y"], higher=latency == TOKENS_PER_USER)]
    best = best.sort_values("x")
    ax.plot(best["x"], best["y"], color="black", linewidth=1, zorder=1, label="front")
    told = [axis for axis in axes if axis != "policy"]
    for row in best.to_dict("records"):
        text = ", ".join(f"{_plain(row[axis])}" for axis in told if row[axis] == row[axis])
        place = {"xytext": (5, -9), "textcoords": "offset points", "fontsize": 7}
        ax.annotate(text, (row["x"], row["y"]), **place)
    ax.set_xscale("log")
    ax.set_ylim(bottom=0)
    ax.set_xlabel(metric_label(latency))
    per_gpu = " per GPU" if num_gpus > 1 else ""
    ax.set_ylabel(metric_label(throughput).replace(" (", f"{per_gpu} ("))
    if told:
        ax.set_title(f"Labels: {', '.join(told)}", fontsize=8, loc="right")
    add_legend(ax)
    return ax


def _front(x: "pd.Series[float]", y: "pd.Series[float]", *, higher: bool) -> list[bool]:
    """Return which points no other one beats in both directions."""
    cost = (-x if higher else x).to_numpy(float)
    gain = y.to_numpy(float)
    return [
        not bool(
            np.any((cost <= c) & (gain >= g) & ((cost < c) | (gain > g)))
        )
        for c, g in zip(cost, gain, strict=True)
    ]


def heat_map(
    frame: "pd.DataFrame",
    metric: str = "p99_e2el_ms",
    ax: Axes | None = None,
    *,
    x: str = "max_wait_ms",
    y: str = "max_batch_size",
    objective: float | None = None,
) -> Axes:
    """Draw a metric over two parameters, with the contour of an objective.

    Parameters
    ----------
    frame : pandas.DataFrame
        Table of runs; one policy at one load.
    metric : str
        Lower is better for latencies, higher for the rest.
    ax : matplotlib.axes.Axes, optional
    x, y : str
        Parameters.
    objective : float, optional
        A thick line parts the cells that meet it from those that do not.

    Notes
    -----
    Cells are hatched where the seeds do not settle it: with an objective, where the 95 % interval
    holds it; without one, where the paired difference from the best cell (framed) may be 0.
    """
    check_columns(frame, metric, x, y)
    ax = ax or new_axes(6.0, 4.2)
    cells = means(frame, [x, y], metric)
    columns, rows = (sorted(frame[axis].astype(float).unique()) for axis in (x, y))
    values = np.full((len(rows), len(columns)), np.nan)
    for cell in cells.to_dict("records"):
        values[rows.index(float(cell[y])), columns.index(float(cell[x]))] = cell["mean"]
    spread = np.nanmax(values) / max(np.nanmin(values), 1e-9) if np.isfinite(values).any() else 1
    norm = "log" if metric.endswith("_ms") and spread > 20 else "linear"
    shown = np.where(values > 0, values, np.nan) if norm == "log" else values
    image = ax.imshow(shown, origin="lower", aspect="auto", cmap="cividis_r", norm=norm)
    for (row, column), value in np.ndenumerate(values):
        dark = np.isfinite(value) and image.norm(value) > 0.5
        text = _plain(float(f"{value:.3g}")) if np.isfinite(value) else "n/a"
        ax.text(column, row, text, ha="center", va="center", fontsize=8,
                color="white" if dark else "black")  # fmt: skip
    unsure = _unsettled(frame, cells, metric, (x, y), objective)
    for at in unsure:
        corner = (columns.index(at[0]) - 0.5, rows.index(at[1]) - 0.5)
        ax.add_patch(Rectangle(corner, 1, 1, fill=False, hatch="//", edgecolor="0.7", linewidth=0))
    if objective is not None:
        _contour(ax, values, objective)
    elif len(cells):
        at = _best(cells, metric)
        corner = (columns.index(float(at[x])) - 0.5, rows.index(float(at[y])) - 0.5)
        ax.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="black", linewidth=2))
    ax.set_xticks(range(len(columns)), [_plain(value) for value in columns])
    ax.set_yticks(range(len(rows)), [_plain(value) for value in rows])
    ax.grid(False)
    ax.set_xlabel(metric_label(x))
    ax.set_ylabel(metric_label(y))
    ax.set_title(_heat_title(metric, objective, unsure=bool(unsure)), fontsize=9, loc="left")
    return ax


def _heat_title(metric: str, objective: float | None, *, unsure: bool) -> str:
    parts = [metric_label(metric)]
    if objective is not None:
        parts.append(f"line: {objective:g}" + (", hatched: not settled" if unsure else ""))
    else:
        parts.append("frame: best" + (", hatched: not told from it" if unsure else ""))
    return "; ".join(parts)


def _contour(ax: Axes, values: Floats, objective: float) -> None:
    """Draw a line between the cells on either side of an objective."""
    above = values > objective
    known = np.isfinite(values)
    look = {"color": "black", "linewidth": 2.5}
    for (row, column), high in np.ndenumerate(above):
        if column + 1 < above.shape[1] and high != above[row, column + 1]:
            if known[row, column] and known[row, column + 1]:
                ax.plot([column + 0.5] * 2, [row - 0.5, row + 0.5], **look)
        if row + 1 < above.shape[0] and high != above[row + 1, column]:
            if known[row, column] and known[row + 1, column]:
                ax.plot([column - 0.5, column + 0.5], [row + 0.5] * 2, **look)


def _best(cells: "pd.DataFrame", metric: str) -> dict[Hashable, Any]:
    known = cells.dropna(subset=["mean"])
    chosen = known if len(known) else cells
    at = chosen["mean"].astype(float)
    index = at.argmin() if metric.endswith("_ms") else at.argmax()
    return dict(chosen.iloc[int(index)])


def _unsettled(
    frame: "pd.DataFrame",
    cells: "pd.DataFrame",
    metric: str,
    axes: tuple[str, str],
    objective: float | None,
) -> list[tuple[float, float]]:
    """Return the cells whose place the seeds do not settle."""
    x, y = axes
    if cells["low"].isna().all():
        return []
    if objective is not None:
        chosen = cells[(cells["low"] <= objective) & (cells["high"] >= objective)]
        return [(float(a), float(b)) for a, b in zip(chosen[x], chosen[y], strict=True)]
    best = _best(cells, metric)
    reference = frame[(frame[x] == best[x]) & (frame[y] == best[y])]
    found = []
    for (a, b), rows in frame.groupby([x, y], sort=False):
        if (a, b) != (best[x], best[y]):
            _, low, high = difference(rows, reference, metric, relative=False)
            if low is not None and high is not None and low <= 0 <= high:
                found.append((float(a), float(b)))
    return found


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
        figure = Figure(figsize=(10.0, 7.0), layout="constrained")
        FigureCanvasAgg(figure)
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
        rows.append([*(at if isinstance(at, tuple) else (at,)), mean, low, high])
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


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)
