"""MSER-5 and batch means against series whose answer is known."""

import numpy as np
import pytest
import scipy.signal
import scipy.stats

from simulator.stats import Floats
from simulator.stats.steady_state import batch_means, batch_means_interval, mser


def autoregressive(rng: np.random.Generator, number: int, phi: float) -> Floats:
    """Return a stationary series x[i] = phi x[i-1] + normal noise."""
    noise = rng.normal(size=number)
    noise[0] /= np.sqrt(1 - phi**2)
    series: Floats = scipy.signal.lfilter([1.0], [1.0, -phi], noise)
    return series


def by_definition(values: Floats) -> int:
    """Return the cut that the definition gives, without looking at the half."""
    means = [values[i : i + 5].mean() for i in range(0, len(values) - 4, 5)]
    errors = [np.var(means[d:]) / len(means[d:]) for d in range(len(means) - 1)]
    return 5 * int(np.argmin(errors))


@pytest.mark.parametrize("seed", range(20))
def test_mser_cuts_where_the_definition_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    values = 1e6 + rng.normal(size=303) + 8 * np.exp(-np.arange(303) / 15)
    expected = by_definition(values)
    assert mser(values) == (expected if expected <= 150 else None)


def test_mser_finds_the_end_of_a_step_and_of_a_decay() -> None:
    rng = np.random.default_rng(0)
    step = np.r_[np.full(100, 30.0), np.zeros(900)] + rng.normal(size=1000)
    assert mser(step) == 100
    decay = 50 * np.exp(-np.arange(2000) / 100) + rng.normal(size=2000)
    cut = mser(decay)
    assert cut is not None
    assert 200 <= cut <= 700  # the decay is 6.8 to 0.05 deviations high there


def test_mser_cuts_little_of_a_steady_series() -> None:
    cuts = [mser(np.random.default_rng(seed).normal(size=1000)) for seed in range(50)]
    assert np.median([cut for cut in cuts if cut is not None]) <= 50


def test_mser_says_nothing_of_a_series_that_is_short_or_still_rises() -> None:
    assert mser(np.arange(49.0)) is None
    assert mser(np.arange(500.0)) is None
    assert mser(np.full(50, 3.0)) == 0


def test_batch_means_are_of_the_end_of_the_series() -> None:
    assert batch_means(np.arange(11.0), 5).tolist() == [1.5, 3.5, 5.5, 7.5, 9.5]
    for wrong in (0, 12):
        with pytest.raises(ValueError, match="expected 1 to 11"):
            batch_means(np.arange(11.0), wrong)


def test_batch_means_of_independent_values_have_the_t_interval() -> None:
    values = np.random.default_rng(3).normal(5, 2, 400)
    means = values.reshape(20, 20).mean(axis=1)
    expected = scipy.stats.t.interval(0.95, 19, means.mean(), scipy.stats.sem(means))
    mean, low, high = batch_means_interval(values)
    assert mean == pytest.approx(values.mean())
    assert (low, high) == pytest.approx(expected, rel=1e-12)


def test_batch_means_cover_where_single_values_would_not() -> None:
    """An autoregressive series of mean 0: the interval of single values covers in a quarter."""
    rng = np.random.default_rng(1)
    series = [autoregressive(rng, 4000, 0.9) for _ in range(300)]
    bounds = [batch_means_interval(values)[1:] for values in series]
    hits = sum(low < 0 < high for low, high in bounds)
    naive = sum(abs(values.mean()) < 1.96 * scipy.stats.sem(values) for values in series)
    assert 0.92 <= hits / 300 <= 0.98
    assert naive / 300 < 0.5


def test_batch_means_need_ten_batches_of_ten() -> None:
    assert batch_means_interval(np.ones(199)) == (1.0, None, None)
    assert batch_means_interval(np.ones(200)) == (1.0, 1.0, 1.0)
    assert batch_means_interval(np.ones(0)) == (None, None, None)
    with pytest.raises(ValueError, match="at least 10"):
        batch_means_interval(np.ones(200), 9)
