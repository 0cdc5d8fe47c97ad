"""Figure of a validation: what was predicted over what was measured."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.plots import line_style, new_axes, style
from simulator.validation.levels import Outcome

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS = (
    ("tpot_mean_ms", "mean TPOT (ms)"),
    ("ttft_mean_ms", "mean TTFT (ms)"),
    ("req_throughput_rps", "throughput (requests/s)"),
)
"""Column and what the axes call it."""
MARKERS = "os^DvPX*"
MARK: dict[str, Any] = {"ms": 4.5, "mew": 0.8, "alpha": 0.8}
BAND = 0.10
"""Relative error that the shaded band stands for."""


def scatter(outcomes: Sequence[Outcome], ax: "Axes | None" = None) -> "Axes":
    """Draw predicted over measured, a panel for each of `PANELS`.

    Filled marks have a level that holds, hollow ones have none; the band is 10 %.

    Parameters
    ----------
    outcomes : sequence of Outcome
        The rows.
    ax : Axes, optional
        Axes of the first panel; the others are put beside it in its figure. By default a new
        figure.

    Returns
    -------
    Axes
        Those of the first panel.
    """
    first = new_axes(9.6, 3.5) if ax is None else ax
    figure = first.figure
    with style():
        grid = first.get_gridspec() if ax is not None else None
        if grid is None or grid.ncols < len(PANELS):
            first.set_subplotspec(figure.add_gridspec(1, len(PANELS))[0, 0])
            grid = first.get_gridspec()
        panels = [first, *(figure.add_subplot(grid[0, n]) for n in range(1, len(PANELS)))]
        for panel, (name, label) in zip(panels, PANELS, strict=True):
            _draw(panel, outcomes, name, label)
        handles, labels = panels[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels) or 1)
    return first


def _draw(ax: "Axes", outcomes: Sequence[Outcome], name: str, label: str) -> None:
    """Draw one metric."""
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
    ax.set(xlabel=f"measured {label}", ylabel=f"predicted {label}")
