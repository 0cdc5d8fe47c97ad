"""R2, batch windows: the same arrivals under three ways to close a batch, with seconds for ms."""

import pytest

from policies import WindowEnqueue, WindowFreeze, WindowPull

ARRIVALS = {"A": 0, "B": 4, "C": 13, "D": 14, "E": 15, "F": 16}
MAIN = [(arrival, 1, 1) for arrival in ARRIVALS.values()]
WINDOW = {"max_batch_size": 3, "max_wait_ms": 10_000}
LONG = [(0, 1, 1), (13, 1, 1), (24, 1, 1)]
EXAMPLES = {
    "pull": (WindowPull(**WINDOW), MAIN, 6.0),
    "enqueue": (WindowEnqueue(**WINDOW), MAIN, 6.0),
    "freeze": (WindowFreeze(**WINDOW), MAIN, 6.0),
    "long service": (WindowEnqueue(**WINDOW), LONG, 30.0),
    "long service, freeze": (WindowFreeze(**WINDOW), LONG, 30.0),
    "queue full": (WindowEnqueue(max_enqueued_batches=2, **WINDOW), [(0, 1, 1)] * 7, 6.0),
}


@pytest.fixture
def example(replay):
    def run(name: str):
        policy, requests, service = EXAMPLES[name]
        return replay(policy, requests, step=service)

    return run


def test_pull_starts_the_window_when_a_free_worker_takes_the_first_request(example):
    run = example("pull")
    assert run.batches == ["AB 10-16", "CDE 16-22", "F 32-38"]
    assert run.times("finish") == {"A": 16, "B": 16, "C": 22, "D": 22, "E": 22, "F": 38}


def test_enqueue_starts_the_window_when_the_request_arrives(example):
    run = example("enqueue")
    assert run.batches == ["AB 10-16", "CDE 16-22", "F 26-32"]
    assert run.times("finish") == {"A": 16, "B": 16, "C": 22, "D": 22, "E": 22, "F": 32}


def test_freeze_starts_the_window_when_the_request_arrives(example):
    run = example("freeze")
    assert run.batches == ["AB 10-16", "CDE 16-22", "F 26-32"]
    assert run.times("finish") == {"A": 16, "B": 16, "C": 22, "D": 22, "E": 22, "F": 32}


def test_a_frozen_batch_fills_no_more_while_the_worker_is_busy(example):
    run = example("long service, freeze")
    assert run.batches == ["A 10-40", "B 40-70", "C 70-100"]  # A, C, D of the design page


def test_an_open_batch_still_fills_while_the_worker_is_busy(example):
    run = example("long service")
    assert run.batches == ["A 10-40", "BC 40-70"]  # A, C, D of the design page


def test_a_full_queue_rejects_the_request_that_needs_a_third_batch(example):
    run = example("queue full")
    assert run.batches == ["ABC 0-6", "DEF 6-12"]
    assert run.requests["G"].reject_reason == "queue full: 2 batches wait"
    assert run.requests["G"].finish == 0
    assert list(run.times("finish")) == list("ABCDEF")


def test_pull_waits_a_whole_window_for_a_lonely_request(replay):
    run = replay(WindowPull(**WINDOW), [(5, 1, 1)], step=6.0)
    assert run.batches == ["A 15-21"]


@pytest.mark.parametrize("kind", [WindowPull, WindowEnqueue, WindowFreeze])
def test_arrival_at_the_deadline_still_joins_the_batch(replay, kind):
    run = replay(kind(**WINDOW), [(0, 1, 1), (10, 1, 1)], step=6.0)
    assert run.batches == ["AB 10-16"]


@pytest.mark.parametrize("kind", [WindowPull, WindowEnqueue])
def test_arrival_at_the_end_of_a_step_is_seen_by_the_next_decision(replay, kind):
    policy = kind(**WINDOW | {"max_wait_ms": 0})
    run = replay(policy, [(0, 1, 1), (1, 1, 1), (6, 1, 1)], step=6.0)
    assert run.batches == ["A 0-6", "BC 6-12"]


def test_without_a_window_what_arrives_together_is_frozen_together(replay):
    policy = WindowFreeze(**WINDOW | {"max_wait_ms": 0})
    run = replay(policy, [(0, 1, 1), (1, 1, 1), (1, 1, 1), (6, 1, 1)], step=6.0)
    assert run.batches == ["A 0-6", "BC 6-12", "D 12-18"]


def test_arrival_at_the_deadline_joins_a_batch_that_freezes_while_the_worker_is_busy(replay):
    run = replay(WindowFreeze(**WINDOW), [(0, 1, 1), (13, 1, 1), (23, 1, 1)], step=30.0)
    assert run.batches == ["A 10-40", "BC 40-70"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_companion_invariants(example, name):
    run = example(name)
    run.check_invariants()
    assert all(len(batch.split()[0]) <= 3 for batch in run.batches)
    order = "".join(batch.split()[0] for batch in run.batches)
    assert list(order) == sorted(order), "first come, first served"


@pytest.mark.parametrize("name", ["pull", "enqueue", "freeze", "long service"])
def test_companion_no_request_waits_longer_than_its_window_and_the_batches_before(example, name):
    run = example(name)
    free = 0.0
    for batch in run.batches:
        members, span = batch.split()
        start, end = map(float, span.split("-"))
        assert start <= max(free, run.requests[members[0]].arrival) + 10
        free = end
