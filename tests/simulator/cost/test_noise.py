import numpy as np
import pytest

from simulator.cost import StepWork, TableCost, TableSpec
from simulator.cost.noise import NoisyCost, noise_factors

WORK = StepWork(32, 32 * 512, (), 32, 32)


@pytest.mark.parametrize("cv", [0.01, 0.03, 0.2])
def test_factors_have_mean_one_and_the_coefficient_asked_for(cv: float) -> None:
    factors = np.array(noise_factors(cv))
    assert factors.mean() == pytest.approx(1, abs=1e-7)
    assert factors.std() == pytest.approx(cv, rel=0.005)
    assert np.log(factors).mean() == pytest.approx(-np.log(1 + cv**2) / 2, rel=0.02)


def test_noise_is_off_by_default() -> None:
    cost = TableSpec().build(np.random.default_rng(0))
    assert isinstance(cost, TableCost)
    assert cost.supports_runs


def test_equal_seeds_give_equal_noise() -> None:
    spec = TableSpec(noise_cv=0.03)
    first, second = (spec.build(np.random.default_rng(5)) for _ in range(2))
    times = [first.step_time(WORK) for _ in range(20)]
    assert times == [second.step_time(WORK) for _ in range(20)]
    assert len(set(times)) > 15


def test_noise_scatters_around_the_model() -> None:
    noisy = TableSpec(noise_cv=0.03).build(np.random.default_rng(5))
    exact = TableSpec().cost().step_time(WORK)
    times = np.array([noisy.step_time(WORK) for _ in range(4000)])
    assert times.mean() == pytest.approx(exact, rel=4 * 0.03 / 4000**0.5)
    assert times.std() / exact == pytest.approx(0.03, rel=0.06)


def test_noise_offers_no_runs_and_counts_extrapolation() -> None:
    noisy = TableSpec(noise_cv=0.03).build(np.random.default_rng(5))
    assert isinstance(noisy, NoisyCost)
    assert not noisy.supports_runs
    noisy.step_time(StepWork(1, 200_000, (), 1, 1))
    assert noisy.num_extrapolated == 1
