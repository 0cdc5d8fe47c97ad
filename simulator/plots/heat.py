"""Heat map of a metric over two parameters of a sweep, with the contour of an objective."""

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle

from simulator.experiments.paired import difference, higher_is_better, plain
from simulator.plots import new_axes
from simulator.plots.sweep import check_columns, means, metric_label
from simulator.stats import Floats

if TYPE_CHECKING:
    import pandas as pd


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
    place = {
        (column, row): (i, j) for i, column in enumerate(columns) for j, row in enumerate(rows)
    }
    values = np.full((len(rows), len(columns)), np.nan)
    for a, b, mean in zip(cells[x], cells[y], cells["mean"], strict=True):
        i, j = place[float(a), float(b)]
        values[j, i] = mean
    _draw_cells(ax, values, logarithmic=metric.endswith("_ms"))
    unsure = _unsettled(frame, cells, metric, (x, y), objective)
    for at in unsure:
        _patch(ax, place[at], hatch="//", edgecolor="0.7", linewidth=0)
    if objective is not None:
        _contour(ax, values, objective)
    elif len(cells):
        _patch(ax, place[_best(cells, metric, (x, y))], edgecolor="black", linewidth=2)
    ax.set_xticks(range(len(columns)), [plain(value) for value in columns])
    ax.set_yticks(range(len(rows)), [plain(value) for value in rows])
    ax.grid(False)
    ax.set_xlabel(metric_label(x))
    ax.set_ylabel(metric_label(y))
    ax.set_title(_heat_title(metric, objective, unsure=bool(unsure)), fontsize=9, loc="left")
    return ax


def _draw_cells(ax: Axes, values: Floats, *, logarithmic: bool) -> None:
    """Draw a coloured cell with its number for every value."""
    known = values[np.isfinite(values)]
    wide = logarithmic and len(known) > 0 and known.min() > 0 and known.max() > 20 * known.min()
    norm = "log" if wide else "linear"
    image = ax.imshow(values, origin="lower", aspect="auto", cmap="cividis_r", norm=norm)
    shades = np.ma.filled(image.norm(np.nan_to_num(values, nan=known.min(initial=1.0))), 0.0)
    for row, column in np.ndindex(*values.shape):
        number, dark = float(values[row, column]), shades[row, column] > 0.5
        text = plain(float(f"{number:.3g}")) if np.isfinite(number) else "n/a"
        colour = "white" if dark else "black"
        ax.text(column, row, text, ha="center", va="center", fontsize=8, color=colour)


def _patch(ax: Axes, at: tuple[int, int], **look: Any) -> None:
    """Draw over a cell."""
    ax.add_patch(Rectangle((at[0] - 0.5, at[1] - 0.5), 1, 1, fill=False, **look))


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
    lines = []
    for row, column in np.argwhere((above[:, 1:] != above[:, :-1]) & known[:, 1:] & known[:, :-1]):
        lines.append(([column + 0.5] * 2, [row - 0.5, row + 0.5]))
    for row, column in np.argwhere((above[1:] != above[:-1]) & known[1:] & known[:-1]):
        lines.append(([column - 0.5, column + 0.5], [row + 0.5] * 2))
    for x, y in lines:
        ax.plot(x, y, color="black", linewidth=2.5)


def _best(cells: "pd.DataFrame", metric: str, axes: tuple[str, str]) -> tuple[float, float]:
    """Return the parameters of the best cell."""
    sign = -1 if higher_is_better(metric) else 1
    cost = np.nan_to_num(sign * cells["mean"].to_numpy(float), nan=np.inf)
    row = int(np.argmin(cost))
    x, y = (float(cells[axis].iloc[row]) for axis in axes)
    return x, y


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
        return _cells(chosen, axes)
    best = _best(cells, metric, axes)
    at = {
        cell: frame[(frame[x] == cell[0]) & (frame[y] == cell[1])] for cell in _cells(cells, axes)
    }
    found = []
    for cell, rows in at.items():
        _, low, high = difference(rows, at[best], metric, relative=False)
        if cell != best and low is not None and high is not None and low <= 0 <= high:
            found.append(cell)
    return found


def _cells(cells: "pd.DataFrame", axes: tuple[str, str]) -> list[tuple[float, float]]:
    """Return the parameters of all cells."""
    x, y = (cells[axis].to_numpy(float).tolist() for axis in axes)
    return list(zip(x, y, strict=True))
