import pytest

from simulator.queues import RunningList, WaitingQueue
from simulator.request import Request
from workloads.request import RequestSpec


def request(rid: int, prompt: int = 4, computed: int = 0, generated: int = 0) -> Request:
    made = Request(RequestSpec(rid, 0.0, prompt, 8))
    made.compute(computed)
    made.generated = generated
    made.known += generated
    return made


def ids(requests) -> list[int]:
    return [r.id for r in requests]


def test_requests_wait_in_order_of_arrival_and_preempted_ones_at_the_head() -> None:
    queue = WaitingQueue()
    assert queue.head is None
    for rid in (3, 1, 2):
        queue.append(request(rid))
    queue.push_front(request(9))
    queue.push_front(request(8))
    assert ids(queue) == [8, 9, 3, 1, 2]
    assert queue.head is not None
    assert queue.head.id == 8


def test_taking_one_out_leaves_the_order_of_the_others() -> None:
    queue = WaitingQueue()
    for rid in range(4):
        queue.append(request(rid))
    taken = queue.pop(1)
    assert taken is not None
    assert taken.id == 1
    assert queue.pop(1, None) is None
    assert (ids(queue), len(queue), 1 in queue, 2 in queue) == ([0, 2, 3], 3, False, True)
    queue.append(taken)
    assert ids(queue) == [0, 2, 3, 1]


@pytest.fixture
def running() -> RunningList:
    """Decode 5, partial 2, decode 7, partial 1, in this order."""
    made = RunningList()
    for member in (
        request(5, prompt=2, computed=2, generated=1),
        request(2, prompt=6, computed=3),
        request(7, prompt=2, computed=3, generated=2),
        request(1, prompt=1),
    ):
        made.append(member)
    return made


def test_partials_and_decodes_are_told_apart_in_running_order(running: RunningList) -> None:
    assert ids(running) == [5, 2, 7, 1]
    assert ids(running.partials) == [2, 1]
    assert (len(running), running.num_decodes) == (4, 2)
    assert [running.is_partial(rid) for rid in (5, 2, 7, 1)] == [False, True, False, True]


def test_only_decodes_in_front_are_counted(running: RunningList) -> None:
    assert [running.decodes_before(r) for r in running] == [0, 1, 1, 2]
    with pytest.raises(KeyError):
        running.decodes_before(request(99))


def test_a_request_that_caught_up_counts_as_a_decode_after_a_refresh(running: RunningList) -> None:
    caught_up = running.get(2)
    assert caught_up is not None
    caught_up.compute(3)
    caught_up.generated += 1
    caught_up.known += 1
    assert caught_up.is_decode
    running.refresh(caught_up)
    assert ids(running.partials) == [1]
    assert running.num_decodes == 3
    assert ids(running) == [5, 2, 7, 1]


def test_who_leaves_is_gone_from_both_lists(running: RunningList) -> None:
    for rid in (2, 5):
        member = running.get(rid)
        assert member is not None
        running.remove(member)
        assert running.get(rid) is None
    assert (ids(running), ids(running.partials), running.num_decodes) == ([7, 1], [1], 1)


def test_a_request_that_rereads_its_own_tokens_is_no_decode() -> None:
    again = request(0, prompt=4, computed=4, generated=3)
    assert (again.remaining, again.is_decode) == (3, False)
    again.compute(2)
    assert (again.remaining, again.is_decode) == (1, True)
    fresh = request(1, prompt=1)
    assert (fresh.remaining, fresh.is_decode) == (1, False)
