"""`triton`: preferred sizes, queue delay, levels, queue limits and timeouts."""

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from pydantic import ValidationError

from policies import Decision, Release, Shape, Triton
from policies.testing import ScriptedRequest, ScriptedView
from simulator.testing import check_policy
from tests.properties.runs import property_test
from tests.simulator.harness import column, run
from tests.strategies import Scenario, scenarios

SECOND = 1_000_000
"""In microseconds."""

BUSY = [ScriptedRequest(99, 8, computed=8, generated=1, max_tokens=99)]
WAIT = {"max_queue_delay_microseconds": 10 * SECOND}
LEVELS = {"priority_levels": 3, "default_priority_level": 2}
OVER = "its timeout in the queue is over"


class Case:
    """A policy that is told of every arrival, as the engine does; `cancel` lets one go."""

    def __init__(self, machine=None, **parameters):
        self.machine = machine or {}
        self.waiting: list[ScriptedRequest] = []
        self.policy = Triton(**{"max_batch_size": 4} | parameters).build()

    def view(self, now: float, running=()) -> ScriptedView:
        return ScriptedView(now, self.waiting, running, **self.machine)

    def arrive(self, now: float, *requests: ScriptedRequest):
        reasons = []
        for request in requests:
            reasons.append(self.policy.on_submit(request, self.view(now)))
            if reasons[-1] is None:
                self.waiting.append(request)
        return reasons

    def decide(self, now: float, running=()) -> Decision:
        decision = self.policy.decide(self.view(now, running))
        left = {*decision.admit, *(rid for rid, _ in decision.reject)}
        self.waiting = [r for r in self.waiting if r.id not in left]
        return decision

    def cancel(self, rid: int) -> None:
        gone = next(r for r in self.waiting if r.id == rid)
        self.waiting.remove(gone)
        self.policy.on_finish(gone, self.view(0.0))


def ones(*rids: int, **fields) -> list[ScriptedRequest]:
    return [ScriptedRequest(rid, 4, **fields) for rid in rids]


def sized(*sizes: int) -> list[ScriptedRequest]:
    return [ScriptedRequest(rid, 4, size=size) for rid, size in enumerate(sizes)]


def test_sleeps_without_a_timer_while_nobody_waits():
    assert Case(**WAIT).decide(3.0) == Decision()


def test_nobody_waits_without_a_delay():
    case = Case()
    case.arrive(0.0, *ones(0))
    assert case.decide(0.0).admit == (0,)


def test_preferred_size_is_the_largest_batch_by_default():
    case = Case(**WAIT)
    case.arrive(0.0, *ones(0, 1, 2))
    assert case.decide(0.0) == Decision(wake_at=10.0)
    case.arrive(1.0, *ones(3, 4))
    assert case.decide(1.0).admit == (0, 1, 2, 3)


def test_preferred_size_runs_at_once_and_the_rest_keeps_its_age():
    case = Case(preferred_batch_size=(2,), **WAIT)
    case.arrive(0.0, *ones(0, 1, 2))
    assert case.decide(0.0).admit == (0, 1)
    assert case.decide(4.0) == Decision(wake_at=10.0)
    assert case.decide(10.0).admit == (2,)


def test_largest_preferred_size_within_reach_is_taken():
    case = Case(preferred_batch_size=(1, 3), **WAIT)
    case.arrive(0.0, *ones(0, 1, 2, 3))
    assert [case.decide(0.0).admit for _ in range(2)] == [(0, 1, 2), (3,)]


def test_preferred_size_is_taken_without_a_delay_too():
    case = Case(preferred_batch_size=(3,))
    case.arrive(0.0, *ones(0, 1, 2, 3))
    assert case.decide(0.0).admit == (0, 1, 2)


def test_delay_that_is_over_sends_all_that_fit():
    case = Case(preferred_batch_size=(2,), **WAIT)
    case.arrive(0.0, *ones(0))
    case.arrive(10.0, *ones(1, 2, 3, 4))
    assert case.decide(10.0).admit == (0, 1, 2, 3)


def test_delay_counts_from_the_arrival_even_while_the_instance_is_busy():
    case = Case(**WAIT)
    case.arrive(0.0, *ones(0))
    assert case.decide(5.0, running=BUSY).admit == ()
    assert case.decide(12.0).admit == (0,)


