"""Adaptive batch size: grow while batches are fast enough, shrink when one is too slow (AIMD).

Source: Crankshaw et al., "Clipper: A Low-Latency Online Prediction Serving System", NSDI 2017,
§4.3 (adaptive and delayed batching). The code of later versions (ucbrise/clipper
`containers.cpp`, `task_executor.hpp`) estimates throughput against deadlines instead; that form is
not modelled.
"""

from math import floor
from typing import Literal

from pydantic import Field

from policies.base import Decision, Policy, RequestView, Trigger, View, total_size
from policies.static import BatchRun, BatchRunSpec, too_large


class ClipperAimd(BatchRunSpec):
    """Take up to b requests, where b follows the latency of the batches (Clipper's AIMD).

    b starts at 1. A batch that ran within the objective adds `additive_increase` to b, one that
    took longer multiplies b by `multiplicative_decrease`, rounded down, but never below 1.

    Notes
    -----
    The latency of a batch is the time from its start to its end, in whole microseconds as in the
    source; a member's wait does not count. As specified, every batch counts, full or not, so b
    grows at low load too, up to `max_batch_size`. A request larger than b runs alone.

    Examples
    --------
    A batch of b takes 2 + 1.5 b ms and somebody always waits: b is 1, 5, 9, 13, then 11, because
    13 take 21.5 ms.

    >>> from policies.testing import ScriptedView
    >>> policy, now, sizes = ClipperAimd(slo_ms=20).build(), 0.0, []
    >>> for _ in range(9):
    ...     sizes.append(len(policy.decide(ScriptedView(now, waiting=[1] * 99)).admit))
    ...     now += 2e-3 + 1.5e-3 * sizes[-1]
    >>> sizes
    [1, 5, 9, 13, 11, 15, 13, 11, 15]
    """

    kind: Literal["clipper-aimd"] = "clipper-aimd"
    max_batch_size: int = Field(1024, ge=1)
    """Largest b, in batch rows; the paper knows no limit."""
    slo_ms: float = Field(20.0, gt=0, allow_inf_nan=False)
    """Latency objective of a batch."""
    additive_increase: int = Field(4, ge=1)
    """What a batch within the objective adds to b, rows."""
    multiplicative_decrease: float = Field(0.9, gt=0, lt=1)
    """What a batch beyond the objective multiplies b by."""
    max_wait_ms: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Longest time a free worker waits for b requests, from the first one it sees."""

    def build(self) -> Policy:
        """Return a new decision maker."""
        return _ClipperAimd(self, self.batch_run())


class _ClipperAimd(Policy):
    def __init__(self, spec: ClipperAimd, run: BatchRun) -> None:
        self._max_batch_size = spec.max_batch_size
        self._slo = round(spec.slo_ms * 1e3)
        self._increase = spec.additive_increase
        self._decrease = spec.multiplicative_decrease
        self._max_wait = spec.max_wait_ms / 1e3
        self._run = run
        self._size = 1
        self._started: float | None = None
        self._deadline: float | None = None

    def on_submit(self, request: RequestView, view: View) -> str | None:
        return too_large(request, self._max_batch_size) or self._run.refusal(request, view)

    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        if len(view.running):
            return self._run.step(view)
        if self._started is not None:
            self._adapt(view.now - self._started)
            self._started = None
        head = view.waiting.head
        if head is None:
            self._deadline = None
            return Decision()
        if self._deadline is None:
            self._deadline = view.now + self._max_wait
        members = self._run.fitting(view, view.waiting, max(self._size, head.size))
        full = len(members) < len(view.waiting) or total_size(members) >= self._size
        if not full and view.now < self._deadline:
            return Decision(wake_at=self._deadline)
        self._deadline, self._started = None, view.now
        return self._run.start(members)

    def _adapt(self, latency: float) -> None:
        """Let b follow the latency of the batch that has just ended, seconds."""
        if int(latency * 1e6) <= self._slo:
            self._size = min(self._size + self._increase, self._max_batch_size)
        else:
            self._size = max(1, floor(self._size * self._decrease))
