"""Hypothesis strategies: small workloads, machines and policies, shared by property tests.

Arrivals, and many windows and steps, are multiples of 2^-8 s, so that events often coincide.
"""

from dataclasses import dataclass

from hypothesis import strategies as st

from policies import (
    ClipperAimd,
    OneAtATime,
    Orca,
    PolicySpec,
    Release,
    Sarathi,
    Static,
    Triton,
    VllmV0,
    VllmV1,
    WindowEnqueue,
    WindowFreeze,
    WindowPull,
)
from policies.budgets import AscendTable, BudgetSpec, Fixed, ModelPredictive
from policies.orders import Edf, Fcfs, OrderSpec, Priority, Sjf, Srpt
from policies.predictors import ClassMean, NoisyOracle
from simulator.cost import BaseCostSpec, FixedSpec, LinearBatchSpec, LinearSpec
from workloads.trace import Trace

TICK = 2**-8
"""Arrivals are multiples of it, in seconds."""

MAX_PROMPT, MAX_OUTPUT = 40, 20
"""Longest prompt and output that `workloads` draws, tokens."""

Row = tuple[float, int, int]
"""Arrival in seconds, prompt tokens, output tokens."""


@dataclass(frozen=True)
class Scenario:
    """Everything a run needs but the policy.

    `num_blocks` holds the longest request alone, so that a policy which serves one request at a
    time can always finish.
    """

    rows: tuple[Row, ...]
    num_blocks: int | None
    block_size: int
    cost: BaseCostSpec

    @property
    def trace(self) -> Trace:
        """The requests as a trace; caps are the output lengths."""
        return Trace(*zip(*self.rows, strict=True))


@st.composite
def workloads(draw: st.DrawFn, *, max_requests: int = 8) -> list[Row]:
    """Draw requests in order of arrival; several may arrive at once, short ones are common."""
    prompts = st.one_of(st.integers(1, 4), st.integers(1, MAX_PROMPT))
    outputs = st.one_of(st.sampled_from([1, 2]), st.integers(1, MAX_OUTPUT))
    gaps = st.one_of(st.just(0), st.integers(0, 8), st.integers(0, 200))
    rows = draw(st.lists(st.tuples(gaps, prompts, outputs), min_size=1, max_size=max_requests))
    now, workload = 0.0, []
    for gap, prompt, output in rows:
        now += gap * TICK
        workload.append((now, prompt, output))
    return workload


def costs() -> st.SearchStrategy[BaseCostSpec]:
    """Draw a deterministic cost model with steps of a few milliseconds."""
    ms = st.integers(1, 8).map(lambda ticks: ticks * TICK * 1e3)
    us = st.integers(0, 500).map(float)
    return st.one_of(
        st.builds(FixedSpec, step_ms=ms),
        st.builds(LinearBatchSpec, fixed_ms=ms, per_request_ms=st.floats(0, 3)),
        st.builds(LinearSpec, fixed_ms=ms, per_decode_us=us, per_prefill_token_us=us),
    )


