"""Triton's dynamic batcher: preferred batch sizes, a queue delay, priorities and queue limits.

Source: Triton Inference Server, core, `dynamic_batch_scheduler.cc` (`GetDynamicBatch`),
`scheduler_utils.cc` (`PriorityQueue`), `model_config_utils.cc` (`ValidateModelConfig`), June 2026;
server, `docs/user_guide/batcher.md`. Parameters keep the names of Triton's model configuration.
"""

from collections import deque
from dataclasses import dataclass
from math import inf, nextafter
from typing import Literal, Self

from pydantic import Field, model_validator

from policies.base import Decision, Parameters, Policy, Release, RequestView, Trigger, View
from policies.static import BatchRun, BatchRunSpec, too_large


class QueuePolicy(Parameters):
    """Limits of one queue."""

    max_queue_size: int = Field(0, ge=0)
    """Requests that may wait in one queue; more are rejected on arrival. 0: no limit."""
    default_timeout_microseconds: int = Field(0, ge=0)
    """Longest time a request waits before `timeout_action`, µs. 0: no timeout."""
    allow_timeout_override: bool = False
    """Whether the `ttft_slo` of a request may shorten a default timeout other than 0."""
    timeout_action: Literal["REJECT", "DELAY"] = "REJECT"
    """Turn away a request that waited too long, or serve it after all others of its level."""


class PriorityQueuePolicy(QueuePolicy):
    """Limits of the queue of one priority level."""

    priority_level: int = Field(ge=1)
    """The level they hold for."""


class Triton(BatchRunSpec, QueuePolicy):
    """Wait for a preferred batch size, but no longer than the queue delay (Triton).

    A free instance looks at the requests in order of level, then arrival. If a preferred size can
    be made of them, the largest one runs; else whatever waits runs once the oldest request has
    waited for the queue delay. The queue limits hold for every level that
    `priority_queue_policy` does not name.

    Notes
    -----
    Once the delay is over, everything that fits the largest batch goes, whatever the preferred
    sizes. A request counts with its `size`. Rows are not filled up; the model behind pads prompts
    to the longest, as in `static`.

    `preserve_ordering` makes responses wait for those of requests that were batched before. One
    instance finishes its batches in that order anyway, and a batch is delivered as a whole, so
    the parameter changes no time; it refuses what Triton refuses beside it (several levels,
    DELAY), and `release: per-request`, where a short answer would overtake a long one.

    Deviations: one instance; no batch is formed ahead (`prefetch_depth` 0); a timeout is noticed
    when a batch is formed, while the source also looks each 500 ms; a sleeping instance looks
    just after a timeout, not in the microsecond before; no equal-shape rule, custom batching,
    response cache or sequences; the timeout of a request is its `ttft_slo`. A level that is not in
    the configuration stands for the default one, as in the source. As there, a cancelled request
    counts for `max_queue_size` until a batch is formed. A batch that does not fit the KV cache
    starts with the members that do.

    Examples
    --------
    >>> from policies.testing import ScriptedView
    >>> policy = Triton(max_queue_delay_microseconds=10_000, preferred_batch_size=(4,)).build()
    >>> view = ScriptedView(waiting=[5])
    >>> policy.on_submit(view.waiting.head, view)
    >>> policy.decide(view).wake_at
    0.01
    """

    kind: Literal["triton"] = "triton"
    preferred_batch_size: tuple[int, ...] = ()
    """Sizes that run at once, each from 1 to `max_batch_size`. Empty: `max_batch_size`."""
    max_queue_delay_microseconds: int = Field(0, ge=0)
    """Longest time a request waits for a preferred size, µs, from its arrival."""
    preserve_ordering: bool = False
    """Whether responses leave in the order in which requests were batched."""
    priority_levels: int = Field(0, ge=0)
    """Number of levels, 1 served first. 0: one queue; the priority of a request is ignored."""
    default_priority_level: int = Field(0, ge=0)
    """Level of a request whose priority is none of the levels; 0 only without levels."""
    priority_queue_policy: tuple[PriorityQueuePolicy, ...] = ()
    """Limits of single levels."""

    @model_validator(mode="after")
    def _sizes_fit(self) -> Self:
        for size in self.preferred_batch_size:
            if not 1 <= size <= self.max_batch_size:
                raise ValueError(
                    f"preferred_batch_size {size}: expected 1 to max_batch_size "
                    f"{self.max_batch_size}"
                )
        return self

    @model_validator(mode="after")
    def _levels_exist(self) -> Self:
        levels, default = self.priority_levels, self.default_priority_level
        if not min(levels, 1) <= default <= levels:
            raise ValueError(
                f"default_priority_level {default}: expected {min(levels, 1)} to {levels} with "
                f"priority_levels {levels}"
            )
        named = [policy.priority_level for policy in self.priority_queue_policy]
        if len(set(named)) < len(named) or max(named, default=0) > levels:
            raise ValueError(
                f"priority_queue_policy for levels {named}: expected each of 1 to {levels} at "
                "most once"
            )
        return self

    @model_validator(mode="after")
    def _order_can_be_kept(self) -> Self:
        queues: list[QueuePolicy] = [self, *self.priority_queue_policy]
        delays = [q for q in queues if q.timeout_action == "DELAY"]
        for name, found in (
            (f"priority_levels {self.priority_levels}", self.priority_levels > 1),
            ("timeout_action DELAY", any(q.default_timeout_microseconds for q in delays)),
            ("release per-request", self.release is Release.PER_REQUEST),
        ):
            if self.preserve_ordering and found:
                raise ValueError(f"preserve_ordering does not go with {name}")
        return self

    def build(self) -> Policy:
        """Return a new decision maker."""
        return _Triton(self)

    def queue_policy(self, level: int) -> QueuePolicy:
        """Return the limits of a level's queue."""
        own = [policy for policy in self.priority_queue_policy if policy.priority_level == level]
        return own[0] if own else self


