"""Specifications against each other: paired differences of metrics over the same seeds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from simulator.errors import UserError
from simulator.experiments.paired import higher_is_better
from simulator.metrics import Metrics
from simulator.stats import Floats, each_confidence, paired_interval, replications_needed

Verdict = Literal["better", "worse", "higher", "lower", "equal", "not resolved", "n/a"]

METRICS = (
    "p50_ttft_ms",
    "p99_ttft_ms",
    "p50_tpot_ms",
    "p99_itl_ms",
    "p50_e2el_ms",
    "p99_e2el_ms",
    "request_throughput",
    "output_throughput",
    "request_goodput",
    "slo_attainment",
    "mean_batch_size",
    "busy_fraction",
    "num_preemptions",
)
"""Metrics that are compared if none are named."""

LESS_IS_BETTER = ("_ms", "unfinished", "rejected", "preemptions", "recomputed", "padding")

INPUTS = ("num_requests", "request_rate", "realised_rate", "warmup_s", "duration_s", "num_samples")
"""Beginnings of metrics that say what was asked, or how long it took, not how well it went."""


def better_sign(metric: str) -> int:
    """Return 1 if more of a metric is better, -1 if less is, 0 if neither.

    Examples
    --------
    >>> [better_sign(name) for name in ("request_goodput", "p99_ttft_ms", "busy_fraction")]
    [1, -1, 0]
    """
    if metric.startswith(INPUTS) or metric in ("mean_step_ms",):
        return 0
    if higher_is_better(metric):
        return 1
    return -1 if any(word in metric for word in LESS_IS_BETTER) else 0


@dataclass(frozen=True)
class Difference:
    """How far a metric of the second specification lies from that of the first.

    Attributes
    ----------
    metric : str
    num_pairs : int
        Seeds on which both have a value.
    first, second : float or None
        Means over those seeds.
    mean, low, high : float or None
        Mean of the differences and its interval, in the unit of the metric.
    verdict : str
        Better, worse (or higher, lower where neither is better) if the interval leaves out 0.
    seeds_needed : int or None
        Of a difference that is not resolved: how many seeds would be enough, if its mean and
        spread stay as they are.
    """

    metric: str
    num_pairs: int
    first: float | None
    second: float | None
    mean: float | None
    low: float | None
    high: float | None
    verdict: Verdict
    seeds_needed: int | None

    def relative(self, value: float | None) -> float | None:
        """Return a difference as a fraction of the mean of the first; None where that is 0."""
        return value / abs(self.first) if value is not None and self.first else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        names = ("mean", "low", "high")
        shares = {f"relative_{name}": self.relative(getattr(self, name)) for name in names}
        return vars(self) | shares


def compare(
    first: Sequence[Metrics],
    second: Sequence[Metrics],
    metrics: Sequence[str] = METRICS,
    confidence: float = 0.95,
) -> list[Difference]:
    """Return the paired difference of every metric.

    The intervals hold together: each has the confidence that leaves all of them the one asked for
    (Bonferroni).

    Parameters
    ----------
    first, second : sequence of dict
        Metrics of the same replications, in the same order.
    metrics : sequence of str
    confidence : float
        Between 0 and 1.

    Raises
    ------
    UserError
        If there is no such metric.

    Examples
    --------
    >>> runs = [{"p99_ttft_ms": value} for value in (100.0, 120.0, 110.0)]
    >>> slower = [{"p99_ttft_ms": value} for value in (111.0, 131.0, 122.0)]
    >>> found, = compare(runs, slower, ["p99_ttft_ms"])
    >>> round(found.mean, 2), found.verdict
    (11.33, 'worse')
    """
    known = set(first[0]) | set(second[0])
    for name in metrics:
        if name not in known:
            from simulator.explain import nearest

            raise UserError(f"--metrics {name}: no such metric; {nearest(name, known)}")
    level = each_confidence(confidence, len(metrics))
    return [_difference(name, *_pairs(name, first, second), level) for name in metrics]


def _pairs(
    metric: str, first: Sequence[Metrics], second: Sequence[Metrics]
) -> tuple[Floats, Floats]:
    """Return the values of a metric on the replications where both have one."""
    pairs = [
        (a[metric], b[metric])
        for a, b in zip(first, second, strict=True)
        if a.get(metric) is not None and b.get(metric) is not None
    ]
    array = np.array(pairs, float).reshape(-1, 2)
    return array[:, 0], array[:, 1]


def _difference(metric: str, first: Floats, second: Floats, confidence: float) -> Difference:
    number = len(first)
    if number < 2:
        one, two = (float(first[0]), float(second[0])) if number else (None, None)
        return Difference(metric, number, one, two, None, None, None, "n/a", None)
    mean, low, high = paired_interval(first, second, confidence)
    assert mean is not None
    assert low is not None
    assert high is not None
    verdict = _verdict(metric, mean, low, high)
    needed = None
    if verdict == "not resolved" and mean:
        needed = replications_needed(second - first, abs(mean), confidence)
    one, two = float(first.mean()), float(second.mean())
    return Difference(metric, number, one, two, mean, low, high, verdict, needed)


def _verdict(metric: str, mean: float, low: float, high: float) -> Verdict:
    if low == high == 0:
        return "equal"
    if low <= 0 <= high:
        return "not resolved"
    sign = better_sign(metric)
    if sign == 0:
        return "higher" if mean > 0 else "lower"
    return "better" if mean * sign > 0 else "worse"
