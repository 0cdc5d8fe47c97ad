"""Static batching: a batch is formed once and runs to completion; nobody joins, nobody leaves.

Source: `faster_transformer` schedulers of Vidur and Sarathi-Serve, after the generate loop of
FasterTransformer.
"""

from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from policies.base import (
    ALL_RUNNING,
    Decision,
    Plan,
    Policy,
    PolicySpec,
    Release,
    RequestView,
    Shape,
    Trigger,
    View,
    Work,
    total_size,
)


class BatchRun:
    """Drives one batch at a time from prefill to its last token; shared by request-level policies.

    Parameters
    ----------
    max_seq_len : int or None
        KV tokens reserved for each member from start to end. None: prompt + `max_tokens`.
    drop_finished : bool
        Whether a finished member stops being charged as a row of the decode steps.
    release : Release
        When the members' tokens are delivered.
    """

    def __init__(self, max_seq_len: int | None, drop_finished: bool, release: Release) -> None:
        self._max_seq_len = max_seq_len
        self._drop_finished = drop_finished
        self._release = release
        self._rows = 0

    def refusal(self, request: RequestView, view: View) -> str | None:
        """Return why a request can never be served, or None."""
        length = request.prompt_tokens + request.max_tokens
        if self._max_seq_len is not None and length > self._max_seq_len:
            return f"prompt + max_tokens {length} exceed max_seq_len {self._max_seq_len}"
        if view.kv.blocks_for(self._reserved(request)) > view.kv.total:
            return f"a reservation of {self._reserved(request)} tokens exceeds the KV cache"
        return None

    def fitting(
        self, view: View, candidates: Iterable[RequestView], rows: int
    ) -> list[RequestView]:
        """Return the leading candidates that fit together in `rows` batch rows and the KV cache."""
        members: list[RequestView] = []
        free = view.kv.free
        for request in candidates:
            rows -= request.size
            free -= view.kv.blocks_for(self._reserved(request))
            if rows < 0 or free < 0:
                break
            members.append(request)
        return members

    def start(self, members: list[RequestView]) -> Decision:
        """Admit the members and compute all prompts, padded to the longest."""
        self._rows = total_size(members)
        longest = max(request.prompt_tokens for request in members)
        return Decision(
            plan=Plan(
                chunks=tuple(Work(r.id, r.remaining) for r in members),
                shape=Shape(self._rows, longest),
                release=self._release,
            ),
            admit=tuple(r.id for r in members),
            reserve=tuple((r.id, self._reserved(r)) for r in members),
        )

    def step(self, view: View) -> Decision:
        """Advance every unfinished member by one token."""
        rows = total_size(list(view.running)) if self._drop_finished else self._rows
        plan = Plan(decodes=ALL_RUNNING, shape=Shape(rows, 1), release=self._release, steady=True)
        return Decision(plan)

    def _reserved(self, request: RequestView) -> int:
        if self._max_seq_len is not None:
            return self._max_seq_len
        return request.prompt_tokens + request.max_tokens


class BatchRunSpec(PolicySpec):
    """Parameters that all request-level policies share."""

    max_batch_size: int = Field(8, ge=1)
    """Largest number of batch rows (requests of size 1) in one batch. Vidur: 128."""
    max_seq_len: int | None = Field(None, ge=2)
    """KV tokens reserved for each request; longer ones are rejected. None: prompt + max_tokens."""
    drop_finished: bool = False
    """Whether finished requests stop being charged as rows of the decode steps (Vidur: true)."""
    release: Release = Release.PER_BATCH
    """Deliver tokens when the batch ends (`per-batch`) or as they come (`per-request`)."""

    def batch_run(self) -> BatchRun:
        """Return the driver that these parameters describe."""
        return BatchRun(self.max_seq_len, self.drop_finished, self.release)


class Static(BatchRunSpec):
    """Take what waits, up to the batch size, and serve it to the end before looking again.

    There is no timer: a batch starts as soon as the replica is free and anyone waits. The KV cache
    is reserved for the whole run of a batch and freed for all members together.

    Notes
    -----
    Deviations: finished members stay charged as rows (Vidur: `drop_finished`); tokens are delivered
    when the batch ends (Vidur streams them: `release: per-request`); without `max_seq_len` each
    member reserves what it may need, not the same for everybody.

    Examples
    --------
    >>> from policies.testing import ScriptedView
    >>> view = ScriptedView(waiting=[4, 2, 3])  # three prompts of 4, 2 and 3 tokens
    >>> decision = Static(max_batch_size=3).build().decide(view)
    >>> decision.admit, decision.plan.shape
    ((0, 1, 2), Shape(rows=3, cols=4))
    """

    kind: Literal["static"] = "static"

    def build(self) -> Policy:
        """Return a new decision maker."""
        return _Static(self.max_batch_size, self.batch_run())


class _Static(Policy):
    def __init__(self, max_batch_size: int, run: BatchRun) -> None:
        self._max_batch_size = max_batch_size
        self._run = run

    def on_submit(self, request: RequestView, view: View) -> str | None:
        return too_large(request, self._max_batch_size) or self._run.refusal(request, view)

    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        if len(view.running):
            return self._run.step(view)
        members = self._run.fitting(view, view.waiting, self._max_batch_size)
        return self._run.start(members) if members else Decision()


def too_large(request: RequestView, max_batch_size: int) -> str | None:
    """Return why a request does not fit any batch, or None."""
    if request.size > max_batch_size:
        return f"size {request.size} exceeds max_batch_size {max_batch_size}"
    return None
