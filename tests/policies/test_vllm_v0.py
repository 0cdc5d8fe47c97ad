from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from policies import (
    ALL_RUNNING,
    Decision,
    Limits,
    Machine,
    Mode,
    OneAtATime,
    Release,
    Static,
    VllmV0,
    VllmV1,
    Work,
)
from policies.testing import ScriptedRequest, ScriptedView
from simulator.testing import check_policy
from tests.properties.runs import spec_of, trace
from tests.strategies import Scenario, scenarios


def decode(rid: int, context: int = 8) -> ScriptedRequest:
    """Return a request that has stored `context` tokens and misses just its newest one."""
    return ScriptedRequest(rid, context, computed=context, generated=1, max_tokens=99)


def fresh(*prompts: int) -> list[ScriptedRequest]:
    """Return requests that wait, numbered after those a test lets run."""
    return [ScriptedRequest(100 + i, prompt) for i, prompt in enumerate(prompts)]


def away(*contexts: int) -> list[ScriptedRequest]:
    """Return requests that are swapped out with so many tokens."""
    return [decode(200 + i, context) for i, context in enumerate(contexts)]


def decide(parameters: dict, **replica) -> Decision:
    return VllmV0(**({"watermark": 0} | parameters)).build().decide(ScriptedView(**replica))


def preempted(decision: Decision) -> list[int]:
    return [rid for rid, _ in decision.preempt]


def test_nothing_to_do_is_an_empty_decision():
    assert decide({}) == Decision()


def test_prompts_that_fit_make_a_step_of_their_own():
    decision = decide({}, running=[decode(0)], waiting=fresh(5, 3))
    assert decision.admit == (100, 101)
    assert decision.plan.decodes == ()
    assert decision.plan.chunks == (Work(100, 5), Work(101, 3))
    assert not decision.plan.steady


def test_all_running_requests_advance_when_nobody_is_admitted():
    decision = decide({}, running=[decode(0), decode(1)])
    assert decision.plan.decodes is ALL_RUNNING
    assert decision.plan.steady


def test_prompts_are_never_cut_to_the_budget():
    parameters = {"max_num_batched_tokens": 8}
    assert decide(parameters, waiting=[5, 4]).admit == (0,)
    assert decide(parameters, waiting=[5, 3, 1]).admit == (0, 1)


def test_first_request_that_does_not_fit_ends_the_pass():
    assert decide({}, waiting=[4, 40, 4], num_blocks=10, block_size=4).admit == (0,)
    assert decide({"max_num_seqs": 2}, running=[decode(0)], waiting=fresh(1, 1)).admit == (100,)


def test_prompt_above_the_budget_is_rejected_when_its_turn_comes_and_the_next_is_looked_at():
    decision = decide({"max_num_batched_tokens": 8}, waiting=[9, 4])
    assert decision.reject == ((0, "9 tokens exceed the step of 8"),)
    assert decision.admit == (1,)


def test_request_that_outgrew_the_budget_before_it_was_preempted_is_rejected_too():
    evicted = ScriptedRequest(0, 6, generated=3, max_tokens=8)
    decision = decide({"max_num_batched_tokens": 8}, waiting=[evicted], running=[decode(1)])
    assert decision.reject == ((0, "9 tokens exceed the step of 8"),)
    assert decision.plan.decodes is ALL_RUNNING


def test_request_that_exceeds_the_cache_less_the_watermark_is_rejected():
    replica = {"num_blocks": 10, "block_size": 4}
    assert decide({"watermark": 0.2}, waiting=[33], **replica).reject == (
        (0, "33 tokens exceed the KV cache"),
    )
    assert decide({"watermark": 0.2}, waiting=[32], **replica).admit == (0,)


def test_watermark_is_kept_free_for_an_idle_replica_too():
    replica = {"num_blocks": 10, "block_size": 4}
    assert decide({"watermark": 0.2}, waiting=[16, 17], **replica).admit == (0,)
    assert decide({"watermark": 0.2}, waiting=[16, 16], **replica).admit == (0, 1)


def test_watermark_does_not_hold_up_decodes():
    replica = {"running": [decode(0, 8), decode(1, 8)], "num_blocks": 6, "block_size": 4}
    assert preempted(decide({"watermark": 0.9}, **replica)) == []


