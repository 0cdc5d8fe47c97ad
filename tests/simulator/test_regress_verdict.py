"""The verdict rule, and how often it decides what: the operating curve of the gate."""

from collections import Counter

import numpy as np
import pytest

from simulator.regress.suite import Rule
from simulator.regress.verdict import Verdict, judge
from simulator.stats import mean_interval

TWO_PERCENT = Rule(direction="lower", tolerance=0.02)
CELLS = 40
CONFIDENCE = 1 - 0.05 / CELLS
"""Of one of 40 intervals that hold together with 95 %."""


@pytest.mark.parametrize(
    ("change", "direction", "verdict"),
    [
        ([0, 0, 0, 0], "lower", "identical"),
        ([1, -1, 1, -1], "lower", "unchanged"),
        ([5, 5.1, 4.9, 5], "lower", "regressed"),
        ([5, 5.1, 4.9, 5], "higher", "improved"),
        ([5, 5.1, 4.9, 5], "same", "regressed"),
        ([-5, -5.1, -4.9, -5], "lower", "improved"),
        ([-5, -5.1, -4.9, -5], "higher", "regressed"),
        ([-5, -5.1, -4.9, -5], "same", "regressed"),
        ([3, -3, 3, -3], "lower", "inconclusive"),  # wider than the tolerance on both sides
        ([2, 2.1, 1.9, 2.05], "lower", "inconclusive"),  # the bound lies inside
        ([1e-9, 0, 0, 0], "lower", "unchanged"),
    ],
)
def test_the_verdict_of_a_change_in_per_cent(
    change: list[float], direction: str, verdict: str
) -> None:
    baseline = np.full(4, 100.0)
    rule = Rule(direction=direction, tolerance=0.02)
    found = judge(baseline, baseline + change, rule, 0.9)
    assert found.verdict == verdict
    if verdict != "identical":
        expected = mean_interval(np.array(change, float) / 100, 0.9)
        assert (found.change, found.low, found.high) == pytest.approx(expected)


def test_pairs_are_compared_not_groups() -> None:
    """Seeds differ by a factor of ten, the same seed by 3 %: that is resolved."""
    baseline = np.geomspace(30.0, 300.0, 10)
    found = judge(baseline, 1.03 * baseline, TWO_PERCENT, 0.9999)
    assert found.verdict is Verdict.REGRESSED
    assert found.change == pytest.approx(0.03)


def test_a_seed_of_almost_nothing_does_not_decide() -> None:
    baseline = np.array([1e-9, *np.full(9, 100.0)])
    found = judge(baseline, baseline + np.array([1e-6, *np.zeros(9)]), TWO_PERCENT, 0.9)
    assert found.verdict is Verdict.UNCHANGED  # a thousandfold, of nothing


def test_the_larger_of_two_tolerances_counts() -> None:
    baseline = np.full(5, 0.5)
    rule = Rule(direction="higher", tolerance=0.02, tolerance_abs=0.1)
    found = judge(baseline, baseline - 0.09, rule, 0.95)
    assert (found.verdict, found.allowed) == (Verdict.UNCHANGED, 0.2)
    assert judge(baseline, baseline - 0.11, rule, 0.95).verdict is Verdict.REGRESSED


def test_a_baseline_of_zero_has_no_relative_change() -> None:
    found = judge(np.zeros(3), np.array([2.0, 2.0, 3.0]), TWO_PERCENT, 0.9)
    assert found.verdict is Verdict.REGRESSED
    assert (found.allowed, found.is_relative) == (0, False)
    assert found.change == pytest.approx(7 / 3)


def decided(rng: np.random.Generator, harm: float, seeds: int, number: int) -> Counter[Verdict]:
    """Judge so many cells with a true change in per cent; the paired noise is 0.7 %."""
    verdicts: Counter[Verdict] = Counter()
    baseline = np.full(seeds, 100.0)
    for noise in rng.normal(harm, 0.7, (number, seeds)):
        verdicts[judge(baseline, baseline + noise, TWO_PERCENT, CONFIDENCE).verdict] += 1
    return verdicts


@pytest.mark.parametrize(
    ("harm", "seeds", "verdict", "share", "margin"),
    [
        (0, 10, Verdict.UNCHANGED, 0.997, 0.004),
        (3, 10, Verdict.REGRESSED, 0.52, 0.05),
        (3, 20, Verdict.REGRESSED, 0.99, 0.012),
        (5, 10, Verdict.REGRESSED, 1.0, 0.002),
    ],
)
def test_the_operating_curve(
    harm: float, seeds: int, verdict: Verdict, share: float, margin: float
) -> None:
    """Of 2,000 cells; those that are not decided are inconclusive, and get more seeds."""
    verdicts = decided(np.random.default_rng(1), harm, seeds, 2000)
    assert verdicts[verdict] / 2000 == pytest.approx(share, abs=margin)
    assert verdicts[verdict] + verdicts[Verdict.INCONCLUSIVE] == 2000


def test_no_gate_of_forty_cells_raises_a_false_alarm() -> None:
    """250 gates at once: 40 cells each without a true change, 10 seeds."""
    verdicts = decided(np.random.default_rng(2), 0, 10, 250 * CELLS)
    assert verdicts[Verdict.REGRESSED] == verdicts[Verdict.IMPROVED] == 0


def test_five_seeds_are_too_few() -> None:
    assert decided(np.random.default_rng(3), 0, 5, 500)[Verdict.UNCHANGED] < 250
    assert decided(np.random.default_rng(3), 3, 5, 500)[Verdict.REGRESSED] < 100


def test_a_harm_at_the_tolerance_is_rarely_called_one() -> None:
    """The worst case of a false alarm: at most half of what one interval leaves."""
    verdicts = decided(np.random.default_rng(4), 2, 10, 4000)
    assert verdicts[Verdict.REGRESSED] <= 10
