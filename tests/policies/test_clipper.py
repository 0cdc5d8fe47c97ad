"""`clipper-aimd`: the size of the next batch follows the latency of the last one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from policies import ClipperAimd, Decision, Release, Shape
from policies.testing import ScriptedRequest, ScriptedView
from simulator.clock import up_to_grid
from simulator.testing import check_policy
from tests.properties.runs import property_test
from tests.simulator.harness import column, run
from tests.strategies import Scenario, scenarios

BUSY = [ScriptedRequest(99, 8, computed=8, generated=1, max_tokens=99)]
MANY = [1] * 99


def aimd(**parameters):
    return ClipperAimd(**{"slo_ms": 20_000} | parameters).build()


def sizes(policy, *latencies: float) -> list[int]:
    """Return the sizes of batches that take these times, with somebody always waiting."""
    now, found = 0.0, []
    for latency in (*latencies, 0.0):
        found.append(len(policy.decide(ScriptedView(now, MANY)).admit))
        now += latency
    return found


def test_sleeps_while_nobody_waits():
    assert aimd().decide(ScriptedView(3.0)) == Decision()


def test_first_batch_is_a_single_request():
    assert aimd().decide(ScriptedView(waiting=[4, 4])).admit == (0,)


def test_batch_within_the_objective_adds_and_one_beyond_multiplies():
    assert sizes(aimd(), 1, 1, 1, 21, 21, 1) == [1, 5, 9, 13, 11, 9, 13]
    gentle = aimd(additive_increase=1, multiplicative_decrease=0.5)
    assert sizes(gentle, 1, 1, 1, 21, 1) == [1, 2, 3, 4, 2, 3]


def test_latency_equal_to_the_objective_is_within_it():
    assert sizes(aimd(), 20) == [1, 5]
    assert sizes(aimd(), 20.000001) == [1, 1]


def test_latency_equal_to_the_objective_but_for_the_grid_of_the_clock_is_within_it():
    assert up_to_grid(0.02) > 0.02
    assert sizes(aimd(slo_ms=20), up_to_grid(0.02)) == [1, 5]


def test_size_never_falls_below_one():
    assert sizes(aimd(), *[21] * 3) == [1, 1, 1, 1]


def test_size_never_exceeds_its_limit():
    assert sizes(aimd(max_batch_size=7), *[1] * 3) == [1, 5, 7, 7]


def test_latency_is_that_of_the_whole_batch_and_waiting_does_not_count():
    policy = aimd()
    policy.decide(ScriptedView(0.0, waiting=[ScriptedRequest(0, arrival=0.0)]))
    assert policy.decide(ScriptedView(15.0, MANY, running=BUSY)).plan.steady
    assert policy.decide(ScriptedView(25.0)) == Decision()  # 25 s in all
    late = [ScriptedRequest(rid, arrival=26.0) for rid in range(9)]
    assert policy.decide(ScriptedView(60.0, late)).admit == (0,)


def test_idle_time_after_a_batch_does_not_count():
    policy = aimd()
    policy.decide(ScriptedView(0.0, waiting=[4]))
    policy.decide(ScriptedView(5.0))
    assert len(policy.decide(ScriptedView(500.0, MANY)).admit) == 5


def test_batches_that_were_not_full_count_too():
    policy = aimd()
    for now in (0.0, 1.0, 2.0):
        policy.decide(ScriptedView(now, waiting=[4]))
    assert len(policy.decide(ScriptedView(3.0, MANY)).admit) == 13


def test_nobody_waits_for_company_by_default():
    policy = aimd()
    policy.decide(ScriptedView(0.0, waiting=[4]))
    assert policy.decide(ScriptedView(1.0, waiting=[4, 4])).admit == (0, 1)


def test_free_worker_may_wait_for_a_full_batch():
    policy = aimd(max_wait_ms=10_000)
    assert policy.decide(ScriptedView(0.0, waiting=[4])).admit == (0,)
    assert policy.decide(ScriptedView(1.0, waiting=[4])) == Decision(wake_at=11.0)
    assert policy.decide(ScriptedView(9.0, waiting=[4] * 4)) == Decision(wake_at=11.0)
    assert len(policy.decide(ScriptedView(10.0, waiting=[4] * 5)).admit) == 5
    assert policy.decide(ScriptedView(12.0, waiting=[4])) == Decision(wake_at=22.0)
    assert policy.decide(ScriptedView(22.0, waiting=[4])).admit == (0,)


def test_window_starts_again_if_the_one_who_waited_leaves():
    policy = aimd(max_wait_ms=10_000)
    policy.decide(ScriptedView(0.0, waiting=[4]))
    assert policy.decide(ScriptedView(1.0, waiting=[4])).wake_at == 11.0
    assert policy.decide(ScriptedView(5.0)) == Decision()
    assert policy.decide(ScriptedView(30.0, waiting=[4])).wake_at == 40.0


def test_request_larger_than_the_size_runs_alone():
    waiting = [ScriptedRequest(0, 4, size=3), ScriptedRequest(1, 4)]
    decision = aimd().decide(ScriptedView(waiting=waiting))
    assert (decision.admit, decision.plan.shape) == ((0,), Shape(3, 4))


def test_sizes_count_as_rows():
    policy = aimd()
    policy.decide(ScriptedView(0.0, waiting=[4]))
    waiting = [ScriptedRequest(rid, 4, size=2) for rid in range(4)]
    assert policy.decide(ScriptedView(1.0, waiting)).admit == (0, 1)


def test_requests_that_can_never_run_are_rejected():
    view = ScriptedView(num_blocks=2, block_size=4)
    policy = aimd(max_batch_size=3, max_seq_len=8)
    assert policy.on_submit(ScriptedRequest(0, 4), view) is None
    assert "max_batch_size" in policy.on_submit(ScriptedRequest(0, 4, size=4), view)
    assert "max_seq_len" in policy.on_submit(ScriptedRequest(0, 8), view)


@pytest.mark.parametrize(
    "parameters",
    [
        {"slo_ms": 0},
        {"slo_ms": float("inf")},
        {"additive_increase": 0},
        {"additive_increase": 0.5},
        {"multiplicative_decrease": 1},
        {"multiplicative_decrease": 0},
        {"max_wait_ms": -1},
        {"max_batch_size": 0},
        {"slo": 20},
    ],
    ids=repr,
)
def test_nonsense_parameters_are_refused(parameters):
    with pytest.raises(ValidationError):
        ClipperAimd(**parameters)


@pytest.mark.parametrize(
    "parameters",
    [{}, {"slo_ms": 12, "additive_increase": 1}, {"max_batch_size": 3, "max_wait_ms": 7}],
    ids=repr,
)
def test_contract(parameters):
    check_policy(ClipperAimd(**parameters), num_traces=8)


@property_test
@given(scenarios(), st.sampled_from([1.0, 1000.0]))
def test_batches_of_one_are_the_first_come_first_served_server(
    scenario: Scenario, slo: float
) -> None:
    single = ClipperAimd(max_batch_size=1, slo_ms=slo, max_wait_ms=5, release=Release.PER_REQUEST)
    ours, expected = (run(scenario.rows, policy, scenario.cost) for policy in (single, "none"))
    for name in ("first_scheduled_s", "first_token_s", "finish_s"):
        assert column(ours, name) == column(expected, name)
