"""`window-freeze` closes a batch by the clock of the arrivals, whatever the worker does."""

import pytest
from hypothesis import event, given
from hypothesis import strategies as st
from pydantic import ValidationError

from policies import Decision, Release, Shape, WindowFreeze
from policies.testing import ScriptedRequest, ScriptedView
from simulator.testing import check_policy
from tests.properties.runs import property_test
from tests.simulator.harness import column, run
from tests.strategies import Scenario, scenarios

BUSY = [ScriptedRequest(99, 8, computed=8, generated=1, max_tokens=99)]


class Case:
    """A policy that is told of every arrival, as the engine does; `cancel` lets one go."""

    def __init__(self, machine=None, **parameters):
        self.machine = machine or {}
        self.waiting: list[ScriptedRequest] = []
        spec = WindowFreeze(**{"max_batch_size": 3, "max_wait_ms": 10_000} | parameters)
        self.policy = spec.build()

    def view(self, now: float, running=()) -> ScriptedView:
        return ScriptedView(now, self.waiting, running, **self.machine)

    def arrive(self, now: float, *requests: ScriptedRequest, running=()):
        reasons = []
        for request in requests:
            reasons.append(self.policy.on_submit(request, self.view(now, running)))
            if reasons[-1] is None:
                self.waiting.append(request)
        return reasons

    def decide(self, now: float, running=()) -> Decision:
        decision = self.policy.decide(self.view(now, running))
        self.waiting = [r for r in self.waiting if r.id not in decision.admit]
        return decision

    def cancel(self, rid: int) -> None:
        gone = next(r for r in self.waiting if r.id == rid)
        self.waiting.remove(gone)
        self.policy.on_finish(gone, self.view(0.0))


def ones(*rids: int, prompt: int = 4) -> list[ScriptedRequest]:
    return [ScriptedRequest(rid, prompt) for rid in rids]


def sized(*sizes: int) -> list[ScriptedRequest]:
    return [ScriptedRequest(rid, 4, size=size) for rid, size in enumerate(sizes)]


def test_sleeps_without_a_timer_while_nobody_waits():
    assert Case().decide(3.0) == Decision()


def test_window_starts_at_the_arrival():
    case = Case()
    case.arrive(2.0, *ones(0))
    assert case.decide(5.0) == Decision(wake_at=12.0)
    assert case.decide(12.0 - 2**-30) == Decision(wake_at=12.0)
    assert case.decide(12.0).admit == (0,)


def test_window_of_the_next_batch_starts_with_its_own_first_request():
    case = Case()
    case.arrive(0.0, *ones(0, 1, 2))
    case.arrive(4.0, *ones(3))
    assert case.decide(4.0).admit == (0, 1, 2)
    assert case.decide(5.0) == Decision(wake_at=14.0)


def test_full_batch_leaves_before_the_window_ends():
    case = Case()
    case.arrive(2.0, *ones(0, 1, 2))
    assert case.decide(2.0).admit == (0, 1, 2)


def test_batch_freezes_while_the_worker_is_busy():
    case = Case()
    case.arrive(0.0, *ones(0), running=BUSY)
    case.arrive(10.5, *ones(1), running=BUSY)
    assert case.decide(11.0, running=BUSY).plan.shape.cols == 1
    assert case.decide(30.0).admit == (0,)
    assert case.decide(31.0).admit == (1,)


def test_batch_freezes_even_if_nobody_asked_the_policy_since():
    case = Case()
    case.arrive(0.0, *ones(0))
    case.arrive(50.0, *ones(1))
    case.arrive(90.0, *ones(2))
    assert [case.decide(95.0).admit for _ in range(3)] == [(0,), (1,), ()]
    assert case.decide(96.0) == Decision(wake_at=100.0)


@pytest.mark.parametrize(("arrival", "batches"), [(10.0, [(0, 1)]), (10.0 + 2**-30, [(0,), (1,)])])
def test_last_moment_of_the_window_still_counts(arrival, batches):
    case = Case()
    case.arrive(0.0, *ones(0), running=BUSY)
    case.arrive(arrival, *ones(1), running=BUSY)
    assert [case.decide(40.0).admit for _ in batches] == batches


def test_all_that_arrive_at_the_last_moment_join_until_the_batch_is_full():
    case = Case()
    case.arrive(0.0, *ones(0), running=BUSY)
    case.arrive(10.0, *ones(1, 2, 3), running=BUSY)
    assert [case.decide(11.0).admit for _ in range(2)] == [(0, 1, 2), ()]
    assert case.decide(12.0) == Decision(wake_at=20.0)


def test_without_a_window_only_what_arrives_at_one_moment_goes_together():
    case = Case(max_wait_ms=0)
    case.arrive(1.0, *ones(0, 1), running=BUSY)
    case.arrive(2.0, *ones(2), running=BUSY)
    assert [case.decide(9.0).admit for _ in range(3)] == [(0, 1), (2,), ()]


def test_request_that_overflows_ends_the_batch_and_opens_the_next():
    case = Case()
    first, second = sized(2, 2)
    case.arrive(0.0, first)
    case.arrive(3.0, second)
    assert case.decide(3.0).admit == (0,)
    assert case.decide(4.0) == Decision(wake_at=13.0)
    assert case.decide(13.0).admit == (1,)


