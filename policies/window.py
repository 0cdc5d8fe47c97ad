"""Wait for company, but not too long: batch windows with a size limit.

Servers differ in when the window starts. `WindowPull` starts it when a free worker takes the first
request (TorchServe `Model.pollBatch`: `batchSize`, `maxBatchDelay`). `WindowEnqueue` starts it
when the first request enters the open batch, whether or not the worker is busy (TensorFlow Serving
`shared_batch_scheduler.h`: `max_batch_size`, `batch_timeout_micros`, `max_enqueued_batches`).
Both then run the batch to completion as `static` does.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Literal

from pydantic import Field

from policies.base import Decision, Policy, RequestView, Trigger, View
from policies.static import BatchRun, BatchRunSpec, too_large


class WindowPull(BatchRunSpec):
    """Run when full, or when the first request in hand has waited long enough (TorchServe).

    A free worker waits without limit for a first request; from that moment it waits at most
    `max_wait_ms` for more. A window of 0 takes what is there.

    Examples
    --------
    >>> from policies.testing import ScriptedView
    >>> policy = WindowPull(max_batch_size=3, max_wait_ms=10).build()
    >>> policy.decide(ScriptedView(waiting=[5])).wake_at
    0.01
    >>> policy.decide(ScriptedView(now=0.01, waiting=[5])).admit
    (0,)
    """

    kind: Literal["window-pull"] = "window-pull"
    max_wait_ms: float = Field(100.0, ge=0, allow_inf_nan=False)
    """Longest time the first request waits for company, from its pull by a free worker."""

    def build(self) -> Policy:
        """Return a new decision maker."""
        return _WindowPull(self.max_batch_size, self.max_wait_ms / 1e3, self.batch_run())


class _WindowPull(Policy):
    def __init__(self, max_batch_size: int, max_wait: float, run: BatchRun) -> None:
        self._max_batch_size = max_batch_size
        self._max_wait = max_wait
        self._run = run
        self._deadline: float | None = None

    def on_submit(self, request: RequestView, view: View) -> str | None:
        return too_large(request, self._max_batch_size) or self._run.refusal(request, view)

    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        if len(view.running):
            return self._run.step(view)
        if not len(view.waiting):
            return Decision()
        if self._deadline is None:
            self._deadline = view.now + self._max_wait
        members = self._run.fitting(view, view.waiting, self._max_batch_size)
        full = len(members) < len(view.waiting)
        full = full or sum(r.size for r in members) >= self._max_batch_size
        if not full and view.now < self._deadline:
            return Decision(wake_at=self._deadline)
        self._deadline = None
        return self._run.start(members)


class WindowEnqueue(BatchRunSpec):
    """Run the oldest batch when it is closed, full, or its first request has waited long enough.

    The queue is a list of batches, the last one open. An arriving request joins the open batch or,
    where it does not fit, closes it and opens the next; it is rejected when `max_enqueued_batches`
    batches stand already. The source polls each millisecond; here the wake-up is exact.
    One batch thread; a batch that does not fit the KV cache starts with the members that do.

    Examples
    --------
    >>> from policies.testing import ScriptedView
    >>> policy = WindowEnqueue(max_batch_size=3, max_wait_ms=10).build()
    >>> view = ScriptedView(waiting=[5])
    >>> policy.on_submit(view.waiting.head, view)
    >>> policy.decide(view).wake_at
    0.01
    """

    kind: Literal["window-enqueue"] = "window-enqueue"
    max_wait_ms: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Longest time the first request of a batch waits for company, from its arrival."""
    max_enqueued_batches: int = Field(10, ge=1)
    """Batches that may stand in the queue, the open one included."""

    def build(self) -> Policy:
        """Return a new decision maker."""
        return _WindowEnqueue(
            self.max_batch_size, self.max_wait_ms / 1e3, self.max_enqueued_batches, self.batch_run()
        )


@dataclass(slots=True)
class _Batch:
    deadline: float
    members: list[RequestView] = field(default_factory=list)
    size: int = 0


class _WindowEnqueue(Policy):
    def __init__(
        self, max_batch_size: int, max_wait: float, max_batches: int, run: BatchRun
    ) -> None:
        self._max_batch_size = max_batch_size
        self._max_wait = max_wait
        self._max_batches = max_batches
        self._run = run
        self._batches: deque[_Batch] = deque()

    def on_submit(self, request: RequestView, view: View) -> str | None:
        refusal = too_large(request, self._max_batch_size) or self._run.refusal(request, view)
        if refusal:
            return refusal
        if not self._batches or self._batches[-1].size + request.size > self._max_batch_size:
            if len(self._batches) >= self._max_batches:
                return f"queue full: {self._max_batches} batches wait"
            self._batches.append(_Batch(view.now + self._max_wait))
        batch = self._batches[-1]
        batch.members.append(request)
        batch.size += request.size
        return None

    def on_finish(self, request: RequestView, view: View) -> None:
        for batch in self._batches:  # it gave up waiting
            if request in batch.members:
                batch.members.remove(request)
                batch.size -= request.size
        while self._batches and not self._batches[0].members:
            self._batches.popleft()

    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        if len(view.running):
            return self._run.step(view)
        if not self._batches:
            return Decision()
        batch = self._batches[0]
        closed = len(self._batches) > 1 or batch.size >= self._max_batch_size
        if not closed and view.now < batch.deadline:
            return Decision(wake_at=batch.deadline)
        members = self._run.fitting(view, batch.members, self._max_batch_size)
        batch.members = batch.members[len(members) :]
        batch.size = sum(request.size for request in batch.members)
        if not batch.members:
            self._batches.popleft()
        return self._run.start(members)
