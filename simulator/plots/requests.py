"""Figures of the requests of a run: when they came, what each did, where their time went."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import Patch

from simulator.lifelines import Span, spans_of
from simulator.plots import add_legend, line_style, named, new_axes, style
from simulator.stats import Floats

if TYPE_CHECKING:
    from simulator.result import Result

Spans = Mapping[int, Sequence[Span]]
"""Request number to what it did."""

_LOOKS: dict[str, dict[str, Any]] = {
    "queued": {"facecolor": "white", "edgecolor": "0.6"},
    "prefill": {"facecolor": "#1f4e79", "edgecolor": "black"},
    "decode": {"facecolor": "#9ecae1", "edgecolor": "black"},
    "decode beside prompts": {"facecolor": "#9ecae1", "edgecolor": "black", "hatch": "xxxx"},
    "batch": {"facecolor": "#9ecae1", "edgecolor": "black", "hatch": "||||"},
    "held": {"facecolor": "white", "edgecolor": "0.45", "hatch": "////"},
    "preempted": {"facecolor": "#fdae6b", "edgecolor": "black", "hatch": "\\\\\\\\"},
}
"""Phase to look, in the order in which bars are stacked."""


def arrivals(
    results: "Sequence[Result]", ax: Axes | None = None, labels: Sequence[str] = (), bins: int = 60
) -> Axes:
    """Draw how many requests came per second over time; return the axes.

    Parameters
    ----------
    results : sequence of Result
    ax : matplotlib.axes.Axes, optional
    labels : sequence of str
        Names of the lines, policy names if empty; the coefficient of variation of the times
        between arrivals stands beside them.
    bins : int
        Number of equal intervals.
    """
    ax = ax or new_axes()
    for number, (name, result) in enumerate(named(results, labels)):
        times = np.sort(result.tables["requests"]["arrival_s"].astype(np.float64))
        if not len(times) or times[-1] <= times[0]:
            continue
        counts, edges = np.histogram(times, bins)
        label = f"{name}: {(len(times) - 1) / np.ptp(times):.3g}/s{_cv(times)}"
        ax.stairs(counts / np.diff(edges), edges, label=label, baseline=None, **line_style(number))
    ax.set_xlabel("Time (s)")
    ax.set_ylabel("Requests per second")
    ax.set_ylim(bottom=0)
    add_legend(ax)
    return ax


def _cv(times: Floats) -> str:
    gaps = np.diff(times)
    return f", CV {gaps.std() / gaps.mean():.2f}" if len(gaps) > 1 else ""


def request_gantt(
    result: "Result", ax: Axes | None = None, spans: Spans | None = None, most: int = 60
) -> Axes:
    """Draw a row for every request: queued, prefill, decode, preempted, held; return the axes.

    Parameters
    ----------
    result : Result
    ax : matplotlib.axes.Axes, optional
    spans : mapping of int to sequence of Span, optional
        What every request did; taken from the requests table, which does not know preemptions,
        if left out.
    most : int
        Requests that are drawn, the first to arrive.

    See Also
    --------
    simulator.plots.request_timeline.request_timeline : every step, for worked examples.
    """
    spans = spans if spans is not None else spans_of(result.tables)
    order = sorted(spans, key=lambda rid: (spans[rid][0].start if spans[rid] else 0.0, rid))
    shown = order[:most]
    ax = ax or new_axes(7.0, 0.9 + 0.16 * max(len(shown), 5))
    for row, rid in enumerate(shown):
        for span in spans[rid]:
            height = 0.3 if span.phase == "queued" else 0.8
            look = _LOOKS[span.phase]
            ax.barh(row, span.end - span.start, height, span.start, linewidth=0.4, **look)
    ax.set_ylim(len(shown) - 0.4, -0.6)
    step = -(-len(shown) // 20) or 1
    ax.set_yticks(range(0, len(shown), step), [str(rid) for rid in shown[::step]])
    ax.grid(False, axis="y")
    ax.set_xlabel("Time (s)")
    first = f" (first {most} of {len(order)} to arrive)" if len(order) > most else ""
    ax.set_ylabel(f"Request number{first}")
    _explain(ax, [p for p in _LOOKS if any(s.phase == p for rid in shown for s in spans[rid])])
    return ax


def _explain(ax: Axes, phases: Sequence[str]) -> None:
    """Name the looks of phases above the figure."""
    handles = [Patch(label=phase, linewidth=0.4, **_LOOKS[phase]) for phase in phases]
    if handles:
        ax.legend(
            handles=handles, fontsize=8, ncols=4, frameon=False,
            loc="lower left", bbox_to_anchor=(0, 1.0), borderaxespad=0.2,
        )  # fmt: skip


def breakdown(
    results: "Sequence[Result]",
    ax: Axes | None = None,
    labels: Sequence[str] = (),
    spans: Sequence[Spans] = (),
) -> Axes:
    """Draw where the time of a finished request goes on average, one bar a result.

    Decoding is split by what the replica computed meanwhile: steps of decodes alone, or steps in
    which prompts, too, were computed and lengthened the wait for the next token.

    Parameters
    ----------
    results : sequence of Result
    ax : matplotlib.axes.Axes, optional
    labels : sequence of str
        Names of the bars; policy names if empty.
    spans : sequence of mapping, optional
        What every request did, one mapping a result; taken from the requests tables if left out.
    """
    rows = named(results, labels)
    ax = ax or new_axes(7.0, 1.2 + 0.4 * max(len(rows), 1))
    known = spans or [spans_of(result.tables) for _, result in rows]
    means = [mean_phases(result, s) for (_, result), s in zip(rows, known, strict=True)]
    left = np.zeros(len(rows))
    used = [phase for phase in _LOOKS if any(mean.get(phase) for mean in means)]
    for phase in used:
        width = np.array([mean.get(phase, 0.0) for mean in means])
        ax.barh(range(len(rows)), width, 0.6, left, linewidth=0.6, **_LOOKS[phase])
        left += width
    for row, total in enumerate(left):
        ax.annotate(f"{total:.3g} s", (total, row), (4, 0), textcoords="offset points",
                    va="center", fontsize=8)  # fmt: skip
    ax.set_yticks(range(len(rows)), [name for name, _ in rows])
    ax.set_ylim(len(rows) - 0.4, -0.6)
    ax.margins(x=0.12)
    ax.set_xlim(left=0)
    ax.grid(False, axis="y")
    ax.set_xlabel("Mean time of a finished request (s)")
    with style():
        _explain(ax, used)
    return ax


def mean_phases(result: "Result", spans: Spans) -> dict[str, float]:
    """Return the mean seconds a finished request spends in every phase.

    The phases add up to the mean time from arrival to departure.
    """
    table, steps = result.tables["requests"], result.tables["steps"]
    finished = table["request_id"][table["state"] == "finished"].tolist()
    replica = dict(zip(table["request_id"].tolist(), table["replica"].tolist(), strict=True))
    clocks = {number: _PromptClock(steps, number) for number in set(replica.values())}
    sums: dict[str, float] = {}
    for rid in finished:
        for phase, start, end in spans.get(rid, ()):
            beside = clocks[replica[rid]].between(start, end) if phase == "decode" else 0.0
            sums[phase] = sums.get(phase, 0.0) + end - start - beside
            sums["decode beside prompts"] = sums.get("decode beside prompts", 0.0) + beside
    return {phase: total / len(finished) for phase, total in sums.items() if total}


class _PromptClock:
    """How long a replica has computed prompts up to a time, seconds."""

    def __init__(self, steps: Mapping[str, np.ndarray], replica: int) -> None:
        chosen = (steps["replica"] == replica) & (steps["prefill_chunks"] > 0)
        start, end = (steps[name][chosen].astype(float) for name in ("start_s", "end_s"))
        self._times = np.column_stack([start, end]).ravel()
        self._sums = np.column_stack(
            [np.cumsum(end - start) - (end - start), np.cumsum(end - start)]
        )
        self._sums = self._sums.ravel()

    def between(self, start: float, end: float) -> float:
        """Return the time spent on steps with prompts from start to end."""
        if not len(self._times):
            return 0.0
        low, high = np.interp([start, end], self._times, self._sums)
        return float(high - low)
