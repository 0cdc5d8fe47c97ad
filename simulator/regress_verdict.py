"""The verdict of the regression gate: whether a metric is worse than it was, and too much so."""

from enum import StrEnum
from typing import NamedTuple

import numpy as np

from simulator.regress_suite import Rule
from simulator.stats import Floats, mean_interval


class Verdict(StrEnum):
    """What became of a metric, the worst first."""

    REGRESSED = "regressed"
    INCONCLUSIVE = "inconclusive"
    IMPROVED = "improved"
    UNCHANGED = "unchanged"
    IDENTICAL = "identical"


class Judgement(NamedTuple):
    """A verdict and what it rests on; all in the unit of the metric.

    Attributes
    ----------
    verdict : Verdict
    baseline, now : float
        Means over the seeds.
    low, high : float
        Interval of the mean difference, now minus baseline.
    allowed : float
        Largest difference that does not matter.
    """

    verdict: Verdict
    baseline: float
    now: float
    low: float
    high: float
    allowed: float

    @property
    def difference(self) -> float:
        """Mean difference, now minus baseline."""
        return self.now - self.baseline

    def relative(self, value: float) -> float | None:
        """Return a difference as a fraction of the baseline; None where that is 0."""
        return value / abs(self.baseline) if self.baseline else None


def judge(baseline: Floats, now: Floats, rule: Rule, confidence: float) -> Judgement:
    """Compare the values of the same seeds, pair by pair.

    The t interval of the mean difference decides: inside the tolerance on both sides it is
    `unchanged`; wholly beyond it, `regressed` or `improved`; anything else is `inconclusive`.

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
    before, after = float(baseline.mean()), float(now.mean())
    allowed = max((rule.tolerance or 0.0) * abs(before), rule.tolerance_abs)
    if np.array_equal(baseline, now):
        return Judgement(Verdict.IDENTICAL, before, after, 0.0, 0.0, allowed)
    _, low, high = mean_interval(now - baseline, confidence)
    assert low is not None
    assert high is not None
    verdict = _verdict(low, high, allowed, rule)
    return Judgement(verdict, before, after, low, high, allowed)


def _verdict(low: float, high: float, allowed: float, rule: Rule) -> Verdict:
    if -allowed <= low and high <= allowed:
        return Verdict.UNCHANGED
    if -allowed <= high and low <= allowed:
        return Verdict.INCONCLUSIVE
    rose = low > allowed
    better = rule.direction == ("higher" if rose else "lower")
    return Verdict.IMPROVED if better else Verdict.REGRESSED
