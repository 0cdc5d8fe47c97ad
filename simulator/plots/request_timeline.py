"""What each request did in a short run: who waits, computes a prompt, decodes, is held, gives way.

For worked examples of a dozen requests; `simulator.plots` has the figures of long runs.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.patches import Patch

from policies.base import Decision, Trigger
from simulator.observer import Observer, StepRecord
from simulator.plots import new_axes, style
from simulator.request import Request, State


class Piece(NamedTuple):
    """The work of one request in one step.

    Attributes
    ----------
    rid : int
        Request number.
    start, end : float
        Begin and end of the step, seconds.
    tokens : int
        Tokens that the request computes.
    is_prompt : bool
        Whether they are known tokens of the request, and not its newest one.
    """

    rid: int
    start: float
    end: float
    tokens: int
    is_prompt: bool


class Schedule(Observer):
    """Keeps which request computed how many tokens in which step.

    To be handed to `simulate` together with ``stepper="reference"``, which shows every step.

    Attributes
    ----------
    requests : dict of int to Request
        All that arrived, by number.
    pieces : list of Piece
        In order of time.
    preemptions : list of (float, int)
        Time in seconds and number of each request that had to give way.

    Examples
    --------
    >>> from simulator import RunSpec, simulate
    >>> spec = RunSpec(
    ...     workload={"arrivals": 1, "prompt_tokens": 4, "output_tokens": 2, "num_requests": 1},
    ...     cost={"kind": "fixed", "step_ms": 500})
    >>> schedule = Schedule()
    >>> result = simulate(spec, observers=[schedule], stepper="reference")
    >>> [(piece.tokens, piece.is_prompt) for piece in schedule.pieces]
    [(4, True), (1, False)]
    """

    def __init__(self) -> None:
        self.requests: dict[int, Request] = {}
        self.pieces: list[Piece] = []
        self.preemptions: list[tuple[float, int]] = []
        self._planned: list[tuple[int, int, bool]] = []

    def on_submit(self, request: Request, now: float) -> None:
        """Take note of a request."""
        self.requests[request.id] = request

    def on_decision(
        self, now: float, trigger: Trigger, decision: Decision, work: list[tuple[int, int]]
    ) -> None:
        """Take note of the work of the step that follows."""
        self.preemptions += [(now, rid) for rid, _ in decision.preempt]
        if work:
            self._planned = [(r, n, not self.requests[r].is_decode) for r, n in work]

    def on_step(self, step: StepRecord) -> None:
        """Give the planned work its time."""
        self.pieces += [Piece(r, step.start, step.end, n, p) for r, n, p in self._planned]


_LOOKS: dict[str, dict[str, Any]] = {
    "prompt": {"facecolor": "#1f4e79", "edgecolor": "black"},
    "decode": {"facecolor": "#c6dbef", "edgecolor": "black"},
    "held for its batch": {"facecolor": "white", "edgecolor": "0.45", "hatch": "////"},
}
_MARKS: dict[str, dict[str, Any]] = {
    "arrives": {"marker": "|", "markersize": 12, "markeredgewidth": 1.6, "color": "black"},
    "preempted": {"marker": "x", "markersize": 8, "markeredgewidth": 2.0, "color": "black"},
    "rejected": {"marker": "X", "markersize": 8, "color": "black"},
    "leaves": {"marker": "<", "markersize": 5, "color": "black"},
}
_HEIGHT = 0.62


def name_of(rid: int) -> str:
    """Return the letter of a request: A, B, ... Z, then its number.

    Examples
    --------
    >>> name_of(0), name_of(30)
    ('A', '30')
    """
    return chr(ord("A") + rid) if rid < 26 else str(rid)


def request_timeline(
    schedule: Schedule,
    ax: Axes | None = None,
    *,
    unit: str = "s",
    names: Mapping[int, str] | None = None,
) -> Axes:
    """Draw one row a request: arrival, waiting, the tokens of each step, departure.

    Parameters
    ----------
    schedule : Schedule
        What a run with the reference stepper left behind.
    ax : matplotlib.axes.Axes, optional
    unit : {"s", "ms"}
        Unit of the time axis.
    names : mapping of int to str, optional
        Names of the requests; letters where there is none.
    """
    scale = {"s": 1.0, "ms": 1e3}[unit]
    rows = list(schedule.requests.values())
    names = names or {}
    if ax is None:
        ax = new_axes(6.4, 0.85 + 0.27 * max(len(rows), 3))
    shown: dict[str, None] = {}
    with style():
        for row, request in enumerate(rows):
            _draw_life(ax, row, request, schedule, scale, shown)
        for piece in schedule.pieces:
            kind = "prompt" if piece.is_prompt else "decode"
            row = list(schedule.requests).index(piece.rid)
            _bar(ax, row, piece.start * scale, piece.end * scale, kind, shown)
            ax.text(
                (piece.start + piece.end) / 2 * scale,
                row,
                str(piece.tokens),
                color="white" if piece.is_prompt else "black",
                fontsize=7,
                ha="center",
                va="center",
            )
        ax.set_yticks(range(len(rows)), [names.get(r.id, name_of(r.id)) for r in rows])
        ax.set_ylim(len(rows) - 0.4, -0.6)
        ax.set_xlim(left=0)
        ax.grid(False)
        ax.set_xlabel(f"Time ({unit})")
        ax.set_ylabel("Request")
        _add_legend(ax, shown)
    return ax


def _draw_life(
    ax: Axes,
    row: int,
    request: Request,
    schedule: Schedule,
    scale: float,
    shown: dict[str, None],
) -> None:
    """Draw all of a request but its work."""
    ends = [piece.end for piece in schedule.pieces]
    leaves = request.finish if request.finish is not None else max(ends, default=0.0)
    work = [piece.end for piece in schedule.pieces if piece.rid == request.id]
    ax.plot([request.arrival * scale, leaves * scale], [row, row], color="0.6", zorder=1)
    if work and leaves > max(work):
        _bar(ax, row, max(work) * scale, leaves * scale, "held for its batch", shown)
    _mark(ax, row, request.arrival * scale, "arrives", shown)
    for time in (time for time, rid in schedule.preemptions if rid == request.id):
        _mark(ax, row, time * scale, "preempted", shown)
    if request.state is State.REJECTED:
        _mark(ax, row, leaves * scale, "rejected", shown)
    elif request.state is State.FINISHED:
        _mark(ax, row, leaves * scale, "leaves", shown)


def _bar(ax: Axes, row: int, start: float, end: float, kind: str, shown: dict[str, None]) -> None:
    shown.setdefault(kind)
    look = _LOOKS[kind]
    ax.barh(row, end - start, _HEIGHT, start, linewidth=0.7, zorder=2, **look)


def _mark(ax: Axes, row: int, time: float, kind: str, shown: dict[str, None]) -> None:
    shown.setdefault(kind)
    ax.plot([time], [row], linestyle="none", clip_on=False, zorder=3, **_MARKS[kind])


def _add_legend(ax: Axes, shown: dict[str, None]) -> None:
    """Explain what the figure holds, above it."""
    handles: list[Any] = [
        Patch(label=kind, linewidth=0.7, **look) for kind, look in _LOOKS.items() if kind in shown
    ]
    for kind, look in _MARKS.items():
        if kind in shown:
            handles += ax.plot([], [], linestyle="none", label=kind, **look)
    ax.legend(
        handles=handles,
        fontsize=7,
        loc="lower left",
        bbox_to_anchor=(0, 1.0),
        ncols=len(handles),
        borderaxespad=0.2,
        handletextpad=0.4,
        columnspacing=1.2,
    )