def test_sizes_between_the_preferred_ones_wait():
    case = Case(max_batch_size=8, preferred_batch_size=(4,), **WAIT)
    case.arrive(0.0, *sized(3))
    assert case.decide(0.0) == Decision(wake_at=10.0)


def test_batch_that_the_next_one_would_lift_over_all_preferred_sizes_goes_without_it():
    case = Case(max_batch_size=8, preferred_batch_size=(4,), **WAIT)
    case.arrive(0.0, *sized(3, 2))
    assert case.decide(0.0).admit == (0,)
    assert case.decide(0.0) == Decision(wake_at=10.0)


def test_batch_that_cannot_grow_goes_at_once():
    case = Case(**WAIT)
    case.arrive(0.0, *sized(3, 2))
    assert case.decide(0.0).admit == (0,)


def test_size_above_all_preferred_ones_is_not_held_back():
    case = Case(max_batch_size=8, preferred_batch_size=(2,), **WAIT)
    case.arrive(0.0, *sized(5))
    assert case.decide(0.0).admit == (0,)


def test_rows_are_not_filled_up_to_a_preferred_size():
    case = Case(preferred_batch_size=(4,))
    case.arrive(0.0, *sized(2, 1))
    assert case.decide(0.0).plan.shape == Shape(3, 4)


def test_levels_are_served_in_order_and_each_first_come_first_served():
    case = Case(**LEVELS)
    case.arrive(0.0, *ones(0, 1, priority=3), *ones(2, 3, priority=1), *ones(4, priority=2))
    assert [case.decide(1.0).admit for _ in range(2)] == [(2, 3, 4, 0), (1,)]


@pytest.mark.parametrize("priority", [0, -1, 4])
def test_priority_that_is_no_level_stands_for_the_default(priority):
    case = Case(**LEVELS)
    case.arrive(0.0, *ones(0, priority=3), *ones(1, priority=priority), *ones(2, priority=2))
    assert case.decide(0.0).admit == (1, 2, 0)


def test_priorities_are_ignored_without_levels():
    case = Case()
    case.arrive(0.0, *ones(0, priority=3), *ones(1, priority=1))
    assert case.decide(0.0).admit == (0, 1)


def test_oldest_request_counts_for_the_delay_whatever_its_level():
    case = Case(**LEVELS, **WAIT)
    case.arrive(0.0, *ones(0, priority=3))
    case.arrive(6.0, *ones(1, priority=1))
    assert case.decide(6.0) == Decision(wake_at=10.0)
    assert case.decide(10.0).admit == (1, 0)


def test_queue_takes_no_more_than_its_limit():
    case = Case(max_queue_size=2)
    refused = "queue full: 2 requests wait"
    assert case.arrive(0.0, *ones(0, 1, 2)) == [None, None, refused]
    case.decide(0.0)
    assert case.arrive(1.0, *ones(3)) == [None]


def test_limit_holds_for_each_level_alone():
    case = Case(max_queue_size=1, **LEVELS)
    reasons = case.arrive(0.0, *ones(0, priority=1), *ones(1, priority=2), *ones(2, priority=1))
    assert reasons == [None, None, "queue full: 1 requests wait"]


def test_level_may_have_limits_of_its_own():
    own = {"priority_level": 3, "default_timeout_microseconds": SECOND, "timeout_action": "DELAY"}
    case = Case(max_queue_size=1, priority_queue_policy=[own], **LEVELS)
    assert case.arrive(0.0, *ones(0, 1, priority=3), *ones(2, priority=1)) == [None] * 3
    assert case.arrive(1.5, *ones(3, priority=3), *ones(4, priority=2)) == [None] * 2
    assert case.decide(2.0).admit == (2, 4, 3, 0)


def test_timeout_rejects_once_it_is_over():
    case = Case(default_timeout_microseconds=8 * SECOND)
    case.arrive(0.0, *ones(0))
    case.arrive(1.0, *ones(1))
    case.arrive(3.0, *ones(2))
    decision = case.decide(9.0)
    assert decision.reject == ((0, OVER),)
    assert decision.admit == (1, 2)  # 1 has waited for 8 s, not longer


def test_all_timeouts_over_leave_nothing_to_run():
    case = Case(default_timeout_microseconds=SECOND)
    case.arrive(0.0, *ones(0, 1))
    assert case.decide(5.0) == Decision(reject=((0, OVER), (1, OVER)))
    assert case.decide(6.0) == Decision()


