"""Wait for company, but not too long: batch windows with a size limit.

Servers differ in when the window starts, and in when the batch is closed. `WindowPull` starts the
window when a free worker takes the first request (TorchServe `Model.pollBatch`: `batchSize`,
`maxBatchDelay`). `WindowEnqueue` starts it when the first request enters the open batch, whether or
not the worker is busy (TensorFlow Serving `shared_batch_scheduler.h`: `max_batch_size`,
`batch_timeout_micros`, `max_enqueued_batches`). `WindowFreeze` starts it then too, but closes the
batch when it ends, even while the worker is busy (Ray Serve 2.60 `batching.py`: `max_batch_size`,
`batch_wait_timeout_s`). All of them then run the batch to completion as `static` does.
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

    Notes
    -----
    Deviations: one worker; no request is dropped for a timeout of its client; a batch that does
    not fit the KV cache starts with the members that do.

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
    max_batch_size: int = Field(8, ge=1)
    """Largest number of batch rows (requests of size 1) in one batch. TorchServe: 1."""
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
            self._deadline = None  # the request in hand was cancelled
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
    batches stand already.

    Notes
    -----
    Deviations: the source polls each millisecond, here the wake-up is exact; one batch thread and
    one queue; no `allowed_batch_sizes` (rows are not filled up) and no splitting of large tasks; a
    batch that does not fit the KV cache starts with the members that do.

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
    max_batch_size: int = Field(8, ge=1)
    """Largest number of batch rows (requests of size 1) in one batch. TensorFlow Serving: 1000."""
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


class WindowFreeze(BatchRunSpec):
    """Close a batch when it is full or its window ends, even while the worker is busy (Ray Serve).

    A loop takes the first request that comes and collects more until the batch is full or
    `max_wait_ms` have passed. The batch is then frozen: it stands in line for the worker, and
    nobody joins it any more. So the batches depend on the arrivals alone, not on the service.

    Notes
    -----
    A policy is asked only while its replica is free, but when a batch freezes follows from the
    arrivals, so it is worked out afterwards: an arrival, or a decision, first freezes the batch
    whose window ended before that moment. Ties: all that arrives at one moment is in the queue
    before the loop looks; a request that arrives at the very end of the window still joins; the
    one that would overflow the batch ends it and goes to the back of that queue, as in the source.

    Deviations: one batch at a time (`max_concurrent_batches` 1); a full batch ends before the loop
    looks at the next request, whether or not sizes differ from 1 (with a size function, the source
    looks, and puts that one at the back); a request larger than any batch is rejected on arrival,
    not when the loop takes it; a batch that does not fit the KV cache starts with the members that
    do. As in the source, a request that was cancelled keeps its place in its batch and is taken
    out just before the batch runs.

    Examples
    --------
    >>> from policies.testing import ScriptedView
    >>> policy = WindowFreeze(max_batch_size=3, max_wait_ms=10).build()
    >>> view = ScriptedView(waiting=[5])
    >>> policy.on_submit(view.waiting.head, view)
    >>> policy.decide(view).wake_at
    0.01
    """

    kind: Literal["window-freeze"] = "window-freeze"
    max_batch_size: int = Field(10, ge=1)
    """Largest number of batch rows (requests of size 1) in one batch."""
    max_wait_ms: float = Field(10.0, ge=0, allow_inf_nan=False)
    """Longest time the first request of a batch waits for company, from its arrival."""

    def build(self) -> Policy:
        """Return a new decision maker."""
        return _WindowFreeze(self.max_batch_size, self.max_wait_ms / 1e3, self.batch_run())


class _WindowFreeze(Policy):
    def __init__(self, max_batch_size: int, max_wait: float, run: BatchRun) -> None:
        self._max_batch_size = max_batch_size
        self._max_wait = max_wait
        self._run = run
        self._queue: deque[RequestView] = deque()
        self._moment = 0.0
        """When the requests in the queue arrived."""
        self._open: _Batch | None = None
        self._frozen: deque[_Batch] = deque()

    def on_submit(self, request: RequestView, view: View) -> str | None:
        refusal = too_large(request, self._max_batch_size) or self._run.refusal(request, view)
        if refusal is None:
            if view.now > self._moment:
                self._collect()
                self._moment = view.now
            self._queue.append(request)
        return refusal

    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        if len(view.running):
            return self._run.step(view)
        self._collect()
        if self._open is not None and self._open.deadline <= view.now:
            self._freeze()
        while self._frozen:
            batch = self._frozen[0]
            present = [r for r in batch.members if r.id in view.waiting]
            members = self._run.fitting(view, present, self._max_batch_size)
            batch.members = present[len(members) :]
            if not batch.members:
                self._frozen.popleft()
            if members:
                return self._run.start(members)
        return Decision(wake_at=None if self._open is None else self._open.deadline)

    def _collect(self) -> None:
        """Do what the loop did at the moment when the queue filled."""
        if self._queue and self._open is not None and self._open.deadline < self._moment:
            self._freeze()
        while self._queue:
            request = self._queue.popleft()
            if self._open is None:
                self._open = _Batch(self._moment + self._max_wait)
            if self._open.size + request.size > self._max_batch_size:
                self._queue.append(request)
                self._freeze()
                continue
            self._open.members.append(request)
            self._open.size += request.size
            if self._open.size >= self._max_batch_size:
                self._freeze()

    def _freeze(self) -> None:
        assert self._open is not None, "there is a batch to freeze"
        self._frozen.append(self._open)
        self._open = None
