"""Continuous batching with one token budget a step: the scheduler of vLLM V1.

Source: vLLM 0.32 `v1/core/sched/scheduler.py`, rules checked against recorded decisions. There is
no prefill or decode phase: a step lets every request catch up with the tokens it knows.
"""

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, model_validator

from policies.base import Limits, Machine, Policy, PolicySpec
from policies.budgets import AnyBudget, ConstantBudget, Fixed
from policies.continuous import Continuous, Rules
from policies.orders import AnyOrder, Fcfs, QueueOrder

Preset = Literal["vllm-v1-2026", "vllm-v1-2026-small-gpu", "vllm-ascend-0.13"]

_VLLM_2026 = {
    "max_num_batched_tokens": 8192,
    "max_num_seqs": 1024,
    "max_num_active_seqs": None,
    "enable_chunked_prefill": True,
    "long_prefill_token_threshold": 0,
    "long_prefill_token_threshold_adaptive": False,
    "watermark": 0.0,
    "scheduler_reserve_full_isl": True,
    "decodes_first": False,
    "order": "fcfs",
    "budget": "fixed",
}
PRESETS: Mapping[str, Mapping[str, object]] = {
    "vllm-v1-2026": _VLLM_2026,
    "vllm-v1-2026-small-gpu": _VLLM_2026 | {"max_num_batched_tokens": 2048, "max_num_seqs": 256},
    "vllm-ascend-0.13": _VLLM_2026
    | {
        "max_num_batched_tokens": 2048,
        "max_num_seqs": 256,
        "decodes_first": True,
        "budget": {
            "kind": "ascend-table",
            "slo_ms": 50,
            "on_miss": "default",
            "lookup_order": "cpython_set",
        },
    },
}
"""Every parameter of a version, as its own defaults were: the API server of vLLM on GPUs of 70 GiB
and more, and on smaller ones; the dynamic batch of vllm-ascend, faults included."""


class VllmV1(PolicySpec):
    """Serve running requests first, then admit waiting ones while the token budget lasts.

    1. Running requests in order of admission get `min(remaining, threshold, budget left)` tokens.
       When blocks run out, the last running request (by `order: priority`, the least urgent one)
       is preempted until it fits; it will compute all its tokens again. With `decodes_first`,
       decodes come before prompts under way, in the order in which their prompts were done, and
       the first request that gets nothing ends the round.
    2. Unless someone was preempted, waiting requests are admitted in order while budget,
       `max_num_seqs` and blocks allow; the first that does not fit ends the pass.

    Notes
    -----
    The watermark counts at admission only and is waived for an idle replica, as in the source.
    Not modelled: speculative decoding, LoRA, encoder inputs, KV connectors. `decodes_first`,
    budgets other than `fixed`, `sjf`, `srpt` and `edf` are not in vLLM; see their own sources.

    Examples
    --------
    Earliest deadline first with the dynamic batch of vllm-ascend:

    >>> spec = VllmV1(order="edf", budget={"kind": "ascend-table", "slo_ms": 50})
    >>> spec.budget.decodes_first
    True

    Eight tokens a step:

    >>> from policies.testing import ScriptedView
    >>> decision = VllmV1(max_num_batched_tokens=8).build().decide(ScriptedView(waiting=[5, 10]))
    >>> decision.admit, [work.tokens for work in decision.plan.chunks]
    ((0, 1), [5, 3])
    """

    kind: Literal["vllm-v1"] = "vllm-v1"
    preset: Preset | None = None
    """Defaults of a version, pinned; parameters that are given stand above them."""
    max_num_batched_tokens: int = Field(8192, ge=1)
    """Token budget of a step. vLLM's API server: 8192 on GPUs of 70 GiB and more, else 2048."""
    max_num_seqs: int = Field(256, ge=1)
    """Largest number of running requests. vLLM's API server: 1024 on large GPUs, else 256."""
    max_num_active_seqs: int | None = Field(None, ge=1)
    """A lower limit for admission; None: `max_num_seqs`."""
    enable_chunked_prefill: bool = True
    """Whether a prompt may be cut to the budget that is left."""
    long_prefill_token_threshold: int = Field(0, ge=0)
    """Most tokens one request gets in a step while two or more are in the system; 0: no cap."""
    long_prefill_token_threshold_adaptive: bool = False
    """Raise the threshold to an equal share of the budget for all requests in the system."""
    watermark: float = Field(0.0, ge=0, lt=1)
    """Fraction of all blocks (the reserved null block included) kept free at admission."""
    scheduler_reserve_full_isl: bool = True
    """Admit only if blocks for all known tokens are free, not just for the first chunk."""
    order: AnyOrder = Fcfs()
    """Order of the waiting queue, and with it the choice of a victim."""
    budget: AnyBudget = Fixed()
    """Token budget of each step, at most `max_num_batched_tokens`."""
    decodes_first: bool | None = None
    """Serve running decodes before running prompts. None: where the budget is meant for it."""

    @model_validator(mode="before")
    @classmethod
    def _pin(cls, data: object) -> object:
        if not isinstance(data, dict):
            return data
        return {**PRESETS.get(str(data.get("preset")), {}), **data}

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.budget.kind != "fixed" and not self.enable_chunked_prefill:
            raise ValueError(
                f"budget {self.budget.kind} cuts prompts, but enable_chunked_prefill is false"
            )
        return self

    def build(self) -> Policy:
        """Return a new decision maker."""
        rules = Rules(
            self.max_num_batched_tokens,
            self.max_num_seqs,
            self.max_num_active_seqs,
            self.enable_chunked_prefill,
            self.long_prefill_token_threshold,
            self.long_prefill_token_threshold_adaptive,
            self.watermark,
            self.scheduler_reserve_full_isl,
            self.budget.decodes_first if self.decodes_first is None else self.decodes_first,
        )
        limits = Limits(self.max_num_batched_tokens, self.max_num_seqs)
        budget = self.budget.build(self.max_num_batched_tokens)
        return Continuous(rules, limits, self.order.build(), budget)

    def refusal(self, machine: Machine) -> str | None:
        """Return why the budget is too small for a block, or for prompts that are not cut."""
        if self.enable_chunked_prefill:
            return below_a_block("max_num_batched_tokens", self.max_num_batched_tokens, machine)
        return too_small(self.max_num_batched_tokens, machine)


def too_small(budget: int | None, machine: Machine) -> str | None:
    """Return why a step that takes whole prompts is too small for the machine, or None."""
    limit = machine.max_model_len
    if budget is None:
        return None
    if limit is not None and budget < limit:
        return (
            f"max_num_batched_tokens {budget} is below the context limit of {limit} tokens, "
            "and prompts are not cut"
        )
    return below_a_block("max_num_batched_tokens", budget, machine)


def below_a_block(name: str, budget: int, machine: Machine) -> str | None:
    """Return why a step does not fill even one block of a limited KV cache, or None."""
    if machine.block_size is None or budget >= machine.block_size:
        return None
    return f"{name} {budget} is below one KV block of {machine.block_size} tokens"


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
        rules = Rules(max_num_batched_tokens=_ANY_PROMPT, max_num_seqs=1)
        limits = Limits(max_num_seqs=1)
        return Continuous(rules, limits, QueueOrder(), ConstantBudget(_ANY_PROMPT))


_ANY_PROMPT = 2**31
"""A token budget above any prompt."""
