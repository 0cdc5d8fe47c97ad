"""The judge is judged: right intervals, enough replications, and a wrong engine is found out."""

import numpy as np
import pytest
from scipy import stats

from simulator import Result
from tests.oracles import replication
from tests.oracles.replication import (
    FEWEST,
    Measured,
    Sample,
    check,
    one_token_run,
    replicate_until,
)
from tests.oracles.theory import mg1_wait


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


def test_it_gives_up_rather_than_accept_a_wide_interval() -> None:
    values = draws(5.0)
    with pytest.raises(AssertionError, match="after 200 replications"):
        replicate_until(lambda number: Sample({"x": values[number]}), {"x": 10.0})


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
    cost = {"kind": "fixed", "step_ms": 1000 * slowness}

    def sample(result: Result) -> Sample:
        seen = Measured(result)
        return Sample({"sojourn": seen.sojourn()}, seen.arrival_controls())

    spec = one_token_run(0.5, "none", cost, num_requests=600, warmup_s=40)
    with pytest.raises(AssertionError, match=r"theory 1\.5"):
        check("M/D/1", spec, sample, sojourn=1 + mg1_wait(0.5, 1.0, 1.0))


def test_the_budgets_are_those_of_the_rule() -> None:
    assert replication.CONFIDENCE == 0.999
    assert replication.LARGEST_HALF_WIDTH == 0.01
