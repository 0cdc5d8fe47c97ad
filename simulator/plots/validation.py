"""Figure of a validation: what was predicted over what was measured."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.plots import line_style, new_axes, style, tidy
from simulator.validation.levels import Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LABELS = {
    "tpot_mean_ms": "mean TPOT (ms)",
    "ttft_mean_ms": "mean TTFT (ms)",
    "req_throughput_rps": "throughput (requests/s)",
}
"""Column to what the axes call it."""
MARKERS = "os^DvPX*"
MARK: dict[str, Any] = {"ms": 4.0, "mew": 0.8}
BAND = 0.10
"""Relative error that the shaded band stands for."""


def scatter(
    outcomes: Sequence[Outcome], metric: str = "tpot_mean_ms", ax: "Axes | None" = None
) -> "Axes":
    """Draw predicted over measured of one metric.

    Filled marks have a level that holds, hollow ones have none; the band is 10 %.

    Parameters
    ----------
    outcomes : sequence of Outcome
        The rows; a kind of mark for each source.
    metric : str
        A key of `LABELS`.
    ax : Axes, optional
        Where to draw; by default on a new figure.

    Returns
    -------
    Axes
        With logarithmic scales.
    """
    with style():
        ax = new_axes(4.2, 3.8) if ax is None else ax
        _draw(ax, outcomes, metric)
    return ax


def panels(outcomes: Sequence[Outcome]) -> "Figure":
    """Return a figure with one `scatter` for each metric of `LABELS`, side by side."""
    with style():
        first = new_axes(2.9 * len(LABELS), 3.3)
        figure = first.figure.get_figure(root=True)
        assert figure is not None
        first.remove()
        for number, metric in enumerate(LABELS, 1):
            last = scatter(outcomes, metric, figure.add_subplot(1, len(LABELS), number))
        handles, labels = last.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels) or 1)
    return figure


def _draw(ax: "Axes", outcomes: Sequence[Outcome], name: str) -> None:
    low, high = np.inf, 0.0
    sources = list(dict.fromkeys(outcome.row.source_id for outcome in outcomes))
    for number, source in enumerate(sources):
        colour, marker = line_style(number)["color"], MARKERS[number % len(MARKERS)]
        for held in (True, False):
            points = [
                (getattr(one.row, name), one.prediction.values[name])
                for one in outcomes
                if one.row.source_id == source
                and one.error(name) is not None
                and one.prediction is not None
                and bool(one.checks) == held
            ]
            if points:
                measured, predicted = np.array(points).T
                low = min(low, measured.min(), predicted.min())
                high = max(high, measured.max(), predicted.max())
                fill = colour if held else "none"
                ax.plot(measured, predicted, marker, color=colour, mfc=fill, **MARK)
        ax.plot([], [], marker, color=colour, label=source, **MARK)
    if high:
        line = np.array([low / 1.3, high * 1.3])
        ax.plot(line, line, "-", color="0.4", linewidth=0.8)
        ax.fill_between(line, line * (1 - BAND), line * (1 + BAND), color="0.85", zorder=0)
        ax.set(xscale="log", yscale="log", xlim=line, ylim=line)
        tidy(ax.xaxis)
        tidy(ax.yaxis)
    ax.set(xlabel=f"measured {LABELS[name]}", ylabel=f"predicted {LABELS[name]}")
