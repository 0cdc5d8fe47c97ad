"""Prefill first: the default scheduler of vLLM V0.

Source: vLLM `core/scheduler.py` and `core/block_manager_v2.py`, line 0.4 to 0.6, without chunked
prefill.
"""

from collections import deque
from collections.abc import Iterable
from typing import Literal

from pydantic import Field

from policies.base import (
    ALL_RUNNING,
    Decision,
    Limits,
    Machine,
    Mode,
    Plan,
    Policy,
    PolicySpec,
    RequestView,
    Scratch,
    Trigger,
    View,
    Work,
)
from policies.vllm_v1 import too_small


class VllmV0(PolicySpec):
    """Admit whole prompts as soon as they fit, in steps of their own; else decode.

    1. Unless someone is swapped out, waiting requests are admitted in order while the delay test
       passes, blocks for all known tokens are free above the watermark, and token budget and
       `max_num_seqs` allow; the first that does not fit ends the pass. If anyone was admitted,
       the step holds their prompts only: running requests stand still.
    2. Otherwise all running requests get one token. Where a block is missing, the last running
       request that was not looked at yet gives way, or else the one itself.
    3. If nobody had to, swapped requests come back in order while their blocks and the next one
       are free above the watermark.

    Notes
    -----
    A request that could never be admitted (its tokens exceed the budget, or its blocks exceed
    the cache less the watermark) is rejected when its turn comes, after a preemption too.
    A block is asked for only when one is needed, as in block manager v2. Where the host is full,
    a victim is recomputed; the source ends the server. Not modelled: chunked prefill, beam search
    (it swapped by default), prefix caching, LoRA.

    Examples
    --------
    >>> from policies.testing import ScriptedRequest, ScriptedView
    >>> running = [ScriptedRequest(9, 6, computed=6, generated=1)]
    >>> plan = VllmV0().build().decide(ScriptedView(waiting=[5], running=running)).plan
    >>> plan.decodes, plan.chunks
    ((), (Work(rid=0, tokens=5),))
    """

    kind: Literal["vllm-v0"] = "vllm-v0"
    max_num_batched_tokens: int | None = Field(None, ge=1)
    """Most prompt tokens in a step. None: 2048, or the context limit if that is larger."""
    max_num_seqs: int = Field(256, ge=1)
    """Largest number of running requests."""
    watermark: float = Field(0.01, ge=0, lt=1)
    """Fraction of all blocks kept free at admission and when swapping in."""
    scheduler_delay_factor: float = Field(0.0, ge=0, allow_inf_nan=False)
    """While requests run, the oldest waiting one has to wait longer than this multiple of the
    last prompt step before prompts are admitted; 0: no delay."""
    preemption_mode: Literal["recompute", "swap"] = "recompute"
    """What happens to the blocks of a victim: freed and computed again, or copied to the host."""

    def build(self) -> Policy:
        """Return a new decision maker."""
        return _VllmV0(self)

    def refusal(self, machine: Machine) -> str | None:
        """Return why prompts up to the context limit, or blocks, could not be handled, or None."""
        if machine.plans_ahead and self.preemption_mode == "swap":
            return "preemption_mode swap does not go with asynchronous scheduling"
        return too_small(self.max_num_batched_tokens, machine)


