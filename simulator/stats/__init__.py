"""Statistics of samples: percentiles that know how many samples they need, intervals over seeds."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def min_samples(percentile: float, confidence: float = 0.95) -> int:
    """Return the smallest sample that bounds a percentile on both sides.

    The order statistics of n samples hold a two-sided interval of the percentile when neither tail
    can be empty: both ``q^n`` and ``(1-q)^n`` are at most half of what the confidence leaves.

    Examples
    --------
    >>> [min_samples(p) for p in (50, 90, 95, 99, 99.9)]
    [6, 36, 72, 368, 3688]
    """
    if not 0 < percentile < 100:
        raise ValueError(f"percentile {percentile}: expected a number between 0 and 100")
    tail = max(percentile, 100 - percentile) / 100
    return int(np.ceil(np.log((1 - confidence) / 2) / np.log(tail)))


def percentile_interval(
    values: Floats, percentile: float, confidence: float = 0.95
) -> tuple[float | None, float | None]:
    """Return bounds of a percentile of independent samples, whatever their distribution.

    The bounds are order statistics: the number of samples below the percentile is binomial. Each
    bound is missed with at most half of what the confidence leaves.

    Parameters
    ----------
    values : array of shape (n,)
        Independent samples. Latencies of one run are not; values of replications are.
    percentile : float
        Between 0 and 100.
    confidence : float
        Between 0 and 1.

    Returns
    -------
    low, high : float or None
        None where the sample is too small for a bound (see `min_samples`).

    References
    ----------
    G. J. Hahn, W. Q. Meeker, *Statistical Intervals*, Wiley 1991, section 5.2.

    Examples
    --------
    >>> percentile_interval(np.arange(1.0, 101.0), 50)
    (40.0, 61.0)
    >>> percentile_interval(np.arange(1.0, 101.0), 99)
    (97.0, None)
    """
    from scipy.special import bdtr  # distribution function of the binomial

    number = len(values)
    ordered = np.sort(values)
    below = bdtr(np.arange(number), number, percentile / 100)  # P(at most k samples lie below)
    tail = (1 - confidence) / 2
    first = int(np.searchsorted(below, tail, side="right"))
    last = int(np.searchsorted(below, 1 - tail, side="left"))
    low = float(ordered[first - 1]) if first else None
    return low, float(ordered[last]) if last < number else None


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
    lower, upper, fraction = neighbours(percentiles, int(cumulative[-1]))
    ordered = values[order]
    low = ordered[np.searchsorted(cumulative, lower, side="right")]
    high = ordered[np.searchsorted(cumulative, upper, side="right")]
    return interpolate(low, high, fraction)


def neighbours(percentiles: Floats, number: int) -> tuple[Ints, Ints, Floats]:
    """Return the places in a sorted list that percentiles lie between, and how far along.

    Examples
    --------
    >>> [part.tolist() for part in neighbours(np.array([50.0, 100.0]), 4)]
    [[1, 3], [2, 3], [0.5, 0.0]]
    """
    position = np.asarray(percentiles) / 100 * (number - 1)
    lower = np.floor(position).astype(np.int64)
    return lower, np.minimum(lower + 1, number - 1), position - lower


def interpolate(low: Floats, high: Floats, fraction: Floats) -> Floats:
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


def each_confidence(confidence: float, number: int) -> float:
    """Return the confidence of each of some intervals, so that all hold together (Bonferroni).

    Examples
    --------
    >>> round(each_confidence(0.95, 5), 12)
    0.99
    """
    return 1 - (1 - confidence) / number


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


def paired_interval(
    first: Floats, second: Floats, confidence: float = 0.95
) -> tuple[float | None, float | None, float | None]:
    """Return the mean of ``second - first``, pair by pair, and its t interval.

    What both have in common, such as the same requests, cancels out.

    Parameters
    ----------
    first, second : array of shape (n,)
        Values of the same replications, in the same order.
    confidence : float
        Between 0 and 1.

    Returns
    -------
    mean, low, high : float or None
        As for `mean_interval`.

    Examples
    --------
    >>> paired_interval(np.array([10.0, 20.0, 30.0]), np.array([11.0, 21.0, 31.0]))
    (1.0, 1.0, 1.0)
    """
    return mean_interval(second - first, confidence)


def replications_needed(
    values: Floats, half_width: float, confidence: float = 0.95, most: int = 100_000
) -> int | None:
    """Return how many replications would give the mean an interval of that half-width.

    It takes the spread of the values at hand for that of all.

    Parameters
    ----------
    values : array of shape (n,)
        Values of some replications, at least 2.
    half_width : float
        Wanted half-width of the t interval, in the unit of the values.
    confidence : float
        Between 0 and 1.
    most : int
        Largest answer.

    Returns
    -------
    int or None
        At least 2; None if even `most` replications are too few or the spread is unknown.

    Examples
    --------
    >>> replications_needed(np.array([9.0, 10.0, 11.0]), 0.5)
    18
    """
    from scipy.special import stdtrit

    if len(values) < 2 or half_width <= 0:
        return None
    spread, upper = float(values.std(ddof=1)), 0.5 + confidence / 2

    def half(number: int) -> float:
        return float(stdtrit(number - 1, upper) * spread / np.sqrt(number))

    if half(most) > half_width:
        return None
    low, high = 1, most
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if half(middle) <= half_width else (middle, high)
    return high
