"""I2, prefill first: the stall of running decodes, and preemption by recompute and by swap."""

from itertools import pairwise

import pytest

from policies import VllmV0

STALL = VllmV0(max_num_batched_tokens=16), [(0, 6, 4), (0, 6, 3), (1.5, 5, 2)], {}
SCARCE = {"num_blocks": 5, "block_size": 4}
TWO = [(0, 6, 8), (0, 6, 8)]
LATER = [*TWO, (4.5, 1, 2)]
EXAMPLES = {
    "stall": STALL,
    "recompute": (VllmV0(watermark=0), TWO, SCARCE),
    "swap": (VllmV0(watermark=0, preemption_mode="swap"), TWO, SCARCE),
    "later, recompute": (VllmV0(watermark=0), LATER, SCARCE),
    "later, swap": (VllmV0(watermark=0, preemption_mode="swap"), LATER, SCARCE),
    "delay": (VllmV0(scheduler_delay_factor=2), [(0, 4, 9), (1.5, 3, 2), (2.5, 3, 2)], {}),
}


@pytest.fixture
def example(replay):
    def run(name: str):
        policy, requests, machine = EXAMPLES[name]
        return replay(policy, requests, **machine)

    return run


def test_running_decodes_stand_still_while_a_prompt_is_computed(example):
    run = example("stall")
    assert run.lines == ["0: A6 B6", "1: A1 B1", "2: C5", "3: A1 B1 C1", "4: A1"]
    assert run.times("first_token") == {"A": 1, "B": 1, "C": 3}
    assert run.times("finish") == {"A": 5, "B": 4, "C": 4}


def test_tokens_of_a_come_at_1_2_4_and_5(example):
    # One step: A and B. Then a gap of two for both, and one for C. Then A alone.
    assert example("stall").gaps == [(1, 2), (1, 1), (2, 2), (1, 1)]


@pytest.mark.parametrize(("name", "comeback"), [("recompute", "8: B9"), ("swap", "8: B1")])
def test_preempted_request_comes_back_when_the_other_is_done(example, name, comeback):
    run = example(name)
    assert run.lines == [
        *("0: A6 B6", "1: A1 B1", "2: A1 B1"),
        *("3: -B A1", "4: A1", "5: A1", "6: A1", "7: A1"),
        *(comeback, "9: B1", "10: B1", "11: B1", "12: B1"),
    ]
    assert run.times("finish") == {"A": 8, "B": 13}
    # Tokens of A at 1 to 8, of B at 1, 2, 3, and 9 to 13.
    assert run.gaps == [(1, 2), (1, 2), *[(1, 1)] * 5, (6, 1), *[(1, 1)] * 4]


def test_swapping_computes_nothing_twice(example):
    recomputed, swapped = example("recompute").requests["B"], example("swap").requests["B"]
    assert (recomputed.preemptions, recomputed.swaps, recomputed.recomputed_tokens) == (1, 0, 8)
    assert (swapped.preemptions, swapped.swaps, swapped.recomputed_tokens) == (1, 1, 0)


def test_blocks_of_the_swapped_request_are_free_while_it_is_away(example):
    # B needs its two blocks and one for its next token; A holds three from 3 to 8.
    assert example("swap").per_step("kv_used") == [4, 4, 4, 3, 3, 3, 3, 4, 3, 3, 3, 3, 4]
    assert example("swap").per_step("num_waiting") == [0] * 13


def test_nobody_is_admitted_while_someone_is_swapped_out(example):
    late = [line for line in example("later, swap").lines if "C" in line]
    assert late == ["9: C1", "10: B1 C1"]
    # Recomputing, the victim is the head of the queue and blocks C until its 9 tokens fit.
    late = [line for line in example("later, recompute").lines if "C" in line]
    assert late == ["8: B9 C1", "9: B1 C1"]


def test_prompts_wait_until_the_oldest_has_waited_two_prompt_steps(example):
    run = example("delay")
    # B is 0.5, 1.5, 2.5 old at 2, 3, 4: more than 2 x 1 at 4, and C comes along.
    assert run.lines[:6] == ["0: A4", "1: A1", "2: A1", "3: A1", "4: B3 C3", "5: A1 B1 C1"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_companion_invariants(example, name):
    run = example(name)
    run.check_invariants()
    for step in run.steps:
        assert not (step.num_decodes and step.num_chunks), "prompts and decodes never mix"
    assert all(a.end == b.start for a, b in pairwise(run.steps)), "never idle while work waits"
