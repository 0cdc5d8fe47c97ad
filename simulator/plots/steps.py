"""Figures of the steps of a run: what ran when, KV cache held, sizes of batches."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulator.cost import TableSpec
from simulator.metrics import measured_window
from simulator.plots import (
    GPU_TIMELINES,
    add_legend,
    line_style,
    named,
    new_axes,
    new_figure,
    style,
    timeline,
)
from simulator.series import binned, integrate, per_time
from simulator.stats import Floats, overlap

if TYPE_CHECKING:
    from simulator.result import Result

MOST_STEPS = 800
"""Steps of one kind that are drawn; of more, every k-th."""

_STEP_LOOKS: dict[str, dict[str, Any]] = {
    "decode": {"marker": ".", "color": "#56B4E9", "markersize": 3},
    "prefill": {"marker": "^", "color": "#000000", "markersize": 4},
    "mixed": {"marker": "x", "color": "#D55E00", "markersize": 4},
}
_SHARES = {
    "utilisation": "GPU busy (fraction)",
    "mfu": "Peak FLOP/s (fraction)",
    "bandwidth": "Bandwidth (fraction)",
}
_COUNTS = {"running": "running", "num_waiting": "waiting", "batch_size": "in the step"}


def request_counts(result: "Result", ax: Axes | None = None, bins: int = 200) -> Axes:
    """Draw how many requests run, wait and are part of a step over time; return the axes.

    Parameters
    ----------
    result : Result
    ax : matplotlib.axes.Axes, optional
    bins : int
        Number of equal intervals over which is averaged (batch sizes: over its busy time).
    """
    ax = ax or new_axes()
    for number, (what, label) in enumerate(_COUNTS.items()):
        edges, values = binned(result, what, bins)
        ax.stairs(values, edges, label=label, baseline=None, **line_style(number))
    ax.set_xlabel("Time (s)")
    ax.set_ylabel("Requests (all replicas)")
    ax.set_ylim(bottom=0)
    _legend_above(ax)
    return ax


def step_tokens(result: "Result", ax: Axes | None = None) -> Axes:
    """Draw the tokens of every step, decodes, prompts and mixtures apart; return the axes.

    A step that holds prompts takes longer, so decodes that wait for it show as a gap.

    Parameters
    ----------
    result : Result
    ax : matplotlib.axes.Axes, optional
    """
    ax = ax or new_axes()
    steps = result.tables["steps"]
    start, end = (steps[name].astype(float) for name in ("start_s", "end_s"))
    decodes, chunks = (steps[name].astype(float) for name in ("decode_rows", "prefill_chunks"))
    tokens = decodes + steps["prefill_tokens"].astype(float)
    kinds = {
        "decode": (decodes > 0) & (chunks == 0),
        "prefill": (decodes == 0) & (chunks > 0),
        "mixed": (decodes > 0) & (chunks > 0),
    }
    for kind, chosen in kinds.items():
        rows = np.flatnonzero(chosen)
        every = -(-len(rows) // MOST_STEPS) or 1
        rows = rows[::every]
        look = _STEP_LOOKS[kind]
        label = f"{kind} (every {every}th)" if every > 1 else kind
        if len(rows):
            long = rows[end[rows] - start[rows] > 0.002 * (end.max() - start.min())]
            ax.hlines(tokens[long], start[long], end[long], color=look["color"], linewidth=1.5)
            ax.plot(start[rows], tokens[rows], linestyle="none", label=label, **look)
    ax.set_yscale("log")
    ax.set_xlabel("Time (s)")
    ax.set_ylabel("Tokens in the step")
    _legend_above(ax)
    return ax


def kv_blocks(
    result: "Result", ax: Axes | None = None, preempted: Sequence[float] = (), bins: int = 200
) -> Axes:
    """Draw the KV blocks that are held over time, what there is, and who had to give way.

    Parameters
    ----------
    result : Result
    ax : matplotlib.axes.Axes, optional
    preempted : sequence of float
        Times of preemptions, seconds; each is marked.
    bins : int
        Number of equal intervals over which is averaged.
    """
    ax = ax or new_axes()
    steps = result.tables["steps"]
    start, end, held = (steps[name].astype(float) for name in ("start_s", "end_s", "kv_block_s"))
    window = measured_window(result.tables, result.spec.measure)
    edges = np.linspace(window.start, window.end, bins + 1)
    length = np.where(end > start, end - start, 1.0)
    values = per_time(integrate(start, end, held / length, edges), np.diff(edges))
    ax.stairs(values, edges, label="held", baseline=None, **line_style(0))
    total = (result.num_blocks or 0) * result.spec.engine.num_replicas
    if total:
        ax.axhline(total, label=f"all {total:,}", **line_style(1))
    if len(preempted):
        label = f"preemption ({len(preempted)})"
        top = np.full(len(preempted), total or values.max())
        ax.plot(preempted, top, "kx", markersize=5, label=label, clip_on=False)
    ax.set_xlabel("Time (s)")
    ax.set_ylabel("KV blocks (all replicas)")
    ax.set_ylim(bottom=0)
    _legend_above(ax)
    return ax


def _legend_above(ax: Axes) -> None:
    """Name the lines where they hide nothing."""
    if ax.get_legend_handles_labels()[0]:
        ax.legend(fontsize=8, ncols=4, loc="lower left", bbox_to_anchor=(0, 1), borderaxespad=0.2)


def batch_sizes(
    results: "Sequence[Result]", ax: Axes | None = None, labels: Sequence[str] = ()
) -> Axes:
    """Draw how much of the busy time was spent in batches of which size; return the axes.

    Parameters
    ----------
    results : sequence of Result
    ax : matplotlib.axes.Axes, optional
    labels : sequence of str
        Names of the lines; policy names if empty.
    """
    ax = ax or new_axes()
    found = [(name, *_weighted_sizes(result)) for name, result in named(results, labels)]
    largest = max((int(sizes.max(initial=1)) for _, sizes, _ in found), default=1)
    width = -(-largest // 40)
    edges = np.arange(0.5, largest + width, width)
    for number, (name, sizes, weights) in enumerate(found):
        if weights.sum():
            share, _ = np.histogram(sizes, edges, weights=weights / weights.sum())
            ax.stairs(share, edges, label=name, **line_style(number))
    ax.set_xlabel("Requests in the step")
    ax.set_ylabel("Fraction of busy time")
    ax.set_ylim(bottom=0)
    add_legend(ax)
    return ax


def _weighted_sizes(result: "Result") -> tuple[Floats, Floats]:
    """Return the batch size of every step and how long it lasted inside the window."""
    steps = result.tables["steps"]
    window = measured_window(result.tables, result.spec.measure)
    start, end = (steps[name].astype(np.float64) for name in ("start_s", "end_s"))
    sizes = (steps["decode_rows"].astype(float)) + steps["prefill_chunks"].astype(float)
    return sizes, overlap(start, end, window.start, window.end)


def steps_figure(result: "Result") -> Figure:
    """Draw requests and tokens of the steps below each other; return the figure."""
    figure, axes = _panels(2)
    request_counts(result, axes[0])
    step_tokens(result, axes[1])
    axes[0].label_outer()
    return figure


def capacity_figure(result: "Result", preempted: Sequence[float] = ()) -> Figure:
    """Draw KV blocks, busy time and, of a GPU, its use below each other; return the figure."""
    shares = ["utilisation"]
    if isinstance(result.spec.cost, TableSpec):
        shares += GPU_TIMELINES
    figure, axes = _panels(1 + len(shares))
    kv_blocks(result, axes[0], preempted)
    for what, ax in zip(shares, axes[1:], strict=True):
        timeline([result], what, ax)
        ax.set_ylabel(_SHARES[what])
        ax.get_legend().remove()
    for ax in axes:
        ax.label_outer()
    return figure


def _panels(number: int) -> tuple[Figure, Any]:
    with style():
        figure = new_figure(7.0, 0.6 + 2.0 * number)
        return figure, figure.subplots(number, sharex=True)
