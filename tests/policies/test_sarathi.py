import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from policies import ALL_RUNNING, Decision, Limits, Mode, Sarathi, VllmV1, Work
from policies.testing import ScriptedRequest, ScriptedView
from simulator.cost import LinearSpec
from simulator.testing import check_policy
from tests.properties.runs import spec_of, trace
from tests.strategies import Scenario, workloads


def decode(rid: int, context: int = 8) -> ScriptedRequest:
    """Return a request that has stored `context` tokens and misses just its newest one."""
    return ScriptedRequest(rid, context, computed=context, generated=1, max_tokens=99)


def partial(rid: int, prompt: int, computed: int) -> ScriptedRequest:
    """Return a request in the middle of its prompt."""
    return ScriptedRequest(rid, prompt, computed=computed)


def fresh(*prompts: int) -> list[ScriptedRequest]:
    """Return requests that wait, numbered after those a test lets run."""
    return [ScriptedRequest(100 + i, prompt) for i, prompt in enumerate(prompts)]


def decide(parameters: dict, **replica) -> Decision:
    return Sarathi(**({"watermark": 0} | parameters)).build().decide(ScriptedView(**replica))


def preempted(decision: Decision) -> list[int]:
    assert all(mode is Mode.RECOMPUTE for _, mode in decision.preempt)
    return [rid for rid, _ in decision.preempt]


def test_nothing_to_do_is_an_empty_decision():
    assert decide({}) == Decision()


def test_decodes_are_served_before_a_prompt_that_stands_in_front_of_them():
    running = [partial(0, 20, 4), decode(1), decode(2)]
    decision = decide({"chunk_size": 8}, running=running)
    assert decision.plan.decodes is ALL_RUNNING
    assert decision.plan.chunks == (Work(0, 6),)
    # The unified budget of vllm-v1 serves the prompt first, and nothing is left for the decodes.
    unified = VllmV1(max_num_batched_tokens=8).build().decide(ScriptedView(running=running))
    assert unified.plan.chunks == (Work(0, 8),)


def test_decodes_beyond_the_chunk_leave_nothing_for_prompts():
    running = [decode(i) for i in range(4)] + [partial(4, 20, 4)]
    decision = decide({"chunk_size": 3}, running=running, waiting=fresh(5))
    assert (decision.plan.decodes, decision.plan.chunks, decision.admit) == (ALL_RUNNING, (), ())
    assert decision.plan.steady


def test_prompts_under_way_come_before_new_ones():
    decision = decide({"chunk_size": 9}, running=[partial(0, 10, 4)], waiting=fresh(7, 7))
    assert decision.plan.chunks == (Work(0, 6), Work(100, 3))
    assert decision.admit == (100,)
    assert not decision.plan.steady


def test_blocks_for_the_whole_prompt_are_needed_and_reserved():
    replica = {"waiting": [30], "block_size": 4}
    assert decide({"chunk_size": 8}, num_blocks=8, **replica).reserve == ((0, 30),)
    assert decide({"chunk_size": 8}, num_blocks=7, **replica).admit == ()


def test_readmission_needs_blocks_for_generated_tokens_too():
    evicted = ScriptedRequest(0, 6, generated=3, max_tokens=8)
    replica = {"waiting": [evicted], "running": [decode(1, 7)], "block_size": 4}
    assert decide({}, num_blocks=4, **replica).admit == ()
    assert decide({}, num_blocks=5, **replica).reserve == ((0, 9),)


def test_running_decodes_take_their_blocks_before_anyone_is_admitted():
    replica = {"running": [decode(0, 8)], "block_size": 4}
    assert decide({}, waiting=fresh(4), num_blocks=3, **replica).admit == ()
    assert decide({}, waiting=fresh(4), num_blocks=4, **replica).admit == (100,)


def test_watermark_is_kept_free_at_admission_only():
    replica = {"num_blocks": 10, "block_size": 4}
    assert decide({"watermark": 0.2}, waiting=[16, 17], **replica).admit == (0,)
    assert decide({"watermark": 0.2}, waiting=[16, 16], **replica).admit == (0, 1)
    running = [decode(0, 8), decode(1, 8)]
    assert preempted(decide({"watermark": 0.9}, running=running, **replica)) == []


def test_request_that_could_never_be_admitted_is_rejected_and_the_next_is_looked_at():
    decision = decide({"watermark": 0.2}, waiting=[33, 4], num_blocks=10, block_size=4)
    assert decision.reject == ((0, "33 tokens exceed the KV cache"),)
    assert decision.admit == (1,)


def test_sequence_limit_holds_for_all_running_requests():
    running = [decode(0), partial(1, 9, 4)]
    assert decide({"max_num_seqs": 3}, running=running, waiting=fresh(1, 1)).admit == (100,)


