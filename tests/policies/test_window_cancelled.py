"""Requests whose client goes away leave every policy that keeps a queue of its own."""

import pytest

from policies import ClipperAimd, Orca, Release, Triton, WindowEnqueue, WindowFreeze, WindowPull
from simulator.cost.analytic import FixedCost
from simulator.engine import Engine
from simulator.fastforward import FastEngine
from tests.simulator.leaving import serve
from workloads.request import RequestSpec

WINDOW = {"max_wait_ms": 10_000}
ROWS = [(0.0, 4, 2), (3.0, 4, 2), (4.0, 4, 3)]


def leaves(kind, policy, cancels, rows=ROWS, step=2.0):
    """Run rows, and cancel some at their times; return when and how each one left."""
    specs = [RequestSpec(rid, *row) for rid, row in enumerate(rows)]
    requests, _ = serve(kind, specs, policy, FixedCost(step), cancels)
    return [(request.state.value, request.finish) for request in requests]


@pytest.fixture(params=[Engine, FastEngine], ids=["reference", "fast"])
def leave(request):
    return lambda *args, **kwargs: leaves(request.param, *args, **kwargs)


WAITING = [
    WindowPull(**WINDOW),
    WindowEnqueue(**WINDOW),
    WindowFreeze(**WINDOW),
    Triton(max_queue_delay_microseconds=10_000_000),
]
AT_ONCE = [ClipperAimd(), Orca()]


def name(policy):
    return policy.kind


@pytest.mark.parametrize("policy", WAITING, ids=name)
def test_request_that_leaves_during_the_window_is_not_served(leave, policy):
    served = [("finished", 16.0), ("aborted", 3.5), ("finished", 16.0)]  # three steps from 10
    assert leave(policy, [(3.5, 1)]) == served


@pytest.mark.parametrize("policy", AT_ONCE, ids=name)
def test_request_that_leaves_while_it_waits_for_the_replica_is_not_served(leave, policy):
    assert leave(policy, [(3.5, 1)]) == [("finished", 4.0), ("aborted", 4.0), ("finished", 10.0)]


@pytest.mark.parametrize("policy", [*WAITING, ClipperAimd(max_wait_ms=10_000)], ids=name)
def test_window_of_one_who_left_is_not_that_of_the_next(leave, policy):
    """The first batch of `clipper-aimd` holds one request, so it does not wait for company."""
    rows = [(0.0, 4, 2), (30.0, 4, 2)]
    start = 30.0 if isinstance(policy, ClipperAimd) else 40.0
    cancelled = 0.0 if isinstance(policy, ClipperAimd) else 1.0
    left = leave(policy, [(cancelled, 0)], rows=rows)
    assert left == [("aborted", cancelled), ("finished", start + 4)]


@pytest.mark.parametrize("policy", WAITING, ids=name)
def test_everybody_may_leave(leave, policy):
    assert leave(policy, [(5.0, rid) for rid in range(3)]) == [("aborted", 5.0)] * 3


@pytest.mark.parametrize("policy", [*WAITING, *AT_ONCE], ids=name)
def test_member_that_leaves_its_batch_does_not_hold_up_the_others(leave, policy):
    rows = [(0.0, 4, 9), (0.0, 4, 2), (50.0, 4, 2)]
    if policy in WAITING:
        policy = policy.model_copy(update={"release": Release.PER_REQUEST})
    first, *others = leave(policy, [(15.0, 0)], rows=rows)
    assert first[0] == "aborted"
    assert [state for state, _ in others] == ["finished"] * 2


def test_slots_of_a_request_that_leaves_are_free_at_once(leave):
    rows = [(0.0, 4, 9), (0.0, 4, 9)]
    left = leave(Orca(n_slots=10), [(5.0, 0)], rows=rows)
    assert left == [("aborted", 6.0), ("finished", 24.0)]
