"""R1, static batching: A(P4,D2) B(P2,D5) C(P3,D3) at 0, D(P2,D2) at 1, three to a batch."""

import pytest

from policies import Release, Static

REQUESTS = [(0, 4, 2), (0, 2, 5), (0, 3, 3), (1, 2, 2)]
EXAMPLES = {
    "per batch": Static(max_batch_size=3),
    "per request": Static(max_batch_size=3, release=Release.PER_REQUEST),
    "drop finished": Static(max_batch_size=3, drop_finished=True),
}
STEPS = ["0: A4 B2 C3", "1: A1 B1 C1", "2: B1 C1", "3: B1", "4: B1", "5: D2", "6: D1"]


@pytest.mark.parametrize("policy", EXAMPLES.values(), ids=EXAMPLES)
def test_nobody_joins_a_batch_and_it_runs_to_its_longest_member(replay, policy):
    assert replay(policy, REQUESTS).lines == STEPS


def test_prompts_are_padded_to_the_longest_and_finished_rows_are_still_charged(replay):
    run = replay(EXAMPLES["per batch"], REQUESTS)
    assert run.per_step("chunk_tokens") == [9, 0, 0, 0, 0, 2, 0]
    assert run.per_step("num_decodes") == [0, 3, 2, 1, 1, 0, 1]
    assert run.per_step("charged_tokens") == [12, 3, 3, 3, 3, 2, 1]
    # Of the first batch: 12 slots for 9 prompt tokens, then 4 x 3 = 12 rows for 7 useful ones.
    assert sum(run.per_step("charged_tokens")[1:5]) == 12
    assert sum(run.per_step("num_decodes")[1:5]) == 7


def test_drop_finished_charges_the_unfinished_rows_only(replay):
    run = replay(EXAMPLES["drop finished"], REQUESTS)
    assert run.per_step("charged_tokens") == [12, 3, 2, 1, 1, 2, 1]


def test_per_batch_release_delivers_all_results_at_the_end_of_the_batch(replay):
    run = replay(EXAMPLES["per batch"], REQUESTS)
    assert run.times("finish") == {"A": 5, "B": 5, "C": 5, "D": 7}
    assert run.times("first_token") == {"A": 5, "B": 5, "C": 5, "D": 7}
    assert run.gaps == [(0, 7), (0, 1)]


def test_per_request_release_streams(replay):
    run = replay(EXAMPLES["per request"], REQUESTS)
    assert run.times("finish") == {"A": 2, "B": 5, "C": 3, "D": 7}
    assert run.times("first_token") == {"A": 1, "B": 1, "C": 1, "D": 6}
    assert run.gaps == [(1, 3), (1, 2), (1, 1), (1, 1), (1, 1)]


def test_ttft_of_the_request_that_just_missed_the_batch_is_five(replay):
    run = replay(EXAMPLES["per request"], REQUESTS)
    assert run.requests["D"].first_token - run.requests["D"].arrival == 5


def test_blocks_are_kept_to_the_end_of_the_batch(replay):
    run = replay(EXAMPLES["per batch"], REQUESTS, block_size=1)
    assert run.per_step("kv_used") == [19] * 5 + [4] * 2
    streaming = replay(EXAMPLES["per request"], REQUESTS, block_size=1)
    assert streaming.per_step("kv_used") == [19, 19, 13, 7, 7, 4, 4]


@pytest.mark.parametrize("policy", EXAMPLES.values(), ids=EXAMPLES)
@pytest.mark.parametrize("num_blocks", [None, 3])
def test_companion_invariants(replay, policy, num_blocks):
    run = replay(policy, REQUESTS, num_blocks=num_blocks)
    run.check_invariants()
    assert not run.tables["requests"]["num_preemptions"].any()
