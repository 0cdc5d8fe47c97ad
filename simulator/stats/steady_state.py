"""Statistics of one long series: where its warm-up ends, and an interval from batch means."""

import numpy as np

from simulator.stats import Floats, mean_interval

MIN_BATCHES = 10
"""Fewest batches whose means give an interval."""

MIN_BATCH_SIZE = 10
"""Fewest values in a batch; shorter ones depend on their neighbours."""


def mser(values: Floats, batch_size: int = 5) -> int | None:
    """Return how many leading values belong to the warm-up (MSER-5).

    The rule averages `batch_size` values at a time and cuts where the standard error of the mean
    of what is left is least.

    Parameters
    ----------
    values : array of shape (n,)
        A series in the order of time, such as the waiting times of requests by arrival.
    batch_size : int
        Values that are averaged first; 5 in the source.

    Returns
    -------
    int or None
        A multiple of `batch_size`. None if the series is too short to tell: it holds fewer than
        10 batches, or the least error lies in its second half.

    References
    ----------
    K. P. White, M. J. Cobb, S. C. Spratt, "A comparison of five steady-state truncation heuristics
    for simulation", Winter Simulation Conference 2000, pages 755-760.

    Examples
    --------
    >>> mser(np.r_[np.full(20, 9.0), np.tile([1.0, 2.0], 100)])
    20
    """
    number = len(values) // batch_size
    if number < MIN_BATCHES:
        return None
    means = values[: number * batch_size].reshape(number, batch_size).mean(axis=1)
    means = means - means.mean()  # so that the squares lose no digits
    left = np.arange(number, 1, -1)  # batches that stay if 0, 1, ... are cut; at least two
    sums, squares = (np.cumsum(part[::-1])[::-1][: len(left)] for part in (means, means**2))
    errors = np.maximum(squares - sums**2 / left, 0.0) / left**2
    cut = int(np.argmin(errors))
    return cut * batch_size if cut <= number // 2 else None


def batch_means(values: Floats, num_batches: int = 20) -> Floats:
    """Return the means of equal batches of a series; values left over at its start are dropped.

    Parameters
    ----------
    values : array of shape (n,)
        A series in the order of time, without its warm-up.
    num_batches : int
        At least 1 and at most n.

    Returns
    -------
    array of shape (num_batches,)

    Examples
    --------
    >>> batch_means(np.array([9.0, 1.0, 3.0, 5.0, 7.0]), 2)
    array([2., 6.])
    """
    size = len(values) // num_batches if num_batches > 0 else 0
    if size == 0:
        raise ValueError(f"num_batches {num_batches}: expected 1 to {len(values)}, one a value")
    means: Floats = values[len(values) - size * num_batches :].reshape(-1, size).mean(axis=1)
    return means


def batch_means_interval(
    values: Floats, num_batches: int = 20, confidence: float = 0.95
) -> tuple[float | None, float | None, float | None]:
    """Return the mean of a steady series and a t interval from the means of its batches.

    It holds as far as batches are so long that their means are independent. Where runs can be
    repeated, replications (`simulator.stats.mean_interval`) need no such assumption.

    Parameters
    ----------
    values : array of shape (n,)
        A series in the order of time, without its warm-up.
    num_batches : int
        At least 10.
    confidence : float
        Between 0 and 1.

    Returns
    -------
    mean, low, high : float or None
        Bounds are None with fewer than 10 values a batch, the mean too with fewer than one.

    References
    ----------
    A. M. Law, *Simulation Modeling and Analysis*, 5th edition, 2015, section 9.5.3.

    Examples
    --------
    >>> batch_means_interval(np.tile([1.0, 3.0], 200))
    (2.0, 2.0, 2.0)
    """
    if num_batches < MIN_BATCHES:
        raise ValueError(f"num_batches {num_batches}: expected at least {MIN_BATCHES}")
    if len(values) < num_batches * MIN_BATCH_SIZE:
        return (float(values.mean()) if len(values) else None), None, None
    return mean_interval(batch_means(values, num_batches), confidence)