@pytest.mark.parametrize(("max_model_len", "longest"), [(1024, 2048), (4096, 4096), (None, 10**6)])
def test_budget_is_the_context_limit_or_2048_unless_given(max_model_len, longest):
    view = {"max_model_len": max_model_len}
    assert decide({}, waiting=[longest], **view).admit == (0,)
    if max_model_len is not None:
        assert decide({}, waiting=[longest + 1], **view).reject


def test_last_request_not_looked_at_gives_way_when_blocks_run_out():
    running = [decode(0, 8), decode(1, 7), decode(2, 8)]
    decision = decide({}, running=running, num_blocks=6, block_size=4)
    assert preempted(decision) == [2]
    decision = decide({}, running=running[::2], num_blocks=4, block_size=4)
    assert preempted(decision) == [2]


def test_request_that_nobody_stands_behind_gives_way_itself():
    running = [decode(0, 7), decode(1, 8)]
    decision = decide({}, running=running, num_blocks=4, block_size=4)
    assert preempted(decision) == [1]
    assert decision.plan.decodes is ALL_RUNNING
    assert decide({}, running=[decode(0, 8)], num_blocks=2, block_size=4).plan is None


def test_no_block_is_needed_where_the_last_one_has_room():
    running = [decode(0, 7), decode(1, 6)]
    assert preempted(decide({}, running=running, num_blocks=4, block_size=4)) == []


def test_victims_are_recomputed_or_swapped_as_the_parameter_says():
    replica = {"running": [decode(0, 8), decode(1, 8)], "num_blocks": 4, "block_size": 4}
    assert decide({}, **replica).preempt == ((1, Mode.RECOMPUTE),)
    assert decide({"preemption_mode": "swap"}, **replica).preempt == ((1, Mode.SWAP),)


def test_victim_that_the_host_has_no_room_for_is_recomputed():
    running = [decode(0, 8), decode(1, 4), decode(2, 8), decode(3, 4)]
    replica = {"running": running, "num_blocks": 6, "block_size": 4, "host_free": 1}
    decision = decide({"preemption_mode": "swap"}, **replica)
    assert decision.preempt == ((3, Mode.SWAP), (2, Mode.RECOMPUTE))
    replica["running"] = [decode(0, 8), decode(1, 8)]
    replica["num_blocks"] = 4
    assert decide({"preemption_mode": "swap"}, **replica).preempt == ((1, Mode.RECOMPUTE),)


def test_nobody_is_admitted_while_someone_is_swapped_out():
    decision = decide({}, running=[decode(0)], waiting=fresh(1), swapped=away(80), num_blocks=5)
    assert (decision.admit, decision.swap_in) == ((), ())
    assert decision.plan.steady


@pytest.mark.parametrize(("num_blocks", "returning"), [(5, ()), (6, (200,)), (7, (200, 201))])
def test_swapped_requests_come_back_in_order_with_room_for_the_next_token(num_blocks, returning):
    # The decode grows by a block; 8 tokens and the next one take 3, 3 and the next one 1.
    replica = {"running": [decode(0, 8)], "swapped": away(8, 3), "block_size": 4}
    decision = decide({}, num_blocks=num_blocks, **replica)
    assert decision.swap_in == returning
    assert decision.plan.decodes is ALL_RUNNING
    assert decision.plan.steady is not bool(returning)


def test_swapping_in_respects_watermark_and_sequence_limit():
    replica = {"swapped": away(3, 3), "num_blocks": 10, "block_size": 4}
    assert decide({}, **replica).swap_in == (200, 201)
    assert decide({"watermark": 0.9}, **replica).swap_in == (200,)
    assert decide({"max_num_seqs": 1}, **replica).swap_in == (200,)


def test_nobody_comes_back_in_a_step_that_preempts():
    running = [decode(0, 8), decode(1, 8)]
    replica = {"running": running, "swapped": away(1), "num_blocks": 4, "block_size": 4}
    decision = decide({"preemption_mode": "swap"}, **replica)
    assert (preempted(decision), decision.swap_in) == ([1], ())