def test_timeout_may_delay_to_the_end_of_the_level():
    case = Case(
        max_batch_size=2, default_timeout_microseconds=2 * SECOND, timeout_action="DELAY", **LEVELS
    )
    case.arrive(0.0, *ones(0, 1, priority=2), *ones(2, priority=3))
    case.arrive(3.0, *ones(3, 4, priority=2))
    assert [case.decide(4.0).admit for _ in range(3)] == [(3, 4), (0, 1), (2,)]
    assert case.decide(5.0) == Decision()


def test_delayed_request_has_no_second_timeout_and_still_counts_for_the_limit():
    case = Case(
        max_batch_size=1,
        max_queue_size=2,
        default_timeout_microseconds=SECOND,
        timeout_action="DELAY",
    )
    case.arrive(0.0, *ones(0, 1))
    case.decide(5.0)
    assert case.arrive(5.0, *ones(2, 3)) == [None, "queue full: 2 requests wait"]
    assert [case.decide(9.0).admit for _ in range(2)] == [(1,), (2,)]


def test_sleeping_instance_wakes_just_after_the_nearest_timeout():
    case = Case(default_timeout_microseconds=4 * SECOND, **WAIT)
    case.arrive(0.0, *ones(0))
    wake_at = case.decide(0.0).wake_at
    assert 4.0 < wake_at < 4.0 + 1e-9
    assert case.decide(4.0).wake_at == wake_at
    assert case.decide(wake_at).reject == ((0, OVER),)


def test_request_may_shorten_its_timeout_where_that_is_allowed():
    for allowed, expected in ((True, ((1, OVER),)), (False, ())):
        case = Case(default_timeout_microseconds=8 * SECOND, allow_timeout_override=allowed)
        case.arrive(0.0, *ones(0), *ones(1, ttft_slo=2.0), *ones(2, ttft_slo=99.0))
        assert case.decide(5.0).reject == expected
        case.arrive(10.0, *ones(3, ttft_slo=99.0))
        assert case.decide(19.0).reject == ((3, OVER),)


def test_request_has_no_timeout_where_there_is_no_default():
    case = Case(allow_timeout_override=True)
    case.arrive(0.0, *ones(0, ttft_slo=1.0))
    assert case.decide(9.0).admit == (0,)


def test_cancelled_requests_are_dropped():
    case = Case(max_queue_size=3, **WAIT)
    case.arrive(0.0, *ones(0, 1))
    case.arrive(1.0, *ones(2))
    case.cancel(0)
    case.cancel(1)
    assert case.decide(1.0) == Decision(wake_at=11.0)
    case.cancel(2)
    assert case.decide(2.0) == Decision()
    assert case.arrive(3.0, *ones(3, 4, 5, 6)) == [None] * 3 + ["queue full: 3 requests wait"]


def test_requests_that_can_never_run_are_rejected_and_not_queued():
    case = Case({"num_blocks": 2, "block_size": 4}, max_seq_len=8)
    assert case.arrive(0.0, *sized(5)) == ["size 5 exceeds max_batch_size 4"]
    assert "max_seq_len" in case.arrive(0.0, ScriptedRequest(1, 8))[0]
    assert case.decide(9.0) == Decision()


def test_members_that_do_not_fit_the_cache_keep_their_place():
    case = Case({"num_blocks": 4, "block_size": 4})
    case.arrive(0.0, *ones(0, 1, 2, max_tokens=4))
    case.arrive(1.0, *ones(3))
    assert [case.decide(1.0).admit for _ in range(2)] == [(0, 1), (2, 3)]


def test_batch_that_runs_is_driven_to_its_end():
    case = Case(release=Release.PER_REQUEST)
    case.arrive(0.0, *ones(0, 1))
    case.decide(0.0)
    plan = case.decide(1.0, running=BUSY).plan
    assert (plan.shape, plan.release, plan.steady) == (Shape(2, 1), Release.PER_REQUEST, True)