def test_request_that_overflows_goes_behind_those_of_its_own_moment():
    case = Case()
    case.arrive(0.0, *sized(2, 2, 1, 1))
    assert [case.decide(0.0).admit for _ in range(3)] == [(0,), (2, 3), ()]
    case.arrive(0.0, *ones(4))  # the loop has gone on, 1 is in the open batch
    assert case.decide(0.0).admit == (1, 4)


def test_all_sizes_end_up_in_batches_within_the_limit():
    case = Case()
    case.arrive(0.0, *sized(2, 3, 2, 1, 3, 1))
    batches = [case.decide(0.0).admit for _ in range(5)]
    # 1 overflows and goes to the end, behind 5; there it overflows the batch of 5.
    assert batches == [(0,), (2, 3), (4,), (5,), (1,)]


def test_requests_that_can_never_run_are_rejected_and_open_no_batch():
    case = Case({"num_blocks": 2, "block_size": 4}, max_seq_len=8)
    large, longer = ScriptedRequest(0, 4, size=4), ScriptedRequest(1, 8)
    assert case.arrive(0.0, large) == ["size 4 exceeds max_batch_size 3"]
    assert "max_seq_len" in case.arrive(0.0, longer)[0]
    assert case.decide(99.0) == Decision()


def test_cancelled_request_keeps_its_place_until_the_batch_runs():
    case = Case()
    case.arrive(0.0, *ones(0, 1, 2), running=BUSY)
    case.cancel(1)
    case.arrive(1.0, *ones(3), running=BUSY)
    assert case.decide(2.0).admit == (0, 2)
    assert case.decide(3.0) == Decision(wake_at=11.0)


def test_batch_whose_members_all_left_is_passed_over():
    case = Case()
    case.arrive(0.0, *ones(0, 1, 2), running=BUSY)
    case.arrive(1.0, *ones(3), running=BUSY)
    for rid in range(3):
        case.cancel(rid)
    assert case.decide(11.0).admit == (3,)
    assert case.decide(12.0) == Decision()


def test_members_that_do_not_fit_the_cache_go_next_without_company():
    case = Case({"num_blocks": 4, "block_size": 4})
    case.arrive(0.0, *(ScriptedRequest(rid, 4, max_tokens=4) for rid in range(3)))
    case.arrive(1.0, *ones(3))
    assert [case.decide(1.0).admit for _ in range(3)] == [(0, 1), (2,), ()]
    assert case.decide(11.0).admit == (3,)


def test_batch_is_padded_and_charged_to_its_end():
    case = Case(release=Release.PER_REQUEST)
    case.arrive(0.0, *ones(0, 1), *ones(2, prompt=9))
    assert case.decide(0.0).plan.shape == Shape(3, 9)
    plan = case.decide(1.0, running=BUSY).plan
    assert (plan.shape, plan.release) == (Shape(3, 1), Release.PER_REQUEST)


def test_defaults_are_those_of_ray_serve():
    assert (WindowFreeze().max_batch_size, WindowFreeze().max_wait_ms) == (10, 10.0)


@pytest.mark.parametrize(
    "parameters",
    [
        {"max_wait_ms": -1},
        {"max_wait_ms": float("nan")},
        {"max_wait_ms": float("inf")},
        {"max_batch_size": 0},
        {"max_batch_size": 2.5},
        {"max_concurrent_batches": 2},
        {"kind": "window-enqueue"},
    ],
    ids=repr,
)
def test_nonsense_parameters_are_refused(parameters):
    with pytest.raises(ValidationError):
        WindowFreeze(**parameters)


@pytest.mark.parametrize(
    "parameters",
    [{}, {"max_wait_ms": 0}, {"max_batch_size": 3, "max_wait_ms": 7.8125, "drop_finished": True}],
    ids=repr,
)
def test_contract(parameters):
    check_policy(WindowFreeze(**parameters), num_traces=8)


def windows() -> st.SearchStrategy[float]:
    return st.one_of(st.just(0.0), st.integers(1, 40).map(lambda n: n * 2**-8 * 1e3))


@property_test
@given(scenarios(), scenarios(), windows(), st.integers(1, 4))
def test_batches_follow_from_the_arrivals_whatever_the_service(
    scenario: Scenario, other: Scenario, wait: float, rows: int
) -> None:
    expected: list[int] = []
    """First request of each one's batch."""
    for rid, (arrival, _, _) in enumerate(scenario.rows):
        first = expected[-1] if expected else rid
        full = rid - first == rows
        expected.append(rid if full or arrival > scenario.rows[first][0] + wait / 1e3 else first)
    policy = WindowFreeze(max_batch_size=rows, max_wait_ms=wait)
    for cost in (scenario.cost, other.cost):
        starts = column(run(scenario.rows, policy, cost), "first_scheduled_s")
        assert [starts.index(start) for start in starts] == expected
    event(f"batches: {len(set(expected))}")


@property_test
@given(scenarios(), windows())
def test_batches_of_one_are_the_first_come_first_served_server(
    scenario: Scenario, wait: float
) -> None:
    single = WindowFreeze(max_batch_size=1, max_wait_ms=wait, release=Release.PER_REQUEST)
    ours, expected = (run(scenario.rows, policy, scenario.cost) for policy in (single, "none"))
    for name in ("first_scheduled_s", "first_token_s", "finish_s"):
        assert column(ours, name) == column(expected, name)