@st.composite
def scenarios(draw: st.DrawFn, *, max_requests: int = 8) -> Scenario:
    """Draw a workload and a machine with an ample or a scarce KV cache."""
    rows = tuple(draw(workloads(max_requests=max_requests)))
    block_size = draw(st.sampled_from([1, 2, 4, 16]))
    least = max(-(-(prompt + output) // block_size) for _, prompt, output in rows)
    spare = draw(st.one_of(st.none(), st.integers(0, 3), st.integers(0, 30)))
    num_blocks = None if spare is None else least + spare
    return Scenario(rows, num_blocks, block_size, draw(costs()))


def _request_level() -> dict[str, st.SearchStrategy[object]]:
    return {
        "max_batch_size": st.integers(1, 5),
        "max_seq_len": st.one_of(st.none(), st.just(MAX_PROMPT + MAX_OUTPUT), st.integers(2, 40)),
        "drop_finished": st.booleans(),
        "release": st.sampled_from(Release),
    }


def _waits() -> st.SearchStrategy[float]:
    ticks = st.integers(0, 40).map(lambda n: n * TICK * 1e3)
    return st.one_of(st.just(0.0), ticks, st.floats(0, 100))


def statics() -> st.SearchStrategy[Static]:
    """Draw a `static` policy."""
    return st.builds(Static, **_request_level())


def window_pulls() -> st.SearchStrategy[WindowPull]:
    """Draw a `window-pull` policy."""
    return st.builds(WindowPull, max_wait_ms=_waits(), **_request_level())


def window_enqueues() -> st.SearchStrategy[WindowEnqueue]:
    """Draw a `window-enqueue` policy."""
    enqueued = st.integers(1, 4)
    return st.builds(
        WindowEnqueue, max_wait_ms=_waits(), max_enqueued_batches=enqueued, **_request_level()
    )


def window_freezes() -> st.SearchStrategy[WindowFreeze]:
    """Draw a `window-freeze` policy."""
    return st.builds(WindowFreeze, max_wait_ms=_waits(), **_request_level())


def clippers() -> st.SearchStrategy[ClipperAimd]:
    """Draw a `clipper-aimd` policy."""
    return st.builds(
        ClipperAimd, slo_ms=st.sampled_from([5.0, 50.0]), max_wait_ms=_waits(), **_request_level()
    )


@st.composite
def tritons(draw: st.DrawFn) -> Triton:
    """Draw a `triton` policy, some with limits of the queue and with levels."""
    largest = draw(st.integers(1, 5))
    levels = draw(st.sampled_from([0, 0, 2]))
    return Triton(
        max_batch_size=largest,
        preferred_batch_size=tuple(draw(st.lists(st.integers(1, largest), max_size=2))),
        max_queue_delay_microseconds=draw(st.sampled_from([0, 7812, 50_000])),
        max_queue_size=draw(st.sampled_from([0, 0, 2])),
        default_timeout_microseconds=draw(st.sampled_from([0, 0, 30_000])),
        timeout_action=draw(st.sampled_from(["REJECT", "DELAY"])),
        priority_levels=levels,
        default_priority_level=levels,
        release=draw(st.sampled_from(Release)),
    )


def orcas() -> st.SearchStrategy[Orca]:
    """Draw an `orca` policy."""
    slots = st.one_of(st.none(), st.integers(MAX_PROMPT + MAX_OUTPUT, 200))
    return st.builds(Orca, max_bs=st.integers(1, 5), n_slots=slots)


def vllm_v0s() -> st.SearchStrategy[VllmV0]:
    """Draw a `vllm-v0` policy that recomputes or swaps."""
    return st.builds(
        VllmV0,
        max_num_seqs=st.integers(1, 5),
        watermark=st.sampled_from([0.0, 0.01]),
        scheduler_delay_factor=st.sampled_from([0.0, 0.5]),
        preemption_mode=st.sampled_from(["recompute", "swap"]),
    )


def sarathis() -> st.SearchStrategy[Sarathi]:
    """Draw a `sarathi` policy."""
    return st.builds(
        Sarathi,
        chunk_size=st.sampled_from([1, 5, 16, 512]),
        max_num_seqs=st.integers(1, 5),
        watermark=st.sampled_from([0.0, 0.01]),
        budget=budgets(),
    )


def budgets() -> st.SearchStrategy[BudgetSpec]:
    """Draw a budget of a step; half of them are fixed."""
    tables = st.builds(
        AscendTable,
        slo_ms=st.sampled_from([-1.0, 0.0, 6.0, 20.0]),
        on_miss=st.sampled_from(["min", "default"]),
        ctx_lens=st.just((8, 32)),
        d_nums=st.just((1, 3)),
        chunk_sizes=st.just((2, 8, 32)),
    )
    predictive = st.builds(
        ModelPredictive, tpot_slo_ms=st.sampled_from([5.0, 15.0]), min_chunk=st.just(2)
    )
    return st.one_of(st.just(Fixed()), tables | predictive)


def orders() -> st.SearchStrategy[OrderSpec]:
    """Draw an order of the queue."""
    return st.sampled_from(
        [
            Fcfs(),
            Priority(),
            Sjf(predictor=NoisyOracle()),
            Sjf(predictor=ClassMean(), work="output-tokens"),
            Srpt(),
            Edf(ttft_slo_ms=100, tpot_slo_ms=10),
            Edf(ttft_slo_ms=100, tpot_slo_ms=10, preemptive=True),
        ]
    )


@st.composite
def vllm_v1s(draw: st.DrawFn) -> VllmV1:
    """Draw a `vllm-v1` policy; without chunks the budget holds the longest request, as in vLLM."""
    chunked = draw(st.booleans())
    least = 1 if chunked else MAX_PROMPT + MAX_OUTPUT
    return VllmV1(
        max_num_batched_tokens=draw(st.one_of(st.integers(least, least + 20), st.just(8192))),
        max_num_seqs=draw(st.one_of(st.integers(1, 4), st.just(256))),
        enable_chunked_prefill=chunked,
        long_prefill_token_threshold=draw(st.one_of(st.just(0), st.integers(1, 10))),
        watermark=draw(st.sampled_from([0.0, 0.01, 0.3])),
        scheduler_reserve_full_isl=draw(st.booleans()),
        max_num_active_seqs=draw(st.one_of(st.none(), st.integers(1, 4))),
        long_prefill_token_threshold_adaptive=draw(st.booleans()),
        order=draw(orders()),
        budget=draw(budgets()) if chunked else Fixed(),
    )


def policies() -> st.SearchStrategy[PolicySpec]:
    """Draw any built-in policy with random parameters."""
    return st.one_of(
        st.just(OneAtATime()),
        statics(),
        window_pulls(),
        window_enqueues(),
        window_freezes(),
        tritons(),
        clippers(),
        orcas(),
        vllm_v0s(),
        vllm_v1s(),
        sarathis(),
    )