DELAYING = {"timeout_action": "DELAY", "default_timeout_microseconds": 5}


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"preferred_batch_size": [9]}, "preferred_batch_size 9: expected 1 to max_batch_size 8"),
        ({"preferred_batch_size": [4, 0]}, "preferred_batch_size 0"),
        ({"max_queue_delay_microseconds": -1}, "max_queue_delay_microseconds"),
        ({"max_queue_size": -1}, "max_queue_size"),
        ({"default_timeout_microseconds": 0.5}, "default_timeout_microseconds"),
        ({"timeout_action": "DROP"}, "timeout_action"),
        ({"priority_levels": 2}, "default_priority_level 0: expected 1 to 2"),
        (LEVELS | {"default_priority_level": 4}, "default_priority_level 4: expected 1 to 3"),
        ({"default_priority_level": 1}, "default_priority_level 1: expected 0 to 0"),
        ({"priority_queue_policy": [{"priority_level": 1}]}, "priority_queue_policy"),
        (LEVELS | {"priority_queue_policy": [{"priority_level": 4}]}, "priority_queue_policy"),
        (LEVELS | {"priority_queue_policy": [{"priority_level": 1}] * 2}, "at most once"),
        (LEVELS | {"priority_queue_policy": [{"max_queue_size": 1}]}, "priority_level"),
        (LEVELS | {"preserve_ordering": True}, "does not go with priority_levels 3"),
        (DELAYING | {"preserve_ordering": True}, "does not go with timeout_action DELAY"),
        (
            {"preserve_ordering": True, "release": "per-request"},
            "does not go with release per-request",
        ),
        ({"prefetch_depth": 2}, "prefetch_depth"),
    ],
    ids=str,
)
def test_nonsense_parameters_are_refused(parameters, said):
    with pytest.raises(ValidationError, match=said):
        Triton(**parameters)


@pytest.mark.parametrize(
    "parameters",
    [
        {"preserve_ordering": True, "priority_levels": 1, "default_priority_level": 1},
        {"preserve_ordering": True, "timeout_action": "DELAY"},
        {"preserve_ordering": True, "default_timeout_microseconds": 5},
        LEVELS | DELAYING,
    ],
    ids=str,
)
def test_combinations_that_triton_accepts_are_accepted(parameters):
    spec = Triton(**parameters)
    assert hash(spec) == hash(Triton.model_validate(spec.model_dump()))


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"preferred_batch_size": [3], "max_queue_delay_microseconds": 20_000},
        {"max_queue_delay_microseconds": 50_000, "default_timeout_microseconds": 11_719},
        {"max_batch_size": 3, "default_timeout_microseconds": 7_813, "timeout_action": "DELAY"},
        {"max_batch_size": 2, "max_queue_size": 1, "priority_levels": 2}
        | {"default_priority_level": 2},
    ],
    ids=str,
)
def test_contract(parameters):
    check_policy(Triton(**parameters), num_traces=8)


@property_test
@given(scenarios(max_requests=10), st.integers(2, 5), st.data())
def test_defaults_are_a_window_of_no_length_from_the_arrival(
    scenario: Scenario, rows: int, data: st.DataObject
) -> None:
    sizes = data.draw(st.lists(st.integers(1, 2), min_size=10, max_size=10))
    columns = {"size": sizes[: len(scenario.rows)]}
    window = {"kind": "window-enqueue", "max_wait_ms": 0, "max_enqueued_batches": 1000}
    ours, theirs = (
        run(scenario.rows, policy | {"max_batch_size": rows}, scenario.cost, columns=columns)
        for policy in ({"kind": "triton"}, window)
    )
    for name in ("first_scheduled_s", "first_token_s", "finish_s"):
        assert column(ours, name) == column(theirs, name)
    event(f"batches: {len(set(column(ours, 'first_scheduled_s')))}")


@property_test
@given(scenarios())
def test_batches_of_one_are_the_first_come_first_served_server(scenario: Scenario) -> None:
    single = Triton(max_batch_size=1, release=Release.PER_REQUEST, **WAIT)
    ours, expected = (run(scenario.rows, policy, scenario.cost) for policy in (single, "none"))
    for name in ("first_scheduled_s", "first_token_s", "finish_s"):
        assert column(ours, name) == column(expected, name)


@property_test
@given(scenarios(max_requests=10), st.integers(1, 4), st.sampled_from([0, 5_000, 30_000]))
def test_responses_leave_in_order_where_triton_can_preserve_it(
    scenario: Scenario, rows: int, timeout: int
) -> None:
    policy = Triton(
        max_batch_size=rows,
        max_queue_delay_microseconds=8_000,
        default_timeout_microseconds=timeout,
        preserve_ordering=True,
    )
    result = run(scenario.rows, policy, scenario.cost)
    states = zip(column(result, "state"), column(result, "finish_s"), strict=True)
    finishes = [finish for state, finish in states if state == "finished"]
    assert finishes == sorted(finishes)
