"""Statistics of samples: percentiles that know how many samples they need, weighted or not."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def min_samples(percentile: float) -> int:
    """Return the smallest sample that bounds a percentile on both sides with 95 % confidence.

    The order statistics of n samples hold a two-sided 95 % interval of the percentile when neither
    tail can be empty: both ``q^n`` and ``(1-q)^n`` are at most 2.5 %.

    Examples
    --------
    >>> [min_samples(p) for p in (50, 90, 95, 99, 99.9)]
    [6, 36, 72, 368, 3688]
    """
    if not 0 < percentile < 100:
        raise ValueError(f"percentile {percentile}: expected a number between 0 and 100")
    tail = max(percentile, 100 - percentile) / 100
    return int(np.ceil(np.log(0.025) / np.log(tail)))


def weighted_percentile(values: Floats, counts: Ints, percentiles: Floats) -> Floats:
    """Return percentiles of a list in which each value stands `counts` times.

    Linear interpolation between order statistics, the same numbers as `numpy.percentile` gives
    for the written-out list.

    Parameters
    ----------
    values : array of shape (n,)
    counts : array of int of shape (n,)
        At least one of them above 0.
    percentiles : array of shape (m,)
        In 0..100.

    Returns
    -------
    array of shape (m,)

    Examples
    --------
    >>> weighted_percentile(np.array([1.0, 5.0]), np.array([3, 1]), np.array([50.0, 100.0]))
    array([1., 5.])
    """
    order = np.argsort(values, kind="stable")
    cumulative = np.cumsum(counts[order])
    position = np.asarray(percentiles) / 100 * (cumulative[-1] - 1)
    lower = np.floor(position).astype(np.int64)
    upper = np.minimum(lower + 1, cumulative[-1] - 1)
    ordered = values[order]
    low = ordered[np.searchsorted(cumulative, lower, side="right")]
    high = ordered[np.searchsorted(cumulative, upper, side="right")]
    return _lerp(low, high, position - lower)


def _lerp(low: Floats, high: Floats, fraction: Floats) -> Floats:
    """Interpolate as `numpy.percentile` does, from the nearer end."""
    step = high - low
    up, down = low + step * fraction, high - step * (1 - fraction)
    return np.where(fraction < 0.5, up, down)


def weighted_mean_std(values: Floats, counts: Ints) -> tuple[float, float]:
    """Return mean and (population) standard deviation of a list given as values and counts."""
    total = counts.sum()
    mean = float((values * counts).sum() / total)
    return mean, float(np.sqrt(((values - mean) ** 2 * counts).sum() / total))


def overlap(starts: Floats, ends: Floats, low: float, high: float) -> Floats:
    """Return how much of each interval [start, end) lies in the window [low, high)."""
    length: Floats = np.minimum(ends, high) - np.maximum(starts, low)
    return np.maximum(length, 0.0)


def time_weighted_percentile(values: Floats, durations: Floats, percentile: float) -> float:
    """Return the value that is not exceeded for `percentile` per cent of the time."""
    order = np.argsort(values, kind="stable")
    cumulative = np.cumsum(durations[order])
    index = np.searchsorted(cumulative, percentile / 100 * cumulative[-1])
    return float(values[order][min(int(index), len(values) - 1)])


def mean_interval(
    values: Floats, confidence: float = 0.95
) -> tuple[float | None, float | None, float | None]:
    """Return the mean of independent values and its t interval; None where there is none.

    Parameters
    ----------
    values : array of shape (n,)
        One value a replication.
    confidence : float
        Probability that the interval covers the mean, between 0 and 1.

    Returns
    -------
    mean, low, high : float or None

    Examples
    --------
    >>> [round(x, 3) for x in mean_interval(np.array([1.0, 2.0, 3.0]))]
    [2.0, -0.484, 4.484]
    """
    number = len(values)
    if number == 0:
        return None, None, None
    mean = float(values.mean())
    if number == 1:
        return mean, None, None
    from scipy.special import stdtrit  # quantile of Student's t; scipy.stats takes long to import

    spread = float(values.std(ddof=1)) / number**0.5
    half = float(stdtrit(number - 1, 0.5 + confidence / 2)) * spread
    return mean, mean - half, mean + half
