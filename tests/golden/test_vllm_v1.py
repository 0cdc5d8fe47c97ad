"""I4, the unified token budget, and what preemption by recompute does to it (I2's case)."""

from itertools import pairwise

import pytest

from policies import VllmV1

BUDGET = VllmV1(max_num_batched_tokens=8), [(0, 5, 3), (0, 10, 2), (1.5, 3, 3)], {}
PREEMPTION = VllmV1(), [(0, 6, 8), (0, 6, 8)], {"num_blocks": 5, "block_size": 4}
TWO_VICTIMS = (
    VllmV1(),
    [(0, 4, 3), (0, 4, 3), (0, 3, 3), (0.5, 1, 1)],
    {"num_blocks": 3, "block_size": 4},
)
EXAMPLES = {"budget": BUDGET, "preemption": PREEMPTION, "two victims": TWO_VICTIMS}


@pytest.fixture
def example(replay):
    def run(name: str):
        policy, requests, machine = EXAMPLES[name]
        return replay(policy, requests, **machine)

    return run


def test_running_requests_come_first_and_prompts_fill_the_budget(example):
    run = example("budget")
    assert run.lines == ["0: A5 B3", "1: A1 B7", "2: A1 B1 C3", "3: C1", "4: C1"]
    assert run.times("first_token") == {"A": 1, "B": 2, "C": 3}
    assert run.times("finish") == {"A": 3, "B": 3, "C": 5}
    assert run.gaps == [(1, 1), (1, 2), (1, 1), (1, 1)]


def test_preempted_request_recomputes_its_tokens_once_the_other_is_done(example):
    run = example("preemption")
    assert run.lines == [
        *("0: A6 B6", "1: A1 B1", "2: A1 B1"),
        *("3: -B A1", "4: A1", "5: A1", "6: A1", "7: A1"),
        *("8: B9", "9: B1", "10: B1", "11: B1", "12: B1"),
    ]
    assert run.times("finish") == {"A": 8, "B": 13}
    assert run.times("first_token") == {"A": 1, "B": 1}


def test_tokens_of_the_preempted_request_come_at_1_2_3_and_9_to_13(example):
    run = example("preemption")
    of_a, of_b = [(1, 7)], [(1, 2), (6, 1), (1, 4)]
    total = {}
    for gap, count in of_a + of_b:
        total[gap] = total.get(gap, 0) + count
    seen = {}
    for gap, count in run.gaps:
        seen[gap] = seen.get(gap, 0) + count
    assert seen == total
    b = run.requests["B"]
    assert (b.preemptions, b.recomputed_tokens, b.last_token) == (1, 8, 13)


def test_preempted_request_is_not_readmitted_while_its_nine_tokens_lack_a_block(example):
    run = example("preemption")
    assert run.per_step("kv_used") == [4, 4, 4, 3, 3, 3, 3, 4, 3, 3, 3, 3, 4]
    assert run.per_step("num_waiting") == [0] * 3 + [1] * 5 + [0] * 5


def test_later_of_two_victims_stands_in_front_and_nobody_overtakes_them(example):
    run = example("two victims")
    assert run.lines == [
        *("0: A4 B4 C3", "1: -C -B A1", "2: A1"),
        *("3: B5 C4", "4: -C B1", "5: C5 D1"),
    ]
    assert run.times("finish") == {"A": 3, "B": 5, "C": 6, "D": 6}
    assert [r.preemptions for r in run.requests.values()] == [0, 1, 2, 0]


def test_recomputation_longer_than_the_budget_finishes_without_chunked_prefill(replay):
    policy = VllmV1(max_num_batched_tokens=8, enable_chunked_prefill=False)
    run = replay(policy, [(0, 4, 10), (0, 4, 10)], num_blocks=5, block_size=4)
    assert run.requests["B"].preemptions == 1
    assert list(run.times("finish")) == ["A", "B"]
    run.check_invariants()


@pytest.mark.parametrize("name", EXAMPLES)
def test_companion_invariants(example, name):
    run = example(name)
    run.check_invariants()
    for step in run.steps:
        assert step.charged_tokens == step.num_decodes + step.chunk_tokens, "nothing is padded"
    assert all(a.end == b.start for a, b in pairwise(run.steps)), "never idle while work waits"


def test_companion_budget_is_used_up_while_prompts_are_missing(example):
    assert example("budget").per_step("charged_tokens") == [8, 8, 5, 1, 1]
