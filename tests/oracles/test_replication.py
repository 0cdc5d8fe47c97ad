"""The judge is judged: right intervals, enough replications, and a wrong engine is found out."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from simulator import Result
from simulator.theory import replications
from simulator.theory.case import estimate_case
from simulator.theory.cases_single import md1
from simulator.theory.compare import compare
from simulator.theory.replications import FEWEST, MOST, Sample, replicate_until


def draws(spread: float, seed: int = 0) -> dict[int, float]:
    return dict(enumerate(np.random.default_rng(seed).normal(10.0, spread, 500).tolist()))


def test_without_controls_it_is_the_t_interval() -> None:
    values = draws(0.1)
    found = replicate_until(lambda number: Sample({"x": values[number]}), {"x": 10.0})["x"]
    sample = [values[number] for number in range(FEWEST)]
    low, high = stats.ttest_1samp(sample, 0.0).confidence_interval(0.999)
    assert found.num_replications == FEWEST
    assert found.value - found.half_width == pytest.approx(low)
    assert found.value + found.half_width == pytest.approx(high)


def test_replications_are_added_until_the_interval_is_narrow() -> None:
    values = draws(0.25)
    found = replicate_until(lambda number: Sample({"x": values[number]}), {"x": 10.0})["x"]
    assert found.num_replications > FEWEST
    assert found.half_width <= 0.01 * 10.0
    assert found.agrees


def test_it_gives_up_and_a_wide_interval_does_not_count() -> None:
    values = draws(5.0)
    found = replicate_until(lambda number: Sample({"x": values[number]}), {"x": 10.0})["x"]
    assert found.num_replications == MOST
    assert abs(found.value - 10.0) < found.half_width
    assert not found.is_narrow
    assert not found.agrees


def test_a_control_takes_luck_out_and_leaves_the_mean() -> None:
    noise, luck = draws(0.01), draws(1.0, seed=1)

    def measure(number: int) -> Sample:
        shared = luck[number] - 10.0
        return Sample({"x": noise[number] + 3 * shared}, (shared, 2 * shared))  # one says it twice

    found = replicate_until(measure, {"x": 10.0})["x"]
    assert found.num_replications == FEWEST
    assert found.half_width < 0.02
    assert found.agrees


def test_a_biased_value_is_found_out() -> None:
    values = draws(0.05)
    found = replicate_until(lambda number: Sample({"x": values[number]}), {"x": 10.1})["x"]
    assert not found.agrees


@pytest.mark.parametrize("slowness", [0.99, 1.01])
def test_an_engine_that_is_one_per_cent_off_is_found_out(slowness: float) -> None:
    case = md1(0.5, 600, 40)
    cost = {"kind": "fixed", "step_ms": 1000 * slowness}
    slow = replace(case, run=case.run | {"cost": cost})
    found = estimate_case(slow)
    assert found["W"].is_narrow
    assert not found["W"].agrees


def test_a_value_outside_is_looked_at_once_more_with_other_replications() -> None:
    seen: list[int] = []

    def lucky(result: Result) -> Sample:
        seen.append(result.replication)
        luck = np.random.default_rng(result.replication).normal(0, 0.01)
        return Sample({"x": luck + (1.1 if result.replication < MOST else 1.0)})

    case = replace(md1(0.5, 1, 0), theory=lambda: {"x": 1.0}, sample=lucky)
    (row,) = compare(case)
    assert (row["looks"], row["inside"]) == (2, True)
    assert seen == [*range(FEWEST), *range(MOST, MOST + FEWEST)]

    (row,) = compare(replace(case, theory=lambda: {"x": 1.2}))
    assert (row["looks"], row["inside"]) == (2, False)


def test_the_budgets_are_those_of_the_rule() -> None:
    assert replications.CONFIDENCE == 0.999
    assert replications.LARGEST_HALF_WIDTH == 0.01