@dataclass(slots=True)
class _Entry:
    request: RequestView
    enqueued: float
    expiry: float
    is_delayed: bool = False


class _Level:
    """The main queue of a level, and the one of those whose timeout is over."""

    def __init__(self, policy: QueuePolicy) -> None:
        self._policy = policy
        self._main: deque[_Entry] = deque()
        self._delayed: deque[_Entry] = deque()

    def refusal(self) -> str | None:
        """Return why nobody may join, or None."""
        limit = self._policy.max_queue_size
        if limit and len(self._main) + len(self._delayed) >= limit:
            return f"queue full: {limit} requests wait"
        return None

    def add(self, request: RequestView, now: float) -> None:
        """Put an arriving request at the end."""
        timeout = self._policy.default_timeout_microseconds / 1e6 or inf
        if self._policy.allow_timeout_override and timeout < inf and request.ttft_slo:
            timeout = min(timeout, request.ttft_slo)
        self._main.append(_Entry(request, now, now + timeout))

    def head(self, view: View, rejected: list[RequestView]) -> _Entry | None:
        """Return who is next, after dealing with those that are cancelled or waited too long."""
        while self._main or self._delayed:
            entry = self._main[0] if self._main else self._delayed[0]
            if entry.request.id in view.waiting and view.now <= entry.expiry:
                return entry
            self.pop()
            if entry.request.id not in view.waiting:
                continue
            if self._policy.timeout_action == "DELAY":
                entry.expiry, entry.is_delayed = inf, True
                self._delayed.append(entry)
            else:
                rejected.append(entry.request)
        return None

    def pop(self) -> _Entry:
        """Take out who is next."""
        return (self._main or self._delayed).popleft()

    def put_back(self, entry: _Entry) -> None:
        """Undo a `pop`."""
        (self._delayed if entry.is_delayed else self._main).appendleft(entry)


@dataclass(slots=True)
class _Pending:
    """The requests of the next batch as they are looked at, and how many of them to send."""

    entries: list[tuple[_Level, _Entry]]
    size: int = 0
    best: int = 0
    """Number of entries that make the best preferred size so far; 0: none does."""
    is_full: bool = False


class _Triton(Policy):
    def __init__(self, spec: Triton) -> None:
        self._max_batch_size = spec.max_batch_size
        self._preferred = frozenset(spec.preferred_batch_size or (spec.max_batch_size,))
        self._largest = max(self._preferred)
        self._delay = spec.max_queue_delay_microseconds / 1e6
        self._num_levels = spec.priority_levels
        self._default_level = spec.default_priority_level
        self._levels = {
            level: _Level(spec.queue_policy(level))
            for level in range(min(1, spec.priority_levels), spec.priority_levels + 1)
        }
        self._run: BatchRun = spec.batch_run()

    def on_submit(self, request: RequestView, view: View) -> str | None:
        known = 1 <= request.priority <= self._num_levels
        level = self._levels[request.priority if known else self._default_level]
        refusal = too_large(request, self._max_batch_size) or self._run.refusal(request, view)
        refusal = refusal or level.refusal()
        if refusal is None:
            level.add(request, view.now)
        return refusal

    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        if len(view.running):
            return self._run.step(view)
        expired: list[RequestView] = []
        pending = self._look(view, expired)
        reject = tuple((request.id, "its timeout in the queue is over") for request in expired)
        chosen = [entry.request for _, entry in pending.entries[: self._num_to_send(pending, view)]]
        members = self._run.fitting(view, chosen, self._max_batch_size)
        rest = pending.entries[len(members) :]
        for level, entry in reversed(rest):
            level.put_back(entry)
        if members:
            return self._run.start(members)._replace(reject=reject)
        return Decision(reject=reject, wake_at=self._wake_at([entry for _, entry in rest]))

    def _look(self, view: View, expired: list[RequestView]) -> _Pending:
        """Take out, in order, what the next batch could consist of."""
        pending = _Pending([])
        for level in self._levels.values():
            while (entry := level.head(view, expired)) is not None:
                size = pending.size + entry.request.size
                if pending.entries and size > self._largest and not pending.best:
                    pending.best = len(pending.entries)
                if size > self._max_batch_size:
                    pending.is_full = True
                    return pending
                pending.entries.append((level, level.pop()))
                pending.size = size
                if size in self._preferred:
                    pending.best = len(pending.entries)
        return pending

    def _num_to_send(self, pending: _Pending, view: View) -> int:
        """Return how many of the pending entries run now."""
        oldest = min((entry.enqueued for _, entry in pending.entries), default=view.now)
        is_late = self._delay > 0 and view.now >= oldest + self._delay
        if pending.best and not is_late:
            return pending.best
        is_full = pending.is_full or pending.size >= self._largest
        return len(pending.entries) if is_full or is_late or not self._delay else 0

    def _wake_at(self, waiting: list[_Entry]) -> float | None:
        """Return when the oldest has waited for the delay, or just after the nearest timeout."""
        if not waiting:
            return None
        timeout = nextafter(min(entry.expiry for entry in waiting), inf)
        return min(min(entry.enqueued for entry in waiting) + self._delay, timeout)