def test_last_request_not_looked_at_gives_way_when_blocks_run_out():
    running = [decode(0, 8), decode(1, 7), partial(2, 30, 4)]
    decision = decide({}, running=running, num_blocks=5, block_size=4)
    assert preempted(decision) == [2]
    assert (decision.plan.decodes, decision.plan.chunks) == (ALL_RUNNING, ())


def test_prompt_in_front_is_passed_over_and_the_decode_gives_way_itself():
    running = [partial(0, 12, 8), decode(1, 8)]
    decision = decide({}, running=running, num_blocks=4, block_size=4)
    assert preempted(decision) == [1]
    assert decision.plan.chunks == (Work(0, 4),)


def test_step_that_preempts_admits_nobody():
    running = [decode(0, 8), decode(1, 12)]
    decision = decide({}, running=running, waiting=fresh(1), num_blocks=5, block_size=4)
    assert (preempted(decision), decision.admit) == ([1], ())


DECREASING = {"high_chunk_size": 128, "low_chunk_size": 32, "stages": 4, "max_tokens": 400}


@pytest.mark.parametrize(
    ("computed", "tokens"), [(0, 128), (99, 128), (100, 96), (250, 64), (399, 32), (9000, 32)]
)
def test_chunks_get_smaller_with_the_progress_of_the_prompt(computed, tokens):
    policy = Sarathi(decreasing=DECREASING).build()
    view = ScriptedView(running=[partial(0, 10_000, computed)])
    assert policy.decide(view).plan.chunks == (Work(0, tokens),)
    assert policy.limits.max_num_batched_tokens == 128


def test_one_stage_is_the_low_chunk():
    spec = Sarathi(decreasing=DECREASING | {"stages": 1})
    assert spec.decreasing.sizes() == [32]


def test_budget_strategies_take_the_place_of_the_chunk():
    def step_time(decodes, context, chunks):
        return (decodes + sum(tokens for tokens, _ in chunks)) / 1e3

    budget = {"kind": "model-predictive", "tpot_slo_ms": 20, "slo_fraction": 1}
    policy = Sarathi(chunk_size=64, budget=budget).build()
    view = ScriptedView(running=[decode(0), partial(1, 99, 9)], step_time=step_time)
    assert policy.decide(view).plan.chunks == (Work(1, 19),)


def test_limits_leave_room_for_decodes_beyond_the_chunk():
    assert Sarathi(chunk_size=8).build().limits == Limits(128, 128)
    assert Sarathi(max_num_seqs=9).build().limits == Limits(512, 9)


@pytest.mark.parametrize(
    "parameters",
    [
        {"chunk_size": 0},
        {"max_num_seqs": 0},
        {"watermark": 2},
        {"decreasing": DECREASING | {"low_chunk_size": 160}},
        {"decreasing": DECREASING | {"low_chunk_size": 33}},
        {"decreasing": DECREASING | {"stages": 0}},
        {"decreasing": DECREASING, "chunk_size": 256},
        {"decreasing": DECREASING, "budget": "model-predictive"},
        {"budget": "endless"},
    ],
    ids=repr,
)
def test_nonsense_parameters_are_refused(parameters):
    with pytest.raises(ValidationError):
        Sarathi(**parameters)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(workloads(), st.integers(1, 40), st.integers(1, 8))
def test_without_preemption_no_gap_exceeds_a_full_step(rows, chunk_size, seats):
    # 10.6 (b): the time of a step of max(chunk, decodes) tokens.
    per_token = 1e-3
    cost = LinearSpec(
        fixed_ms=2, per_decode_us=per_token * 1e6, per_prefill_token_us=per_token * 1e6
    )
    policy = Sarathi(chunk_size=chunk_size, max_num_seqs=seats)
    tables = trace(spec_of(Scenario(tuple(rows), None, 16, cost), policy)).result.tables
    assert not tables["requests"]["num_preemptions"].any()
    gaps = tables["gaps"]["gap_s"]
    longest = 0.002 + max(chunk_size, seats) * per_token
    assert np.max(gaps, initial=0.0) <= longest + 1e-8


@pytest.mark.parametrize(
    "parameters",
    [
        {"chunk_size": 1},
        {"chunk_size": 5, "max_num_seqs": 3},
        {"chunk_size": 8, "watermark": 0.2},
        {"decreasing": DECREASING | {"max_tokens": 16}},
        {"chunk_size": 64, "budget": {"kind": "model-predictive", "tpot_slo_ms": 10}},
    ],
    ids=repr,
)
def test_it_keeps_the_contract(parameters):
    check_policy(Sarathi(**parameters), num_traces=10)
