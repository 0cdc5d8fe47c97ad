"""Figure of theory against simulation."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from simulator.plots import line_style, new_axes


def deviations(rows: Sequence[Mapping[str, Any]], ax: Axes | None = None) -> Axes:
    """Draw how far each simulated mean is from theory, with its interval; return the axes.

    Parameters
    ----------
    rows : sequence of mapping
        As `simulator.theory.compare.compare_all` returns them.
    ax : matplotlib.axes.Axes, optional
        Where to draw.
    """
    ax = ax or new_axes(height=1.2 + 0.16 * len(rows))
    heights = np.arange(len(rows))
    found = np.array([row["deviation_percent"] for row in rows], float)
    halves = np.array([100 * row["half_width"] / abs(row["theory"]) for row in rows], float)
    inside = np.array([row["inside"] for row in rows], bool)
    for number, (chosen, label, marker) in enumerate(
        ((inside, "theory inside the 99.9 % interval", "o"), (~inside, "outside", "X"))
    ):
        if chosen.any():
            ax.errorbar(
                found[chosen],
                heights[chosen],
                xerr=halves[chosen],
                label=label,
                marker=marker,
                markersize=3,
                color=line_style(number)["color"],
                linestyle="none",
            )
    ax.axvline(0, color="black", linewidth=0.8)
    ax.set_yticks(heights, [f"{row['case']}, {row['policy']}: {row['quantity']}" for row in rows])
    ax.tick_params(axis="y", labelsize=6)
    ax.set_ylim(len(rows) - 0.5, -0.5)
    ax.set_xlabel("Simulated less theory (%)")
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2, fontsize=7)
    return ax
