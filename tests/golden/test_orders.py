"""S2 and S3 on a single server: shortest job first, earliest deadline first."""

from itertools import permutations

import pytest

from policies import VllmV1

JOBS = [(0, 1, 5), (1, 1, 2), (2, 1, 1)]


def server(order) -> VllmV1:
    """Return a policy that serves one request at a time; a step is a token."""
    return VllmV1(max_num_seqs=1, order=order)


def due(*jobs: tuple[float, int, float]) -> list[tuple]:
    """Return requests of (arrival, length, deadline)."""
    return [(arrival, 1, length, 0, 0, "", 1, None, None, end) for arrival, length, end in jobs]


DEADLINES = due((0, 3, 9), (1, 2, 4), (2, 2, 6))


def served(run) -> str:
    """Return whose token each step makes."""
    return "".join(line.split()[-1][0] for line in run.lines)


def mean_flow(run) -> float:
    flows = [request.finish - request.arrival for request in run.requests.values()]
    return sum(flows) / len(flows)


def late(run) -> list[str]:
    return [name for name, request in run.requests.items() if request.finish > request.deadline]


@pytest.mark.parametrize(
    ("order", "sequence", "flow"),
    [("fcfs", "AAAAABBC", 17 / 3), ("sjf", "AAAAACBB", 16 / 3)],
)
def test_shortest_job_first_lowers_the_mean_flow_time(replay, order, sequence, flow):
    run = replay(server(order), JOBS)
    assert served(run) == sequence
    assert mean_flow(run) == pytest.approx(flow, abs=1e-12)


def test_shortest_remaining_time_preempts_for_the_lowest_mean_flow_time(replay):
    run = replay(server("srpt"), JOBS)
    assert served(run) == "ABBCAAAA"  # at 2, B and C lack a token each: B came first
    assert mean_flow(run) == pytest.approx(4.0, abs=1e-12)
    assert run.lines[1] == "1: -A B1"
    assert run.requests["A"].recomputed_tokens == 1  # its prompt, in the step of its next token


@pytest.mark.parametrize("work", ["seconds", "output-tokens"])
def test_both_measures_of_work_agree_where_prompts_are_equal(replay, work):
    assert served(replay(server({"kind": "sjf", "work": work}), JOBS)) == "AAAAACBB"


def test_preemptive_earliest_deadline_first_misses_none(replay):
    run = replay(server({"kind": "edf", "preemptive": True}), DEADLINES)
    assert served(run) == "ABBCCAA"
    assert run.times("finish") == {"A": 7, "B": 3, "C": 5}
    assert late(run) == []
    assert run.lines[1] == "1: -A B1"
    assert run.requests["A"].recomputed_tokens == 1  # its prompt, in the step of its next token


def test_first_come_first_served_misses_two_deadlines(replay):
    run = replay(server("fcfs"), DEADLINES)
    assert run.times("finish") == {"A": 3, "B": 5, "C": 7}
    assert late(run) == ["B", "C"]


def test_deadlines_alone_do_not_preempt(replay):
    run = replay(server("edf"), DEADLINES)
    assert served(run) == "AAABBCC"
    assert late(run) == ["B", "C"]


@pytest.mark.parametrize("seed", range(5))
def test_companion_no_order_of_jobs_that_wait_together_has_a_lower_mean_flow_time(replay, seed):
    lengths = [[3, 1, 4, 2], [5, 5, 1, 2], [2, 7, 1, 8], [1, 1, 6, 2], [9, 3, 3, 1]][seed]
    jobs = [(0, 1, length) for length in lengths]
    best = mean_flow(replay(server("sjf"), jobs))
    others = [sum(sum(p[: i + 1]) for i in range(4)) / 4 for p in permutations(lengths)]
    assert best == min(others)


@pytest.mark.parametrize("shift", range(6))
def test_companion_edf_meets_all_deadlines_whenever_some_order_does(replay, shift):
    jobs = [(0, 3, 8), (1 + shift % 3, 2, 5 + shift), (2, 2, 6 + shift % 2), (4, 1, 9)]
    feasible = any(meets(jobs, order) for order in permutations(range(4)))
    run = replay(server({"kind": "edf", "preemptive": True}), due(*jobs))
    assert feasible is (late(run) == [])
    run.check_invariants()


def meets(jobs: list[tuple[float, int, float]], order: tuple[int, ...]) -> bool:
    """Whether serving by this priority, preempting at any time, meets all deadlines."""
    left = [length for _, length, _ in jobs]
    for now in range(20):
        ready = [job for job in order if jobs[job][0] <= now and left[job]]
        if ready:
            left[ready[0]] -= 1
            if not left[ready[0]] and now + 1 > jobs[ready[0]][2]:
                return False
    return not any(left)
