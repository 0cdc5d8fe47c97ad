"""No batching: (P4, D2) and (P2, D2) at 0, one after the other."""

import pytest

from policies import OneAtATime, Static, VllmV1

REQUESTS = [(0, 4, 2), (0, 2, 2)]


def test_one_request_at_a_time_first_come_first_served(replay):
    run = replay(OneAtATime(), REQUESTS)
    assert run.lines == ["0: A4", "1: A1", "2: B2", "3: B1"]
    assert run.times("first_token") == {"A": 1, "B": 3}
    assert run.times("finish") == {"A": 2, "B": 4}


@pytest.mark.parametrize(
    "policy",
    [VllmV1(max_num_seqs=1), Static(max_batch_size=1), Static(max_batch_size=1, max_seq_len=9)],
    ids=repr,
)
def test_companion_every_family_with_one_slot_is_the_same_single_server(replay, policy):
    requests = [*REQUESTS, (3, 5, 1), (20, 1, 3)]
    assert replay(policy, requests).lines == replay(OneAtATime(), requests).lines


def test_companion_invariants(replay):
    run = replay(OneAtATime(), REQUESTS)
    run.check_invariants()
    assert run.per_step("num_running") == [1, 1, 1, 1]
