"""G1 to G4: where requests go, on loads written down and in a run."""

from pathlib import Path

import numpy as np
import pytest

from policies.routers import LeastOutstanding, Load, PowerOfTwo, Random, RoundRobin
from simulator import RunSpec, simulate


class Draws:
    """A generator whose numbers are written down."""

    def __init__(self, *numbers: int) -> None:
        self._numbers = list(numbers)

    def integers(self, high: int) -> int:
        number = self._numbers.pop(0)
        assert number < high
        return number


def loads(*counts: int) -> list[Load]:
    return [Load(count, 0, 0) for count in counts]


def test_power_of_two_compares_the_two_replicas_drawn():
    """Draws (0, 2), (1, 2), (0, 1); the second of a pair is one of the others, counted up."""
    router = PowerOfTwo().build(3, Draws(0, 1, 1, 1, 0, 0))
    assert router.route(None, loads(3, 1, 2)) == 2
    assert router.route(None, loads(3, 1, 3)) == 1
    assert router.route(None, loads(3, 2, 3)) == 1


def test_power_of_two_keeps_the_first_drawn_in_a_tie_and_has_no_choice_of_one():
    assert PowerOfTwo().build(2, Draws(1, 0)).route(None, loads(4, 4)) == 1
    assert PowerOfTwo().build(1, Draws()).route(None, loads(4)) == 0


@pytest.mark.parametrize(("count", "chosen"), [("all", 2), ("waiting", 0), ("tokens", 1)])
def test_least_outstanding_counts_what_it_is_told_to(count, chosen):
    table = [Load(0, 9, 500), Load(3, 1, 100), Load(1, 1, 900)]
    assert LeastOutstanding(count=count).build(3, Draws()).route(None, table) == chosen


def test_ties_go_to_the_lowest_index():
    assert LeastOutstanding().build(3, Draws()).route(None, loads(2, 1, 1)) == 1


def test_round_robin_and_random_look_at_nothing():
    rng = np.random.default_rng(3)
    robin, dice = RoundRobin().build(3, rng), Random().build(3, rng)
    assert [robin.route(None, ()) for _ in range(5)] == [0, 1, 2, 0, 1]
    assert {dice.route(None, ()) for _ in range(50)} == {0, 1, 2}


def served(tmp_path: Path, router: dict, arrivals_ms: list[float], outputs: list[int]) -> list[int]:
    """Return the replica of each request; three servers of one request, steps of 10 ms."""
    rows = [f"{at / 1e3},1,{n}" for at, n in zip(arrivals_ms, outputs, strict=True)]
    file = tmp_path / "trace.csv"
    file.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]) + "\n")
    data = {
        "workload": {"path": str(file), "format": "csv"},
        "policy": "none",
        "cost": {"kind": "fixed", "step_ms": 10},
        "engine": {"num_replicas": 3, "router": router},
    }
    return simulate(RunSpec.from_dict(data)).tables["requests"]["replica"].tolist()


ARRIVALS, OUTPUTS = [0, 2, 14, 26, 38, 50], [9, 1, 1, 1, 2, 1]
"""A is long; B, C and D are done before the next one comes, E is not."""


@pytest.mark.parametrize(
    ("kind", "replicas"),
    [("round-robin", [0, 1, 2, 0, 1, 2]), ("least-outstanding", [0, 1, 1, 1, 1, 2])],
)
def test_requests_of_the_guide_go_where_its_figures_show_them(tmp_path, kind, replicas):
    assert served(tmp_path, {"kind": kind}, ARRIVALS, OUTPUTS) == replicas


def test_companion_stale_loads_send_a_burst_to_one_replica(tmp_path):
    burst = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    live = served(tmp_path, {"kind": "least-outstanding"}, burst, [1] * 6)
    assert sorted(live) == [0, 0, 1, 1, 2, 2]
    router = {"kind": "least-outstanding", "refresh_interval_ms": 100}
    assert served(tmp_path, router, burst, [1] * 6) == [0] * 6
