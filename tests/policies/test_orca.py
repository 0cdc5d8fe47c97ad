"""`orca`: iteration-level scheduling with a full reservation, strictly first come, first served."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from policies import ALL_RUNNING, Decision, Orca, Plan, Work
from policies.testing import ScriptedRequest, ScriptedView
from simulator.testing import check_policy
from tests.properties.runs import property_test
from tests.simulator.harness import column, run
from tests.strategies import Scenario, scenarios


def asking(*max_tokens: int, prompt: int = 4) -> list[ScriptedRequest]:
    return [ScriptedRequest(i, prompt, max_tokens=most) for i, most in enumerate(max_tokens)]


def decode(rid: int) -> ScriptedRequest:
    return ScriptedRequest(rid, 8, computed=8, generated=1, max_tokens=99)


def test_sleeps_while_nobody_is_there():
    assert Orca().build().decide(ScriptedView()) == Decision()


def test_whole_prompts_join_the_decodes_of_the_others():
    view = ScriptedView(waiting=[5, 900], running=[decode(8), decode(9)])
    decision = Orca().build().decide(view)
    assert decision.plan == Plan(
        decodes=ALL_RUNNING, chunks=(Work(0, 5), Work(1, 900)), until_arrival=True
    )
    assert decision.admit == (0, 1)


def test_plan_is_steady_when_nobody_joins():
    policy = Orca(max_bs=2).build()
    assert not policy.decide(ScriptedView(waiting=[4, 4, 4])).plan.steady
    view = ScriptedView(waiting=[4], running=[decode(8), decode(9)])
    assert policy.decide(view) == Decision(Plan(decodes=ALL_RUNNING, steady=True))


def test_number_of_running_requests_is_limited():
    policy = Orca(max_bs=3).build()
    assert policy.limits.max_num_seqs == 3
    assert policy.decide(ScriptedView(waiting=[4, 4], running=[decode(8), decode(9)])).admit == (0,)


def test_slots_are_reserved_by_the_cap_of_each_request():
    policy = Orca(n_slots=20).build()
    assert policy.decide(ScriptedView(waiting=asking(8, 12, 1))).admit == (0, 1)


def test_request_without_slots_stops_those_behind_it():
    policy = Orca(n_slots=20).build()
    assert policy.decide(ScriptedView(waiting=asking(8, 13, 1))).admit == (0,)


def test_slots_come_back_when_a_request_leaves():
    policy = Orca(n_slots=20).build()
    first, second = asking(15, 10)
    policy.decide(ScriptedView(waiting=[first, second]))
    blocked = ScriptedView(waiting=[second], running=[decode(0)])
    assert policy.decide(blocked).admit == ()
    policy.on_finish(first, blocked)
    assert policy.decide(ScriptedView(waiting=[second])).admit == (1,)


def test_request_that_leaves_before_it_started_gives_no_slots_back():
    policy = Orca(n_slots=20).build()
    first, second, third = asking(15, 10, 6)
    policy.decide(ScriptedView(waiting=[first, second, third]))
    policy.on_finish(second, ScriptedView())
    assert policy.decide(ScriptedView(waiting=[third], running=[decode(0)])).admit == ()


def test_blocks_for_prompt_and_cap_are_held_from_the_start():
    decision = Orca().build().decide(ScriptedView(waiting=asking(8, 2, prompt=5)))
    assert decision.reserve == ((0, 13), (1, 7))


def test_request_whose_blocks_are_not_free_stops_those_behind_it():
    view = ScriptedView(waiting=asking(4, 9, 1), num_blocks=5, block_size=4)
    assert Orca().build().decide(view).admit == (0,)


def test_max_seq_len_reserves_the_same_for_everybody():
    policy = Orca(reserve="max_seq_len", max_seq_len=12, n_slots=40).build()
    decision = policy.decide(ScriptedView(waiting=asking(1, 8, 2, 2)))
    assert decision.reserve == ((0, 12), (1, 12), (2, 12))
    view = ScriptedView(waiting=asking(1, 1, 1), num_blocks=8, block_size=4)
    fresh = Orca(reserve="max_seq_len", max_seq_len=12).build()
    assert fresh.decide(view).admit == (0, 1)


@pytest.mark.parametrize(
    ("parameters", "request_", "reason"),
    [
        ({"n_slots": 9}, ScriptedRequest(0, 4, max_tokens=10), "max_tokens 10 exceed n_slots 9"),
        ({}, ScriptedRequest(0, 5, max_tokens=8), "a reservation of 13 tokens exceeds"),
        (
            {"reserve": "max_seq_len", "max_seq_len": 9},
            ScriptedRequest(0, 4, max_tokens=6),
            "prompt + max_tokens 10 exceed max_seq_len 9",
        ),
        ({"reserve": "max_seq_len", "max_seq_len": 16}, ScriptedRequest(0), "of 16 tokens"),
    ],
)
def test_requests_that_can_never_run_are_rejected(parameters, request_, reason):
    view = ScriptedView(num_blocks=3, block_size=4)
    assert reason in Orca(**parameters).build().on_submit(request_, view)
    assert Orca(n_slots=9).build().on_submit(ScriptedRequest(0, 3, max_tokens=9), view) is None


@pytest.mark.parametrize(
    "parameters",
    [
        {"max_bs": 0},
        {"n_slots": 0},
        {"n_slots": 1.5},
        {"reserve": "everything"},
        {"reserve": "max_seq_len"},
        {"max_seq_len": 12},
        {"max_seq_len": 1, "reserve": "max_seq_len"},
        {"max_seq_len": 12, "reserve": "max_seq_len", "n_slots": 11},
        {"max_batch_size": 8},
    ],
    ids=repr,
)
def test_nonsense_parameters_are_refused(parameters):
    with pytest.raises(ValidationError):
        Orca(**parameters)


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"max_bs": 1},
        {"max_bs": 3, "n_slots": 17},
        {"reserve": "max_seq_len", "max_seq_len": 40, "n_slots": 90},
    ],
    ids=repr,
)
def test_contract(parameters):
    check_policy(Orca(**parameters), num_traces=8)


@property_test
@given(scenarios())
def test_batches_of_one_are_the_first_come_first_served_server(scenario: Scenario) -> None:
    ours, expected = (run(scenario.rows, p, scenario.cost) for p in (Orca(max_bs=1), "none"))
    for name in ("first_scheduled_s", "first_token_s", "last_token_s", "finish_s"):
        assert column(ours, name) == column(expected, name)


@property_test
@given(scenarios(max_requests=12), st.integers(1, 5), st.sampled_from([None, 20, 33]))
def test_nobody_is_preempted_and_nobody_overtakes(
    scenario: Scenario, max_bs: int, n_slots: int | None
) -> None:
    """With scarce blocks too."""
    engine = {"num_blocks": scenario.num_blocks, "block_size": scenario.block_size}
    policy = Orca(max_bs=max_bs, n_slots=n_slots)
    result = run(scenario.rows, policy, scenario.cost, engine=engine)
    assert not any(column(result, "num_preemptions"))
    assert set(column(result, "state")) <= {"finished", "rejected"}
    states = zip(column(result, "state"), column(result, "first_scheduled_s"), strict=True)
    starts = [start for state, start in states if state == "finished"]
    assert starts == sorted(starts)
    assert max(column(result, "num_running", "steps"), default=0) <= max_bs


@property_test
@given(scenarios(max_requests=12), st.integers(1, 5))
def test_with_room_for_all_it_is_vllm_v1_without_a_budget(scenario: Scenario, rows: int) -> None:
    other = {"kind": "vllm-v1", "max_num_seqs": rows, "max_num_batched_tokens": 2**20}
    ours, theirs = (run(scenario.rows, p, scenario.cost) for p in (Orca(max_bs=rows), other))
    for name in ("first_scheduled_s", "first_token_s", "last_token_s", "finish_s"):
        assert column(ours, name) == column(theirs, name)
