"""Continuous batching with one token budget a step: the scheduler of vLLM V1.

Source: vLLM 0.32 `v1/core/sched/scheduler.py`, rules checked against recorded decisions. There is
no prefill or decode phase: a step lets every request catch up with the tokens it knows.
"""

from typing import Literal

from pydantic import Field

from policies.base import (
    ALL_RUNNING,
    Decision,
    Limits,
    Mode,
    Plan,
    Policy,
    PolicySpec,
    RequestView,
    Trigger,
    View,
    Work,
)


class VllmV1(PolicySpec):
    """Serve running requests first, then admit waiting ones while the token budget lasts.

    1. Running requests in order of admission get `min(remaining, threshold, budget left)` tokens.
       When blocks run out, the last running request is preempted (recompute) until it fits.
    2. Unless someone was preempted, waiting requests are admitted from the head of the queue while
       budget, `max_num_seqs` and blocks allow; the first that does not fit ends the pass.

    Notes
    -----
    First come, first served. Deviations from the source: no prefix caching, no priorities, no
    asynchronous scheduling. The watermark counts at admission only and is waived for an idle
    replica, as in the source.

    Examples
    --------
    >>> from policies.testing import ScriptedView
    >>> view = ScriptedView(waiting=[5, 10])
    >>> decision = VllmV1(max_num_batched_tokens=8).build().decide(view)
    >>> decision.admit, [work.tokens for work in decision.plan.chunks]
    ((0, 1), [5, 3])
    """

    kind: Literal["vllm-v1"] = "vllm-v1"
    max_num_batched_tokens: int = Field(8192, ge=1)
    """Token budget of a step. vLLM's API server: 8192 on GPUs of 70 GiB and more, else 2048."""
    max_num_seqs: int = Field(256, ge=1)
    """Largest number of running requests. vLLM's API server: 1024 on large GPUs, else 256."""
    enable_chunked_prefill: bool = True
    """Whether a prompt may be computed in pieces."""
    long_prefill_token_threshold: int = Field(0, ge=0)
    """Most tokens one request gets in a step while two or more are in the system; 0: no cap."""
    watermark: float = Field(0.0, ge=0, lt=1)
    """Fraction of all blocks (the reserved null block included) kept free at admission."""
    scheduler_reserve_full_isl: bool = True
    """Admit only if blocks for all known tokens are free, not just for the first chunk."""

    def build(self) -> Policy:
        """Return a new decision maker."""
        return _VllmV1(self, Limits(self.max_num_batched_tokens, self.max_num_seqs))


class OneAtATime(PolicySpec):
    """No batching: one request at a time, first come, first served.

    The same rules as `vllm-v1` with `max_num_seqs` 1 and the whole prompt in one step.

    Examples
    --------
    >>> from policies.testing import ScriptedView
    >>> OneAtATime().build().decide(ScriptedView(waiting=[4, 2])).admit
    (0,)
    """

    kind: Literal["none"] = "none"

    def build(self) -> Policy:
        """Return a new decision maker."""
        return _VllmV1(
            VllmV1(max_num_seqs=1, max_num_batched_tokens=_ANY_PROMPT), Limits(max_num_seqs=1)
        )


_ANY_PROMPT = 2**31
"""A token budget above any prompt."""


class _VllmV1(Policy):
    def __init__(self, spec: VllmV1, limits: Limits) -> None:
        self.limits = limits
        self._budget = spec.max_num_batched_tokens
        self._max_num_seqs = spec.max_num_seqs
        self._chunked = spec.enable_chunked_prefill
        self._threshold = spec.long_prefill_token_threshold
        self._watermark = spec.watermark
        self._reserve = spec.scheduler_reserve_full_isl

    def on_submit(self, request: RequestView, view: View) -> str | None:
        if not self._chunked and request.prompt_tokens > self._budget:
            return (
                f"prompt of {request.prompt_tokens} tokens exceeds max_num_batched_tokens "
                f"{self._budget} and chunked prefill is off"
            )
        return None

    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        cap = self._cap(view)
        running = view.running
        growth = sum(view.kv.need(r, min(r.remaining, cap)) for r in running.partials)
        # A decode needs at most one more block, so the first test is enough while blocks abound.
        if (
            running.num_decodes + growth <= view.kv.free
            or view.kv.decode_growth + growth <= view.kv.free
        ):
            step = self._serve(view, cap)
        else:
            step = self._serve_scarce(view, cap)
        if not step.preempted:
            self._admit(view, cap, step)
        if not step.used:
            return Decision(preempt=tuple((r.id, Mode.RECOMPUTE) for r in step.preempted))
        steady = not step.chunks and not step.preempted
        return Decision(
            plan=Plan(decodes=ALL_RUNNING, chunks=tuple(step.chunks), steady=steady),
            admit=tuple(step.admitted),
            preempt=tuple((r.id, Mode.RECOMPUTE) for r in step.preempted),
        )

    def _cap(self, view: View) -> int:
        crowded = len(view.running) + len(view.waiting) >= 2
        return self._threshold if self._threshold and crowded else self._budget

    def _serve(self, view: View, cap: int) -> "_Step":
        """Serve the running requests where blocks are ample: O(partials), not O(running)."""
        growth = view.kv.decode_growth if len(view.waiting) else 0  # matters to admission only
        step = _Step(free=view.kv.free - growth)
        served = 0
        for request in view.running.partials:
            before = view.running.decodes_before(request)
            tokens = min(request.remaining, cap, self._budget - before - served)
            if tokens <= 0:
                break
            served += tokens
            step.free -= view.kv.need(request, tokens)
            step.chunks.append(Work(request.id, tokens))
        step.used = min(self._budget, served + view.running.num_decodes)
        return step

    def _serve_scarce(self, view: View, cap: int) -> "_Step":
        """Serve the running requests one by one, preempting the last until the next one fits."""
        step = _Step(free=view.kv.free)
        running = list(view.running)
        index = 0
        while index < len(running) and step.used < self._budget:
            request = running[index]
            tokens = min(request.remaining, cap, self._budget - step.used)
            need = view.kv.need(request, tokens)
            while need > step.free and len(running) > index:
                victim = running.pop()
                step.free += view.kv.held(victim)
                step.preempted.append(victim)
            if len(running) == index:  # the request itself was the last victim
                break
            step.free -= need
            step.used += tokens
            if not request.is_decode:
                step.chunks.append(Work(request.id, tokens))
            index += 1
        return step

    def _admit(self, view: View, cap: int, step: "_Step") -> None:
        num_running = len(view.running)
        for request in view.waiting:
            if step.used >= self._budget or num_running >= self._max_num_seqs:
                return
            tokens = min(request.known, cap)
            if not self._chunked and tokens > self._budget - step.used:
                return
            tokens = min(tokens, self._budget - step.used)
            blocks = view.kv.blocks_for(tokens)
            gate = view.kv.blocks_for(request.known) if self._reserve else blocks
            reserve = int(self._watermark * (view.kv.total + 1)) if num_running else 0
            if gate + reserve > step.free:
                return
            step.free -= blocks
            step.used += tokens
            step.admitted.append(request.id)
            step.chunks.append(Work(request.id, tokens))
            num_running += 1


class _Step:
    """A step in the making."""

    __slots__ = ("admitted", "chunks", "free", "preempted", "used")

    def __init__(self, free: int) -> None:
        self.free = free
        self.used = 0
        self.chunks: list[Work] = []
        self.admitted: list[int] = []
        self.preempted: list[RequestView] = []
