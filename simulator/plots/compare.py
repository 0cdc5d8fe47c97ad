"""Figure of a comparison: relative differences of metrics with their intervals."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from simulator.compare import Difference, better_sign
from simulator.plots import line_style, marker, new_axes


def forest(
    differences: Mapping[str, Sequence[Difference]], first: str, ax: Axes | None = None
) -> Axes:
    """Draw the relative difference of every metric, with its interval, one colour a specification.

    A filled marker: the interval leaves out 0. A metric without relative differences is left out.

    Parameters
    ----------
    differences : dict
        Name of a specification to its differences from the first.
    first : str
        Name of the first.
    ax : matplotlib.axes.Axes, optional
    """
    groups = list(differences.items())
    drawn = {d.metric for _, found in groups for d in found if d.relative(d.low) is not None}
    metrics = [d.metric for d in groups[0][1] if d.metric in drawn]
    ax = ax or new_axes(6.5, 1.2 + 0.32 * len(metrics) * max(1, len(groups) * 0.6))
    offsets = np.linspace(-0.3, 0.3, len(groups)) if len(groups) > 1 else [0.0]
    for number, ((name, found), offset) in enumerate(zip(groups, offsets, strict=True)):
        color = line_style(number)["color"]
        for d in found:
            mean, low, high = (d.relative(value) for value in (d.mean, d.low, d.high))
            if mean is None or low is None or high is None:
                continue
            place = metrics.index(d.metric)
            clear = d.verdict not in ("not resolved", "equal")
            ax.errorbar(
                100 * mean, place + offset, xerr=[[100 * (mean - low)], [100 * (high - mean)]],
                marker=marker(number), color=color, capsize=2, linestyle="none", markersize=5,
                markerfacecolor=color if clear else "white",
            )  # fmt: skip
        ax.plot([], [], marker=marker(number), color=color, linestyle="none", label=name)
    ax.axvline(0, color="black", linewidth=0.8)
    hints = {1: " (more is better)", -1: " (less is better)", 0: ""}
    ax.set_yticks(range(len(metrics)), [m + hints[better_sign(m)] for m in metrics], fontsize=8)
    ax.set_ylim(len(metrics) - 0.5, -0.5)
    ax.set_xlabel(f"Difference from {first} (%)")
    ax.set_title("Filled: the interval leaves out 0", fontsize=8, loc="right")
    ax.legend(fontsize=8, framealpha=0.7)
    return ax
