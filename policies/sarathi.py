"""Stall-free batching: the scheduler of Sarathi-Serve.

Source: sarathi-serve `sarathi/core/scheduler/sarathi_scheduler.py` (2026-01); Agrawal et al.,
"Taming Throughput-Latency Tradeoff in LLM Inference with Sarathi-Serve", OSDI 2024.
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from policies.base import (
    ALL_RUNNING,
    Decision,
    Limits,
    Machine,
    Mode,
    Parameters,
    Plan,
    Policy,
    PolicySpec,
    RequestView,
    Trigger,
    View,
    Work,
)
from policies.budgets import AnyBudget, Budget, Fixed
from policies.vllm_v0 import decode_in_turn, watermark_blocks
from policies.vllm_v1 import below_a_block


class Decreasing(Parameters):
    """Chunks that get smaller as a prompt gets longer, in equal stages."""

    high_chunk_size: int = Field(ge=32, multiple_of=32)
    """Step size at the start of a prompt, tokens; a multiple of 32."""
    low_chunk_size: int = Field(ge=32, multiple_of=32)
    """Step size in the last stage, tokens; a multiple of 32."""
    stages: int = Field(ge=1)
    """Number of stages."""
    max_tokens: int = Field(ge=1)
    """Prompt length at which the last stage ends; it goes on for longer prompts."""

    @model_validator(mode="after")
    def _goes_down(self) -> Self:
        if self.low_chunk_size > self.high_chunk_size:
            raise ValueError(
                f"low_chunk_size {self.low_chunk_size} exceeds high_chunk_size "
                f"{self.high_chunk_size}"
            )
        return self

    def sizes(self) -> list[int]:
        """Return the step size of each stage, rounded to multiples of 32.

        Examples
        --------
        >>> Decreasing(high_chunk_size=512, low_chunk_size=128, stages=4, max_tokens=999).sizes()
        [512, 384, 256, 128]
        """
        if self.stages == 1:
            return [self.low_chunk_size]
        width = (self.high_chunk_size - self.low_chunk_size) / (self.stages - 1)
        rising = [int(self.low_chunk_size + width * stage) for stage in range(self.stages)]
        return [round(size / 32) * 32 for size in reversed(rising)]


class Sarathi(PolicySpec):
    """All decodes in every step, and prompt pieces up to the chunk: decodes never stall.

    1. Every running decode gets one token, whatever the chunk. Where a block is missing, the last
       running request that was not looked at yet is preempted, or else the one itself; it will
       compute all its tokens again.
    2. Prompts under way share what the decodes leave of the chunk, in order of admission.
    3. Waiting requests follow in order while blocks for the whole prompt are free above the
       watermark, `max_num_seqs` allows and some of the chunk is left. They get all those blocks
       at once.

    Notes
    -----
    Deviations: a block is asked for only when one is needed (the source wants a free one for each
    decode). More decodes than the chunk leave nothing for prompts (the source computes with a
    negative rest). A request whose blocks exceed the cache less the watermark is rejected when its
    turn comes (the source waits for ever). The tail of a recomputation that is one token long
    counts as a decode. One pipeline stage. Not modelled: prefix caching.

    Examples
    --------
    >>> from policies.testing import ScriptedRequest, ScriptedView
    >>> running = [ScriptedRequest(7, 12, computed=4), ScriptedRequest(8, 5, 0, 9, computed=5)]
    >>> running[1].generated = 1
    >>> decision = Sarathi(chunk_size=8).build().decide(ScriptedView(running=running))
    >>> decision.plan.chunks
    (Work(rid=7, tokens=7),)
    """

    kind: Literal["sarathi"] = "sarathi"
    chunk_size: int = Field(512, ge=1)
    """Tokens of a step, decodes included. The paper uses 512 or 2048, by the wanted TBT."""
    max_num_seqs: int = Field(128, ge=1)
    """Largest number of running requests."""
    watermark: float = Field(0.01, ge=0, lt=1)
    """Fraction of all blocks kept free at admission."""
    budget: AnyBudget = Fixed()
    """Tokens of each step, at most `chunk_size`; `fixed`: always `chunk_size`."""
    decreasing: Decreasing | None = None
    """Step sizes that fall with the progress of a prompt, instead of `chunk_size`."""

    @model_validator(mode="after")
    def _one_size(self) -> Self:
        if self.decreasing is not None and (self.chunk_size, self.budget) != (512, Fixed()):
            raise ValueError("chunk_size and budget have no effect with decreasing chunks")
        return self

    def refusal(self, machine: Machine) -> str | None:
        """Return why the chunk is too small for a block, or None."""
        return below_a_block("chunk_size", self.chunk_size, machine)

    def build(self) -> Policy:
        """Return a new decision maker."""
        return _Sarathi(self, self.budget.build(self.chunk_size))


class _Sarathi(Policy):
    def __init__(self, spec: Sarathi, budget: Budget) -> None:
        self._spec = spec
        self._budget = budget
        self._sizes: list[int] = []
        self._per_stage = 1
        largest = spec.chunk_size
        if spec.decreasing is not None:
            self._sizes = spec.decreasing.sizes()
            self._per_stage = -(-spec.decreasing.max_tokens // spec.decreasing.stages)
            largest = self._sizes[0]
        self.limits = Limits(max(largest, spec.max_num_seqs), spec.max_num_seqs)

    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        victims, growth = decode_in_turn(view)
        gone = {request.id for request in victims}
        used = view.running.num_decodes - sum(request.is_decode for request in victims)
        num_decodes, size = used, self._size(view)
        chunks: list[Work] = []
        for request in view.running.partials:
            tokens = self._piece(request, size, used)
            if tokens > 0 and request.id not in gone:
                used += tokens
                chunks.append(Work(request.id, tokens))
        preempt = tuple((request.id, Mode.RECOMPUTE) for request in victims)
        decision = Decision(preempt=preempt)
        if not victims:
            decision = self._admit(view, size, used, growth, chunks)
        if not num_decodes and not chunks:
            return decision
        steady = not victims and (self._goes_on(decision) if chunks else self._is_settled(view))
        drains = not victims and len(view.waiting) == len(decision.admit)
        plan = Plan(ALL_RUNNING, tuple(chunks), steady=steady, until_arrival=drains)
        return decision._replace(plan=plan)

    def _size(self, view: View) -> int:
        """Return the step size for all prompts alike; it does not matter if there are none."""
        no_prompts = view.running.num_decodes == len(view.running) and not len(view.waiting)
        return self._spec.chunk_size if no_prompts else self._budget.tokens(view)

    def _piece(self, request: RequestView, size: int, used: int) -> int:
        """Return how many tokens of its prompt a request gets."""
        if self._sizes:
            stage = min(request.computed // self._per_stage, len(self._sizes) - 1)
            size = self._sizes[stage]
        return min(request.remaining, size - used)

    def _admit(self, view: View, size: int, used: int, growth: int, chunks: list[Work]) -> Decision:
        """Admit waiting requests until the first that does not fit; their pieces go to `chunks`."""
        reserve = watermark_blocks(view, self._spec.watermark)
        free = view.kv.free - growth - reserve  # prompts under way hold all their blocks
        seats = self._spec.max_num_seqs - len(view.running)
        admitted: list[RequestView] = []
        rejected: list[tuple[int, str]] = []
        for request in view.waiting:
            tokens, blocks = self._piece(request, size, used), view.kv.blocks_for(request.known)
            if blocks + reserve > view.kv.total:
                rejected.append((request.id, f"{request.known} tokens exceed the KV cache"))
                continue
            if blocks > free or len(admitted) >= seats or tokens <= 0:
                break
            free -= blocks
            used += tokens
            chunks.append(Work(request.id, tokens))
            admitted.append(request)
        return Decision(
            admit=tuple(request.id for request in admitted),
            reserve=tuple((request.id, request.known) for request in admitted),
            reject=tuple(rejected),
        )

    def _goes_on(self, decision: Decision) -> bool:
        """Whether the next pieces of the prompts under way will be as long as these."""
        return self._budget.is_constant and not (decision.admit or decision.reject or self._sizes)

    def _is_settled(self, view: View) -> bool:
        """Whether a step without prompt pieces is followed by others without."""
        return self._budget.is_constant or (
            view.running.num_decodes == len(view.running) and not len(view.waiting)
        )
