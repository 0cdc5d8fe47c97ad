"""I5, stall-free batching: decodes first, prompts in what they leave of the chunk."""

from itertools import pairwise

import pytest

from policies import Sarathi, VllmV1

CHUNK = Sarathi(chunk_size=8), [(0, 5, 4), (0, 12, 2), (0, 4, 2)], {}
SCARCE = {"num_blocks": 5, "block_size": 4}
PREEMPTION = Sarathi(watermark=0), [(0, 6, 8), (0, 6, 8)], SCARCE
MANY_DECODES = Sarathi(chunk_size=2), [(0, 2, 4), (0, 2, 4), (0, 2, 4), (0, 3, 2)], {}
EXAMPLES = {"chunk": CHUNK, "preemption": PREEMPTION, "many decodes": MANY_DECODES}


@pytest.fixture
def example(replay):
    def run(name: str):
        policy, requests, machine = EXAMPLES[name]
        return replay(policy, requests, **machine)

    return run


def test_prompts_share_what_decodes_leave_of_the_chunk(example):
    run = example("chunk")
    assert run.lines == ["0: A5 B3", "1: A1 B7", "2: A1 B2 C4", "3: A1 B1 C1"]
    assert run.times("first_token") == {"A": 1, "B": 3, "C": 3}
    assert run.times("finish") == {"A": 4, "B": 4, "C": 4}


def test_token_budget_of_vllm_v1_gives_the_same(replay):
    _, requests, _ = CHUNK
    assert replay(VllmV1(max_num_batched_tokens=8), requests).lines == replay(*CHUNK[:2]).lines


def test_preempted_request_recomputes_once_the_other_is_done(example):
    run = example("preemption")
    assert run.lines == [
        *("0: A6 B6", "1: A1 B1", "2: A1 B1"),
        *("3: -B A1", "4: A1", "5: A1", "6: A1", "7: A1"),
        *("8: B9", "9: B1", "10: B1", "11: B1", "12: B1"),
    ]
    assert run.times("finish") == {"A": 8, "B": 13}


def test_decodes_are_never_limited_by_the_chunk_and_hold_prompts_up(example):
    # Two decodes are a chunk of 2: C comes after the first two, D after all others.
    assert example("many decodes").lines == [
        *("0: A2", "1: A1 B1", "2: A1 B1", "3: A1 B1", "4: B1 C1"),
        *("5: B1 C1", "6: C1 D1", "7: C1 D1", "8: C1 D1", "9: D1"),
    ]


def test_all_blocks_of_a_prompt_are_held_from_its_first_chunk_on(replay):
    run = replay(Sarathi(chunk_size=8), [(0, 30, 2)], block_size=4)
    assert run.per_step("kv_used") == [8, 8, 8, 8, 8]


@pytest.mark.parametrize("name", EXAMPLES)
def test_companion_invariants(example, name):
    run = example(name)
    run.check_invariants()
    assert all(a.end == b.start for a, b in pairwise(run.steps)), "never idle while work waits"
    policy = EXAMPLES[name][0]
    for step in run.steps:
        assert step.num_decodes + step.chunk_tokens <= max(policy.chunk_size, step.num_decodes)


@pytest.mark.parametrize("chunk_size", [2, 8, 512])
def test_companion_decodes_get_a_token_in_every_step(replay, chunk_size):
    requests = [(0, 5, 4), (0, 12, 9), (0, 4, 2), (3, 40, 3), (5.5, 1, 6)]
    gaps = replay(Sarathi(chunk_size=chunk_size), requests).gaps
    assert {gap for gap, _ in gaps} == {1}
