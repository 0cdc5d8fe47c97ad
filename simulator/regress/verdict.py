"""The verdict of the regression gate: whether a metric is worse than it was, and too much so."""

from enum import StrEnum
from typing import NamedTuple

import numpy as np

from simulator.regress.suite import Rule
from simulator.stats import Floats, mean_interval


class Verdict(StrEnum):
    """What became of a metric, the worst first."""

    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"
    IMPROVED = "improved"
    UNCHANGED = "unchanged"
    IDENTICAL = "identical"


class Judgement(NamedTuple):
    """A verdict and what it rests on.

    Attributes
    ----------
    verdict : Verdict
    baseline, now : float
        Means over the seeds, in the unit of the metric.
    change : float
        Mean of the relative differences; of the differences where the baseline is 0 in all seeds.
    low, high : float
        Interval of the change.
    allowed : float
        Largest change that does not matter.
    is_relative : bool
        Whether change, interval and tolerance are fractions of the baseline.
    """

    verdict: Verdict
    baseline: float
    now: float
    change: float
    low: float
    high: float
    allowed: float
    is_relative: bool


FLOOR = 0.1
"""Share of the mean that the denominator of a relative difference has at least."""


def judge(baseline: Floats, now: Floats, rule: Rule, confidence: float) -> Judgement:
    """Compare the values of the same seeds, pair by pair.

    The t interval of the mean relative difference decides: inside the tolerance on both sides it
    is `unchanged`; wholly beyond it, `regressed` or `improved`; anything else is `inconclusive`.
    A seed whose value is less than a tenth of the mean is related to a tenth of the mean.

    Parameters
    ----------
    baseline, now : array of shape (n,)
        Values of the same replications, n at least 2.
    rule : Rule
        With direction and tolerance.
    confidence : float
        Of this one interval, between 0 and 1.

    Examples
    --------
    >>> then, rule = np.array([10.0, 12.0, 14.0]), Rule(direction="lower", tolerance=0.02)
    >>> judge(then, then * 1.05, rule, 0.9).verdict.value
    'regressed'
    >>> judge(then, then * 1.001, rule, 0.9).verdict.value
    'unchanged'
    """
    size = np.abs(baseline)
    scale = float(size.mean())
    tolerance, is_relative = rule.tolerance or 0.0, scale > 0
    allowed = max(tolerance, rule.tolerance_abs / scale) if is_relative else rule.tolerance_abs
    means = float(baseline.mean()), float(now.mean())
    if np.array_equal(baseline, now):
        return Judgement(Verdict.IDENTICAL, *means, 0.0, 0.0, 0.0, allowed, is_relative)
    differences = now - baseline
    if is_relative:
        differences = differences / np.maximum(size, FLOOR * scale)
    change, low, high = mean_interval(differences, confidence)
    assert change is not None
    assert low is not None
    assert high is not None
    verdict = _verdict(low, high, allowed, rule)
    return Judgement(verdict, *means, change, low, high, allowed, is_relative)


def _verdict(low: float, high: float, allowed: float, rule: Rule) -> Verdict:
    if -allowed <= low and high <= allowed:
        return Verdict.UNCHANGED
    if -allowed <= high and low <= allowed:
        return Verdict.INCONCLUSIVE
    rose = low > allowed
    better = rule.direction == ("higher" if rose else "lower")
    return Verdict.IMPROVED if better else Verdict.REGRESSED
