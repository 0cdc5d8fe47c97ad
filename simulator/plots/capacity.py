"""Figures of capacity: goodput, or attainment, against the request rate."""

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes

from simulator.experiments.grid import show
from simulator.plots import line_style, marker, new_axes

if TYPE_CHECKING:
    import pandas as pd

LABELS = {
    "request_goodput": "Goodput (requests/s that meet the SLOs)",
    "slo_attainment": "Requests that meet the SLOs (fraction)",
    "request_throughput": "Throughput (requests/s)",
}
"""Metric to axis label."""


def goodput_curves(
    curve: "pd.DataFrame",
    metric: str = "request_goodput",
    ax: Axes | None = None,
    limits: "pd.DataFrame | None" = None,
) -> Axes:
    """Draw a metric against the request rate, one line a variant, with 95 % intervals.

    Parameters
    ----------
    curve : pandas.DataFrame
        The table of probes of `simulator.capacity.curve_table`.
    metric : {"request_goodput", "slo_attainment", "request_throughput"}
        Throughput is drawn where a metric has no values, because no goodput was asked for.
    ax : matplotlib.axes.Axes, optional
    limits : pandas.DataFrame, optional
        The table of `simulator.capacity.capacity_table`; capacities are marked by vertical lines.
    """
    ax = ax or new_axes()
    if curve[metric].isna().all():
        metric = "request_throughput"
    names = variant_names(curve, "request_rate")
    ends: dict[str, float] = {}
    if limits is not None:
        found = limits["capacity"].to_numpy(float)
        ends = dict(zip(variant_names(limits, "status"), found, strict=True))
    for number, name in enumerate(dict.fromkeys(names)):
        rows = curve[[other == name for other in names]].sort_values("request_rate")
        x, y = rows["request_rate"].to_numpy(float), rows[metric].to_numpy(float)
        low, high = (rows[f"{metric}_ci_{end}"].to_numpy(float) for end in ("low", "high"))
        look = line_style(number)
        ax.errorbar(
            x, y, yerr=[y - low, high - y], marker=marker(number), markersize=4, capsize=2,
            label=name, **look,
        )  # fmt: skip
        if np.isfinite(ends.get(name, np.nan)):
            ax.axvline(ends[name], linewidth=0.8, alpha=0.7, **look)
    if metric != "slo_attainment":
        end = float(curve["request_rate"].max())
        ax.plot([0, end], [0, end], color="grey", linewidth=0.8, label="all requests")
    ax.set_xlabel("Offered load (requests/s)")
    ax.set_ylabel(LABELS[metric])
    ax.set_xlim(left=0)
    ax.set_ylim(bottom=0)
    if ends:
        ax.set_title("Vertical lines: capacity", fontsize=8, loc="right")
    ax.legend(fontsize=8, framealpha=0.7)
    return ax


def variant_names(frame: "pd.DataFrame", end: str) -> list[str]:
    """Return the name of the variant in each row: its policy, and the axes before column `end`."""
    columns = [str(name) for name in frame]
    axes = [name for name in columns[: columns.index(end)] if name != "policy"]
    return [
        "  ".join(
            [
                str(row["policy"]),
                *(f"{key}={show(row[key])}" for key in axes if row[key] == row[key]),
            ]
        )
        for row in frame.to_dict("records")
    ]
