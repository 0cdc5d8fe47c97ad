"""Hypothesis strategies: small workloads, machines and policies, shared by property tests.

Arrivals, and many windows and steps, are multiples of 2^-8 s, so that events often coincide.
"""

from dataclasses import dataclass

from hypothesis import strategies as st

from policies import (
    OneAtATime,
    PolicySpec,
    Release,
    Static,
    VllmV1,
    WindowEnqueue,
    WindowPull,
)
from policies.orders import Fcfs, Priority
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
        order=draw(st.sampled_from([Fcfs(), Priority()])),
    )


def policies() -> st.SearchStrategy[PolicySpec]:
    """Draw any built-in policy with random parameters."""
    return st.one_of(
        st.just(OneAtATime()), statics(), window_pulls(), window_enqueues(), vllm_v1s()
    )