def test_delay_counts_from_the_oldest_arrival_and_the_last_prompt_step():
    policy = VllmV0(scheduler_delay_factor=2).build()
    policy.decide(ScriptedView(now=1.0, waiting=[4]))
    policy.decide(ScriptedView(now=1.5, running=[decode(0)]))  # the prompts took 0.5 s
    waiting = [ScriptedRequest(9, 4, arrival=2.0)]
    patient = policy.decide(ScriptedView(now=3.0, running=[decode(0)], waiting=waiting))
    assert patient.admit == ()
    assert not patient.plan.steady
    assert policy.decide(ScriptedView(now=3.25, running=[decode(0)], waiting=waiting)).admit == (9,)


def test_delay_is_waived_when_nothing_runs():
    policy = VllmV0(scheduler_delay_factor=9).build()
    policy.decide(ScriptedView(now=0.0, waiting=[4]))
    assert policy.decide(ScriptedView(now=1.0, waiting=[4])).admit == (0,)


def test_limits_leave_room_for_decodes_beyond_the_budget():
    assert VllmV0().build().limits == Limits(None, 256)
    assert VllmV0(max_num_batched_tokens=16).build().limits == Limits(256, 256)
    assert VllmV0(max_num_batched_tokens=512, max_num_seqs=9).build().limits == Limits(512, 9)


@pytest.mark.parametrize(
    "parameters",
    [
        {"max_num_batched_tokens": 0},
        {"max_num_seqs": 0},
        {"watermark": -0.1},
        {"watermark": 1.0},
        {"watermark": 2},
        {"scheduler_delay_factor": -1},
        {"scheduler_delay_factor": float("inf")},
        {"preemption_mode": "drop"},
        {"enable_chunked_prefill": True},
    ],
    ids=repr,
)
def test_nonsense_parameters_are_refused(parameters):
    with pytest.raises(ValidationError):
        VllmV0(**parameters)


@pytest.mark.parametrize("spec", [VllmV0, partial(VllmV1, enable_chunked_prefill=False)])
def test_whole_prompts_up_to_the_context_limit_have_to_fit_a_step(spec):
    assert spec(max_num_batched_tokens=512).refusal(Machine(513)) == (
        "max_num_batched_tokens 512 is below the context limit of 513 tokens, and prompts are not "
        "cut"
    )
    assert spec(max_num_batched_tokens=512).refusal(Machine(512)) is None
    assert spec(max_num_batched_tokens=512).refusal(Machine(None)) is None
    assert VllmV0().refusal(Machine(10**6)) is None
    assert VllmV1(max_num_batched_tokens=512).refusal(Machine(513)) is None


@settings(max_examples=60, deadline=None, derandomize=True)
@given(scenarios())
def test_one_seat_is_a_single_server_first_come_first_served(scenario: Scenario):
    lines = [
        trace(spec_of(scenario, policy)).lines
        for policy in (
            VllmV0(max_num_seqs=1, watermark=0),
            OneAtATime(),
            Static(max_batch_size=1, release=Release.PER_REQUEST),
        )
    ]
    assert lines[0] == lines[1] == lines[2]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(scenarios(), st.integers(1, 6))
def test_swapping_never_computes_twice_and_both_modes_finish_all(scenario: Scenario, seats: int):
    tables = {}
    for mode in ("recompute", "swap"):
        policy = VllmV0(watermark=0, max_num_seqs=seats, preemption_mode=mode)
        tables[mode] = trace(spec_of(scenario, policy)).result.tables["requests"]
        assert set(tables[mode]["state"]) == {"finished"}
    assert tables["swap"]["recomputed_tokens"].sum() == 0
    if not tables["recompute"]["num_preemptions"].any():
        for name, column in tables["recompute"].items():
            assert column.tobytes() == tables["swap"][name].tobytes()


@pytest.mark.parametrize(
    "parameters",
    [
        {"preemption_mode": "swap", "watermark": 0},
        {"preemption_mode": "swap", "scheduler_delay_factor": 2, "max_num_seqs": 3},
        {"max_num_batched_tokens": 20, "max_num_seqs": 3, "watermark": 0.2},
        {"scheduler_delay_factor": 0.5, "max_num_seqs": 2},
    ],
    ids=repr,
)
def test_it_keeps_the_contract(parameters):
    check_policy(VllmV0(**parameters), num_traces=12)
