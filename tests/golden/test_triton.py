"""R3, Triton's dynamic batcher, with seconds for ms: all examples of the design page, and more."""

from itertools import pairwise

import pytest

from policies import Triton

SECOND = 1_000_000
"""In microseconds."""


def ones(*arrivals):
    return [(arrival, 1, 1) for arrival in arrivals]


def ranked(*arrivals_and_priorities):
    return [(arrival, 1, 1, 1, priority) for arrival, priority in arrivals_and_priorities]


WAITING = {"max_queue_delay_microseconds": 10 * SECOND}
EIGHT = {"max_batch_size": 8, "preferred_batch_size": (4,), **WAITING}
SINGLE = {"max_batch_size": 1}
TIMEOUT = SINGLE | {"default_timeout_microseconds": 8 * SECOND}
LEVELS = {"priority_levels": 2, "default_priority_level": 2}

EXAMPLES = {
    "preferred size and delay": (
        Triton(**EIGHT),
        ones(0, 2, 3, 11, 17, 17, 17, 17, 17),
        6.0,
        ["ABC 10-16", "DEFG 17-23", "HI 27-33"],
        {},
    ),
    "late, so all go": (Triton(**EIGHT), ones(0, *[10] * 6), 6.0, ["ABCDEFG 10-16"], {}),
    "defaults": (Triton(max_batch_size=4), ones(*[0] * 5), 6.0, ["ABCD 0-6", "E 6-12"], {}),
    "reject": (Triton(**TIMEOUT), ones(0, 1, 3), 10.0, ["A 0-10", "C 10-20"], {"B": 10}),
    "delay": (
        Triton(**TIMEOUT, timeout_action="DELAY"),
        ones(0, 1, 3),
        10.0,
        ["A 0-10", "C 10-20", "B 20-30"],
        {},
    ),
    "queue size": (
        Triton(**SINGLE, max_queue_size=1),
        ones(0, 1, 3),
        10.0,
        ["A 0-10", "B 10-20"],
        {"C": 3},
    ),
    # Two levels: C and D (level 1) overtake B and E (level 2, E by default).
    "priorities": (
        Triton(max_batch_size=2, **LEVELS),
        ranked((0, 1), (1, 2), (2, 1), (3, 1), (4, 0)),
        10.0,
        ["A 0-10", "CD 10-20", "BE 20-30"],
        {},
    ),
    # 7 make 4, then 3 make 1, preferred sizes both; at 12 the rest has waited longer than 10.
    "largest preferred size": (
        Triton(max_batch_size=6, preferred_batch_size=(1, 4), **WAITING),
        ones(*[0] * 7),
        6.0,
        ["ABCD 0-6", "E 6-12", "FG 12-18"],
        {},
    ),
    # At 8 the timeout of A is not over yet; just after, it is.
    "a sleeping instance notices a timeout": (
        Triton(max_batch_size=2, default_timeout_microseconds=8 * SECOND, **WAITING),
        ones(0, 9, 9),
        6.0,
        ["BC 9-15"],
        {"A": 8 + 2**-30},
    ),
}


@pytest.fixture
def example(replay):
    def run(name):
        policy, requests, service, *_ = EXAMPLES[name]
        return replay(policy, requests, step=service)

    return run


def rejections(run):
    rejected = {n: r for n, r in run.requests.items() if r.state.value == "rejected"}
    return {name: request.finish for name, request in rejected.items()}


@pytest.mark.parametrize("name", EXAMPLES)
def test_batches_and_rejections_are_those_of_the_example(example, name):
    run = example(name)
    *_, batches, rejected = EXAMPLES[name]
    assert run.batches == batches
    assert rejections(run) == rejected


def test_a_rejection_says_why(example):
    assert example("reject").requests["B"].reject_reason == "its timeout in the queue is over"
    assert example("queue size").requests["C"].reject_reason == "queue full: 1 requests wait"


def test_preserve_ordering_changes_nothing_with_one_instance(replay, example):
    for name in ("preferred size and delay", "late, so all go", "defaults", "reject"):
        policy, requests, service, *_ = EXAMPLES[name]
        kept = type(policy)(**policy.model_dump() | {"preserve_ordering": True})
        run = replay(kept, requests, step=service)
        assert run.lines == example(name).lines
        finishes = list(run.times("finish").values())
        assert finishes == sorted(finishes)


@pytest.mark.parametrize("name", EXAMPLES)
def test_companion_invariants(example, name):
    run = example(name)
    run.check_invariants()
    largest = EXAMPLES[name][0].max_batch_size
    assert all(len(batch.split()[0]) <= largest for batch in run.batches)


@pytest.mark.parametrize("name", [n for n in EXAMPLES if n not in ("delay", "priorities")])
def test_companion_first_come_first_served(example, name):
    order = "".join(batch.split()[0] for batch in example(name).batches)
    assert all(a < b for a, b in pairwise(order))
