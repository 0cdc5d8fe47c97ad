import heapq
from itertools import pairwise

import numpy as np
import pytest
from pydantic import ValidationError

from workloads import (
    ClosedWorkload,
    Streams,
    Trace,
    TurnSource,
    WorkloadError,
    parse_workload,
)
from workloads.sources import CappedSource

CLOSED = {
    "num_users": 4,
    "think_s": {"mean_s": 3.0},
    "prompt_tokens": {"low": 10, "high": 90},
    "output_tokens": {"mean": 20, "cv": 1},
    "num_requests": 40,
}


def serve(source, service_s, shuffle=None):
    """Serve in one server, in order of arrival; return (id, arrival, finish) a request."""
    due = [(request.arrival, request.id, request) for request in source.start()]
    heapq.heapify(due)
    log, free = [], 0.0
    while due:
        arrival, rid, request = heapq.heappop(due)
        free = max(free, arrival) + service_s(request)
        log.append((rid, arrival, free))
        for follower in source.on_finish(rid, free):
            assert follower.arrival >= free or isinstance(source, CappedSource)
            heapq.heappush(due, (follower.arrival, follower.id, follower))
    return log


def test_every_request_comes_once_with_the_id_of_its_row():
    source = parse_workload(CLOSED).source(Streams(1))
    log = serve(source, lambda request: 0.1)
    assert sorted(rid for rid, _, _ in log) == list(range(40))
    assert len(source.table) == 40


def test_a_user_has_one_request_at_a_time_and_thinks_between():
    source = parse_workload(CLOSED).source(Streams(1))
    log = {rid: (arrival, finish) for rid, arrival, finish in serve(source, lambda r: 0.5)}
    table = source.table
    for user in range(4):
        rows = np.flatnonzero(table.columns["conversation"] == user)
        assert table.columns["turn"][rows].tolist() == list(range(10))
        for one, other in pairwise(rows):
            think = log[other][0] - log[one][1]
            assert think == pytest.approx(table.columns["think_s"][other])


def test_throughput_obeys_littles_law():
    """N users, think time Z, response time R: N = X (R + Z) over a run with many turns."""
    workload = parse_workload(CLOSED | {"num_requests": 8000})
    source = workload.source(Streams(1))
    log = serve(source, lambda request: 0.6)
    arrivals, finishes = np.array([row[1:] for row in log]).T
    throughput = len(log) / finishes.max()
    cycle = np.mean(finishes - arrivals) + np.nanmean(source.table.columns["think_s"])
    assert throughput * cycle == pytest.approx(4, rel=0.02)


def test_requests_belong_to_user_and_turn_whatever_else_changes():
    base = parse_workload(CLOSED).source(Streams(1)).table
    key = {
        (c, t): (p, d, think)
        for c, t, p, d, think in zip(
            base.columns["conversation"].tolist(),
            base.columns["turn"].tolist(),
            base.prompt_tokens.tolist(),
            base.output_tokens.tolist(),
            np.nan_to_num(base.columns["think_s"]).tolist(),
            strict=True,
        )
    }
    for change in ({"num_users": 8}, {"num_requests": 80}, {"ramp_up_s": 9}):
        other = parse_workload(CLOSED | change).source(Streams(1)).table
        for row in range(len(other)):
            place = int(other.columns["conversation"][row]), int(other.columns["turn"][row])
            if place in key:
                mine = (
                    other.prompt_tokens[row],
                    other.output_tokens[row],
                    np.nan_to_num(other.columns["think_s"][row]),
                )
                assert mine == key[place]


def test_two_runs_with_other_service_meet_the_same_requests():
    logs = []
    for seconds in (0.1, 2.0):
        source = parse_workload(CLOSED).source(Streams(1))
        seen = {}
        serve(source, lambda r, seen=seen, s=seconds: seen.update({r.id: r.prompt_tokens}) or s)
        logs.append(seen)
    assert logs[0] == logs[1]


def test_users_start_over_the_ramp():
    source = parse_workload(CLOSED | {"ramp_up_s": 8}).source(Streams(1))
    assert [request.arrival for request in source.start()] == [0.0, 2.0, 4.0, 6.0]


def test_requests_that_do_not_divide_evenly():
    table = parse_workload(CLOSED | {"num_requests": 6}).source(Streams(1)).table
    assert sorted(np.bincount(table.columns["conversation"])) == [1, 1, 2, 2]


def test_a_closed_loop_cannot_be_built_beforehand():
    workload = parse_workload(CLOSED)
    assert isinstance(workload, ClosedWorkload)
    assert not workload.is_open
    with pytest.raises(WorkloadError, match="depend on completions"):
        workload.build(Streams(1))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"num_users": 0}, "num_users"),
        ({"num_requests": 3}, "num_requests"),
        ({"ramp_up_s": -1}, "ramp_up_s"),
        ({"think_s": -1}, "think_s"),
    ],
)
def test_nonsense_is_refused_by_name(change, field):
    with pytest.raises(ValidationError, match=field):
        parse_workload(CLOSED | change)


def conversations(think):
    return Trace(
        [0.0, 1.0, 2.0, 6.0, 7.0],
        [1, 2, 3, 4, 5],
        [1] * 5,
        columns={"conversation": [0, 1, -1, 0, 0], "turn": [0, 0, 0, 1, 2], "think_s": think},
    )


def test_turns_wait_for_the_answer():
    nan = np.nan
    source = TurnSource(conversations([nan, nan, nan, 5.0, nan]))
    assert [request.id for request in source.start()] == [0, 1, 2]
    assert [request.arrival for request in source.on_finish(0, 2.5)] == [7.5]
    assert source.on_finish(1, 9.0) == source.on_finish(2, 9.0) == []
    assert [request.arrival for request in source.on_finish(3, 8.0)] == [8.0]
    assert source.on_finish(4, 10.0) == []


def test_turns_without_think_time_keep_their_own_time_if_they_can():
    source = TurnSource(conversations([np.nan] * 5))
    source.start()
    assert [request.arrival for request in source.on_finish(0, 2.5)] == [6.0]


def test_turns_need_conversations():
    with pytest.raises(WorkloadError, match="expected requests with a conversation"):
        TurnSource(Trace([0.0], [1], [1]))


def test_cap_never_exceeds_its_number_and_keeps_the_order():
    rng = np.random.default_rng(1)
    n = 300
    trace = Trace(np.cumsum(rng.exponential(1, n)), rng.integers(1, 50, n), np.ones(n))
    source = CappedSource(trace, 3)
    due = [(r.arrival, r.id) for r in source.start()]
    heapq.heapify(due)
    running, sent = [], []
    while due or running:
        if running and (not due or running[0][0] <= due[0][0]):
            finish, rid = heapq.heappop(running)
            for request in source.on_finish(rid, finish):
                heapq.heappush(due, (request.arrival, request.id))
        else:
            arrival, rid = heapq.heappop(due)
            sent.append(rid)
            assert arrival >= trace.arrival_s[rid]
            heapq.heappush(running, (arrival + float(trace.prompt_tokens[rid]) / 10, rid))
            assert len(running) <= 3
    assert sent == list(range(n))


def test_a_cap_that_never_binds_changes_nothing():
    trace = Trace([0.0, 1.0, 2.0], [1, 1, 1], [1, 1, 1])
    log = serve(CappedSource(trace, 5), lambda request: 0.1)
    assert [arrival for _, arrival, _ in log] == [0.0, 1.0, 2.0]
    with pytest.raises(WorkloadError, match="max_concurrency"):
        CappedSource(trace, 0)
