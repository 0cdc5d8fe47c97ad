"""I1, ORCA: A(P3,D2) B(P2,D4) C(P2,D2) at 0, all with M = 8, two at a time, 20 slots."""

import pytest

from policies import Orca

REQUESTS = [(0, 3, 2, 8), (0, 2, 4, 8), (0, 2, 2, 8)]
STEPS = ["0: A3 B2", "1: A1 B1", "2: B1 C2", "3: B1 C1"]
ALONE = ["0: A3", "1: A1", "2: B2", "3: B1", "4: B1", "5: B1", "6: C2", "7: C1"]
EXAMPLES = {
    "paper": (Orca(max_bs=2, n_slots=20), None, STEPS),
    "slots alone": (Orca(n_slots=20), None, STEPS),  # three of 8 are 24
    "batch size alone": (Orca(max_bs=2), None, STEPS),
    "one at a time": (Orca(max_bs=1), None, ALONE),
    "slots for one": (Orca(n_slots=15), None, ALONE),
    # 11 tokens for A, 10 for B and for C: with 22 blocks of one token, C waits for A.
    "blocks alone": (Orca(), 22, STEPS),
    # Vidur: 12 tokens for everybody.
    "vidur": (Orca(reserve="max_seq_len", max_seq_len=12), 24, STEPS),
    "vidur, room for one": (Orca(reserve="max_seq_len", max_seq_len=12), 23, ALONE),
    "room for all": (Orca(), None, ["0: A3 B2 C2", "1: A1 B1 C1", "2: B1", "3: B1"]),
}


@pytest.fixture
def example(replay):
    def run(name):
        policy, num_blocks, _ = EXAMPLES[name]
        return replay(policy, REQUESTS, num_blocks=num_blocks, block_size=1)

    return run


@pytest.mark.parametrize("name", EXAMPLES)
def test_requests_join_and_leave_at_every_step(example, name):
    assert example(name).lines == EXAMPLES[name][2]


def test_tokens_come_as_they_are_made(example):
    run = example("paper")
    assert run.times("finish") == {"A": 2, "B": 4, "C": 4}
    assert run.times("first_token") == {"A": 1, "B": 1, "C": 3}
    assert run.gaps == [(1, 2), (1, 1), (1, 2)]


def test_prompts_and_decodes_share_a_ragged_step(example):
    run = example("paper")
    assert run.per_step("chunk_tokens") == [5, 0, 2, 0]
    assert run.per_step("num_decodes") == [0, 2, 1, 2]
    assert run.per_step("charged_tokens") == [5, 2, 3, 2]


def test_all_blocks_are_held_from_start_to_end(example):
    assert example("paper").per_step("kv_used") == [21, 21, 20, 20]
    assert example("vidur").per_step("kv_used") == [24, 24, 24, 24]


@pytest.mark.parametrize("name", EXAMPLES)
def test_companion_invariants(example, name):
    run = example(name)
    run.check_invariants()
    assert not run.tables["requests"]["num_preemptions"].any()
    starts = list(run.times("first_scheduled").values())
    assert starts == sorted(starts), "first come, first served"
