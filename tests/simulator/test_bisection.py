import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.capacity.bisection import Bracket, highest, lowest_whole, most_probes, run_search


class Asked:
    """A limit, and how often it was asked for."""

    def __init__(self, limit: float, *, at_least: bool = False) -> None:
        self.limit, self.at_least, self.values = limit, at_least, []

    def __call__(self, value: float) -> bool:
        self.values.append(value)
        return value >= self.limit if self.at_least else value <= self.limit


@settings(max_examples=300, deadline=None, derandomize=True)
@given(st.floats(0.011, 900), st.sampled_from([0.01, 0.3, 1, 7, 64, 1000]),
       st.sampled_from([0.005, 0.02, 0.1]))  # fmt: skip
def test_a_limit_in_the_range_is_bracketed(limit: float, start: float, tolerance: float) -> None:
    asked = Asked(limit)
    found = run_search(highest(start, 0.01, 1000, tolerance), asked)
    assert found.good <= limit < found.bad
    assert found.bad / found.good <= 1 + tolerance
    assert len(asked.values) == len(set(asked.values))
    assert len(asked.values) <= most_probes(start, 0.01, 1000, tolerance)


@settings(max_examples=100, deadline=None, derandomize=True)
@given(st.integers(2, 64), st.integers(1, 64))
def test_the_smallest_whole_number_is_found(limit: int, start: int) -> None:
    asked = Asked(limit, at_least=True)
    assert run_search(lowest_whole(start, 1, 64), asked) == Bracket(limit, limit - 1)
    assert all(value == int(value) for value in asked.values)
    assert len(asked.values) <= most_probes(start, 1, 64, None)


@pytest.mark.parametrize(
    ("search", "limit", "found"),
    [
        (highest(1, 0.1, 10, 0.02), 0.05, Bracket(None, 0.1)),
        (highest(1, 0.1, 10, 0.02), math.inf, Bracket(10, None)),
        (highest(1, 1, 1, 0.02), 2, Bracket(1, None)),
    ],
)
def test_a_limit_outside_the_range_is_said_and_the_search_stops(
    search, limit: float, found: Bracket
) -> None:
    assert run_search(search, Asked(limit)) == found


def test_one_replica_may_be_enough_and_all_may_be_too_few() -> None:
    assert run_search(lowest_whole(1, 1, 8), lambda n: True) == Bracket(1, None)
    assert run_search(lowest_whole(1, 1, 8), lambda n: False) == Bracket(None, 8)
