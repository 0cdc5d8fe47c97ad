import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.stats import (
    mean_interval,
    min_samples,
    overlap,
    paired_interval,
    percentile_interval,
    replications_needed,
    time_weighted_percentile,
    weighted_mean_std,
    weighted_percentile,
)

SAMPLES = st.lists(
    st.tuples(st.floats(-1e6, 1e6), st.integers(0, 50)), min_size=1, max_size=40
).filter(lambda pairs: any(count for _, count in pairs))
LEVELS = st.lists(st.floats(0, 100), min_size=1, max_size=5)


@pytest.mark.parametrize(("percentile", "least"), [(90, 36), (95, 72), (99, 368), (99.9, 3688)])
def test_a_percentile_needs_samples_on_both_sides(percentile: float, least: int) -> None:
    assert min_samples(percentile) == min_samples(100 - percentile) == least
    # A two-sided 95 % interval exists once "all samples lie below" has at most 2.5 %.
    q = percentile / 100
    assert q**least <= 0.025 < q ** (least - 1)


@pytest.mark.parametrize("percentile", [0, 100, -1, 101, math.nan])
def test_the_ends_are_no_percentiles(percentile: float) -> None:
    with pytest.raises(ValueError, match="expected a number between 0 and 100"):
        min_samples(percentile)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(SAMPLES, LEVELS)
def test_weighted_percentiles_are_those_of_the_written_out_list(
    pairs: list[tuple[float, int]], levels: list[float]
) -> None:
    values, counts = (np.array(column) for column in zip(*pairs, strict=True))
    written_out = np.repeat(values, counts)
    found = weighted_percentile(values, counts, np.array(levels))
    assert found.tolist() == np.percentile(written_out, levels).tolist()
    quantiles = scipy.stats.quantile(written_out, np.array(levels) / 100, method="linear")
    np.testing.assert_allclose(found, quantiles, rtol=1e-9, atol=1e-9)


def test_weighted_percentiles_are_numpys_to_the_last_bit() -> None:
    rng = np.random.default_rng(0)
    for size in range(1, 150):
        values, counts = rng.lognormal(size=size), rng.integers(1, 30, size)
        levels = rng.uniform(0, 100, 20)
        expected = np.percentile(np.repeat(values, counts), levels)
        assert weighted_percentile(values, counts, levels).tolist() == expected.tolist()


def test_weights_of_a_billion_are_exact() -> None:
    counts = np.array([10**9, 1, 10**9])
    found = weighted_percentile(np.array([1.0, 2.0, 3.0]), counts, np.array([49.99, 50, 50.01]))
    assert found.tolist() == [1.0, 2.0, 3.0]


@settings(deadline=None, derandomize=True)
@given(SAMPLES)
def test_weighted_mean_and_deviation_are_those_of_the_written_out_list(
    pairs: list[tuple[float, int]],
) -> None:
    values, counts = (np.array(column) for column in zip(*pairs, strict=True))
    written_out = np.repeat(values, counts)
    mean, std = weighted_mean_std(values, counts)
    assert mean == pytest.approx(written_out.mean(), rel=1e-9, abs=1e-6)
    assert std == pytest.approx(written_out.std(), rel=1e-6, abs=1e-6)


def test_an_interval_counts_as_far_as_it_lies_in_the_window() -> None:
    starts = np.array([0.0, 1.0, 2.5, 4.0, 0.0])
    ends = np.array([1.0, 2.0, 3.5, 5.0, 9.0])
    assert overlap(starts, ends, 1.5, 3.0).tolist() == [0.0, 0.5, 0.5, 0.0, 1.5]


def test_a_time_weighted_percentile_is_not_exceeded_for_that_share_of_the_time() -> None:
    values, durations = np.array([8.0, 1.0, 3.0]), np.array([1.0, 98.0, 1.0])
    levels = (50, 97.9, 98.5, 99.5)
    found = [time_weighted_percentile(values, durations, level) for level in levels]
    assert found == [1.0, 1.0, 3.0, 8.0]


def test_a_mean_has_the_t_interval_of_the_tables() -> None:
    values = np.array([4.0, 6.0, 8.0, 10.0])  # deviation 2.582, t(3; 97.5 %) = 3.182
    mean, _, high = mean_interval(values)
    assert mean == 7.0
    assert (high - mean) == pytest.approx(3.182446 * 2.581989 / 2, rel=1e-6)
    expected = scipy.stats.t.interval(0.9, 3, 7.0, scipy.stats.sem(values))
    assert mean_interval(values, 0.9)[1:] == pytest.approx(expected, rel=1e-12)
    assert mean_interval(values[:1]) == (4.0, None, None)
    assert mean_interval(values[:0]) == (None, None, None)


def test_a_paired_interval_is_that_of_the_paired_t_test() -> None:
    rng = np.random.default_rng(1)
    first = rng.normal(100, 20, 12)
    second = first + rng.normal(2, 1, 12)
    expected = scipy.stats.ttest_rel(second, first).confidence_interval(0.95)
    mean, low, high = paired_interval(first, second)
    assert mean == pytest.approx((second - first).mean())
    assert (low, high) == pytest.approx((expected.low, expected.high), rel=1e-10)
    apart = mean_interval(second)[2] - mean_interval(second)[0]
    assert (high - low) / 2 < apart / 10  # what both share has cancelled out


@pytest.mark.parametrize(("percentile", "confidence"), [(50, 0.95), (90, 0.95), (99, 0.9)])
def test_a_percentile_interval_covers_and_no_shorter_one_would(
    percentile: float, confidence: float
) -> None:
    """The ranks are the innermost ones whose miss is at most half of what is left, each side."""
    number, tail = 500, (1 - confidence) / 2
    low, high = percentile_interval(np.arange(1.0, number + 1), percentile, confidence)
    law = scipy.stats.binom(number, percentile / 100)
    assert law.cdf(low - 1) <= tail < law.cdf(low)  # fewer than `low` samples lie below
    assert law.sf(high - 1) <= tail < law.sf(high - 2)


@pytest.mark.parametrize("percentile", [50, 90, 99, 10, 1])
def test_a_percentile_has_two_bounds_from_the_least_sample_on(percentile: float) -> None:
    least = min_samples(percentile)
    assert None not in percentile_interval(np.arange(float(least)), percentile)
    assert None in percentile_interval(np.arange(float(least - 1)), percentile)


def test_a_percentile_interval_covers_as_often_as_it_says() -> None:
    rng = np.random.default_rng(5)
    truth, hits = -math.log(0.1), 0  # 90th percentile of the exponential
    for _ in range(2000):
        low, high = percentile_interval(rng.exponential(size=80), 90)
        hits += low <= truth <= high
    assert 0.95 <= hits / 2000 <= 0.985  # at least 95 %; ranks are whole numbers


def test_the_replications_needed_reach_the_half_width_and_one_less_does_not() -> None:
    values = np.array([9.0, 10.0, 12.0, 13.0])
    number = replications_needed(values, 0.4)
    assert number is not None

    def half(n: int) -> float:
        return float(scipy.stats.t.ppf(0.975, n - 1) * values.std(ddof=1) / n**0.5)

    assert half(number) <= 0.4 < half(number - 1)
    assert replications_needed(values, 0.0) is None
    assert replications_needed(values[:1], 1.0) is None
    assert replications_needed(values, 1e-9) is None
    assert replications_needed(np.ones(3), 0.1) == 2
