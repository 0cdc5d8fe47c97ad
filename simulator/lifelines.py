"""The life of every request as spans of time: queued, prefill, decode, preempted, held."""

from collections import defaultdict
from math import isnan, nan
from typing import NamedTuple

import numpy as np

from policies.base import Decision, Mode, Trigger
from simulator.columns import Columns, as_columns
from simulator.observer import Observer, StepRecord
from simulator.request import Request

PHASES = ("queued", "prefill", "decode", "batch", "held", "preempted")
"""What a request can be doing. `batch`: it is part of a batch that delivers everything at its end,
and nobody watched when its prompt was done. `held`: its tokens are computed, its batch is not."""

PHASE_COLUMNS = {
    "request_id": np.int64,
    "phase": np.str_,
    "start_s": np.float64,
    "end_s": np.float64,
    "replica": np.int64,
}
"""Columns of the phases table, a row a span."""


class Span(NamedTuple):
    """What a request does from `start` to `end`, seconds."""

    phase: str
    start: float
    end: float


class Lifelines(Observer):
    """Notes when prompts are computed, when the last token is, and who gives way until when.

    Attributes
    ----------
    prompt_end : dict of int to float
        Request number to the end of the step that completed its prompt, seconds.
    work_end : dict of int to float
        Request number to the end of the last step it was part of, seconds.
    pauses : dict of int to list of [float, float]
        Request number to the times at which it was preempted and computed again; NaN if it never
        was.

    Examples
    --------
    >>> from simulator import RunSpec, simulate
    >>> spec = RunSpec(
    ...     workload={"arrivals": 1, "prompt_tokens": 4, "output_tokens": 2, "num_requests": 1},
    ...     cost={"kind": "fixed", "step_ms": 500})
    >>> watch = Lifelines()
    >>> result = simulate(spec, observers=[watch])
    >>> watch.work_end[0] - watch.prompt_end[0]
    0.5
    """

    def __init__(self) -> None:
        self.prompt_end: dict[int, float] = {}
        self.work_end: dict[int, float] = {}
        self.pauses: dict[int, list[list[float]]] = defaultdict(list)
        self._requests: dict[int, Request] = {}
        self._left: dict[int, int] = {}
        self._planned: list[int] = []

    def on_submit(self, request: Request, now: float) -> None:
        """Take note of a request."""
        self._requests[request.id] = request

    def on_decision(
        self, now: float, trigger: Trigger, decision: Decision, work: list[tuple[int, int]]
    ) -> None:
        """Take note of who gives way and of the work of the step that follows."""
        for rid, mode in decision.preempt:
            self.pauses[rid].append([now, nan])
            if mode is Mode.RECOMPUTE and rid not in self.prompt_end:
                self._left.pop(rid, None)
        if work:
            self._planned = [rid for rid, _ in work]
        for rid, tokens in work:
            if rid in self.pauses and isnan(self.pauses[rid][-1][1]):
                self.pauses[rid][-1][1] = now
            if rid not in self.prompt_end:
                left = self._left.get(rid)
                if left is None:
                    request = self._requests[rid]
                    left = request.prompt_tokens - request.cached_tokens
                self._left[rid] = left - tokens

    def on_step(self, step: StepRecord) -> None:
        """Give the planned work its time."""
        for rid in self._planned:
            self.work_end[rid] = step.end
            if self._left.get(rid, 1) <= 0:
                self.prompt_end[rid] = step.end
                del self._left[rid]


def spans_of(tables: dict[str, Columns], watch: Lifelines | None = None) -> dict[int, list[Span]]:
    """Return the spans of every request in order of time; they follow each other without a gap.

    Parameters
    ----------
    tables : dict
        The tables of the run.
    watch : Lifelines, optional
        What was noted during the run. Without it preemptions do not show.

    Returns
    -------
    dict of int to list of Span
        Request number to spans; a request that is not finished ends with the last event.
    """
    requests = tables["requests"]
    times = {name: requests[name].astype(float) for name in requests if name.endswith("_s")}
    ends = [times["arrival_s"], times["finish_s"], tables["steps"]["end_s"].astype(float)]
    last = max(float(np.nanmax(column, initial=0.0)) for column in ends)
    spans: dict[int, list[Span]] = {}
    for row, rid in enumerate(requests["request_id"].tolist()):
        at = {name: float(column[row]) for name, column in times.items()}
        tokens = int(requests["output_tokens"][row])
        found = _spans(rid, at, last, tokens, watch)
        spans[rid] = [span for span in found if span.end > span.start]
    return spans


def _spans(
    rid: int, at: dict[str, float], last: float, tokens: int, watch: Lifelines | None
) -> list[Span]:
    """Return the spans of one request, empty ones too."""
    end = last if isnan(at["finish_s"]) else at["finish_s"]
    start = at["first_scheduled_s"]
    if isnan(start):
        return [Span("queued", at["arrival_s"], end)]
    queued = Span("queued", at["arrival_s"], start)
    first = end if isnan(at["first_token_s"]) else at["first_token_s"]
    if watch is None:
        if tokens > 1 and first == at["last_token_s"]:
            return [queued, Span("batch", start, end)]
        return [queued, Span("prefill", start, first), Span("decode", first, end)]
    prompt = min(watch.prompt_end.get(rid, end), end)
    work = max(prompt, min(watch.work_end.get(rid, end), end))
    if isnan(at["finish_s"]):
        work = end
    spans = [Span("prefill", start, prompt), Span("decode", prompt, work)]
    pauses = [(out, end if isnan(back) else back) for out, back in watch.pauses.get(rid, ())]
    cut = [part for span in spans for part in _around(span, pauses)]
    return [queued, *cut, Span("held", work, end)]


def _around(span: Span, pauses: list[tuple[float, float]]) -> list[Span]:
    """Cut the times out of a span in which the request had to give way."""
    parts, start = [], span.start
    for out, back in pauses:
        low, high = max(out, start), min(back, span.end)
        if low < high:
            parts += [Span(span.phase, start, low), Span("preempted", low, high)]
            start = high
    return [*parts, Span(span.phase, start, span.end)]


def phase_table(spans: dict[int, list[Span]], requests: Columns) -> Columns:
    """Return the spans as a table, by request and time."""
    replica = dict(zip(requests["request_id"].tolist(), requests["replica"].tolist(), strict=True))
    rows = [(rid, *span, replica[rid]) for rid in spans for span in spans[rid]]
    return as_columns(rows, PHASE_COLUMNS)


def spans_from(phases: Columns) -> dict[int, list[Span]]:
    """Return the spans that a phases table holds; the inverse of `phase_table`."""
    spans: dict[int, list[Span]] = defaultdict(list)
    for rid, *span, _ in zip(*(phases[name].tolist() for name in PHASE_COLUMNS), strict=True):
        spans[rid].append(Span(*span))
    return dict(spans)