class _VllmV0(Policy):
    def __init__(self, spec: VllmV0) -> None:
        self._spec = spec
        self._swaps = spec.preemption_mode == "swap"
        budget = spec.max_num_batched_tokens
        # Decodes do not count towards the budget of the source.
        most = None if budget is None else max(budget, spec.max_num_seqs)
        self.limits = Limits(most, spec.max_num_seqs)
        self._prompts_since: float | None = None
        """When the step before started, if it was one of prompts."""
        self._prompt_latency = 0.0

    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        if self._prompts_since is not None:
            self._prompt_latency = view.now - self._prompts_since
            self._prompts_since = None
        rejected: list[tuple[int, str]] = []
        is_patient = self._is_patient(view)
        if not is_patient and not len(view.swapped):
            admitted = self._admit(view, rejected)
            if admitted:
                self._prompts_since = view.now
                chunks = tuple(Work(r.id, r.remaining) for r in admitted)
                num_left = len(view.waiting) - len(admitted) - len(rejected)
                plan = Plan(chunks=chunks, until_arrival=self._drains(num_left))
                return Decision(plan, tuple(r.id for r in admitted), reject=tuple(rejected))
        return self._decode(view, is_patient)._replace(reject=tuple(rejected))

    def _is_patient(self, view: View) -> bool:
        """Whether the oldest waiting request has not waited long enough yet."""
        factor, oldest = self._spec.scheduler_delay_factor, view.waiting.head
        if not factor or not len(view.running) or oldest is None:
            return False
        return view.now - oldest.arrival <= factor * self._prompt_latency

    def _admit(self, view: View, rejected: list[tuple[int, str]]) -> list[RequestView]:
        """Return the leading waiting requests that fit; note those that never will."""
        budget = self._budget(view)
        seats = self._spec.max_num_seqs - len(view.running)
        reserve = watermark_blocks(view, self._spec.watermark)
        free, left = view.kv.free - reserve, budget
        admitted: list[RequestView] = []
        for request in view.waiting:
            tokens, blocks = request.known, view.kv.blocks_for(request.known)
            if budget is not None and tokens > budget:
                rejected.append((request.id, f"{tokens} tokens exceed the step of {budget}"))
                continue
            if blocks + reserve > view.kv.total:
                rejected.append((request.id, f"{tokens} tokens exceed the KV cache"))
                continue
            if blocks > free or len(admitted) >= seats or (left is not None and tokens > left):
                break
            free -= blocks
            left = None if left is None else left - tokens
            admitted.append(request)
        return admitted

    def _budget(self, view: View) -> int | None:
        if self._spec.max_num_batched_tokens is None and view.max_model_len is not None:
            return max(view.max_model_len, 2048)
        return self._spec.max_num_batched_tokens

    def _decode(self, view: View, is_patient: bool) -> Decision:
        """Advance all running requests; let swapped ones come back if nobody had to give way."""
        victims, growth = decode_in_turn(view)
        returning = [] if victims else self._swap_in(view, growth)
        preempt = tuple(self._modes(victims, view))
        if len(victims) == len(view.running) and not returning:
            return Decision(preempt=preempt)
        calm = not (victims or returning)
        plan = Plan(
            decodes=ALL_RUNNING,
            steady=calm and not is_patient,
            until_arrival=calm and not len(view.swapped) and self._drains(len(view.waiting)),
        )
        return Decision(plan, preempt=preempt, swap_in=tuple(r.id for r in returning))

    def _drains(self, num_waiting: int) -> bool:
        """Whether decodes are all that is left, and no admission depends on the time."""
        return not num_waiting and not self._spec.scheduler_delay_factor

    def _modes(self, victims: Iterable[RequestView], view: View) -> Iterable[tuple[int, Mode]]:
        room = view.kv.host_free
        for victim in victims:
            blocks = view.kv.blocks_for(victim.computed)
            fits = self._swaps and blocks <= room
            room -= blocks if fits else 0
            yield victim.id, Mode.SWAP if fits else Mode.RECOMPUTE

    def _swap_in(self, view: View, growth: int) -> list[RequestView]:
        """Return the leading swapped requests that fit, each with room for its next token."""
        free = view.kv.free - growth - watermark_blocks(view, self._spec.watermark)
        seats = self._spec.max_num_seqs - len(view.running)
        returning: list[RequestView] = []
        for request in view.swapped:
            free -= view.kv.blocks_for(request.computed + 1)
            if free < 0 or len(returning) >= seats:
                break
            returning.append(request)
        return returning


def watermark_blocks(view: View, fraction: float) -> int:
    """Return the number of blocks that admission leaves free."""
    return int(fraction * view.kv.total)


def decode_in_turn(view: View) -> tuple[list[RequestView], int]:
    """Give every decode room for its next token, in running order.

    Where no block is free, the last request that was not looked at yet gives way, or else the
    decode itself. Requests in the middle of their prompt are passed over and keep their blocks.

    Returns
    -------
    victims : list of RequestView
        In the order in which they give way.
    growth : int
        Blocks that the decodes take; only meaningful without victims.
    """
    running, kv = view.running, view.kv
    # A decode needs at most one block more, so the first test is enough while blocks abound.
    if running.num_decodes <= kv.free and not (len(view.waiting) or len(view.swapped)):
        return [], 0
    growth = kv.decode_growth
    if growth <= kv.free:
        return [], growth
    return _evict(deque(running), kv.scratch()), 0


def _evict(queue: deque[RequestView], kv: Scratch) -> list[RequestView]:
    victims: list[RequestView] = []
    while queue:
        request = queue.popleft()
        while request.is_decode and not kv.hold(request, request.computed + 1):
            victim = queue.pop() if queue else request
            kv.release(victim)
            victims.append(victim)
            if victim is request:
                break
    return victims
