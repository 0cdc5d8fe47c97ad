"""What decides how a workload queues: dispersion by scale, coupling of rate and length, waits."""

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workloads.base import FloatArray, IntArray


def counts(arrival_s: ArrayLike, width_s: float) -> IntArray:
    """Return the arrivals in consecutive bins; a last bin that is not full is left out.

    Parameters
    ----------
    arrival_s : array_like of float
        Times in seconds, ascending; bins start at the first.
    width_s : float
        Width of a bin in seconds.

    Examples
    --------
    >>> counts([0.0, 0.5, 2.5, 3.2], 1.0).tolist()
    [2, 0, 1]
    """
    since = np.asarray(arrival_s) - np.asarray(arrival_s)[0]
    number = int(since[-1] // width_s)
    return np.bincount((since // width_s).astype(np.int64), minlength=number + 1)[:number]


def dispersion(arrival_s: ArrayLike, width_s: float) -> float:
    """Return the index of dispersion: variance over mean of the counts in bins of a width.

    1 for a Poisson process at every width, about cv² for a renewal process at large ones.
    NaN below five bins.
    """
    arrival = np.asarray(arrival_s, np.float64)
    bins = arrival - arrival[0]
    number = int(bins[-1] // width_s)
    if number < 5:
        return float("nan")
    np.floor_divide(bins, width_s, out=bins)
    bins = bins[: np.searchsorted(bins, number)]
    # Only bins that are not empty are counted: a long span has many that are.
    ends = np.concatenate((np.flatnonzero(bins[1:] != bins[:-1]) + 1, [bins.size]))
    occupied = np.diff(ends, prepend=0)
    mean = float(bins.size / number)
    squares = float(np.sum(occupied**2))
    return squares / number / mean - mean


def figures(
    arrival_s: FloatArray, prompt_tokens: IntArray, output_tokens: IntArray
) -> dict[str, float | None]:
    """Return rate, CV, dispersion at 1, 10 and 60 s and mean lengths; None for what is not there.

    Examples
    --------
    >>> figures(np.array([0.0, 1.0, 2.0]), np.array([5, 5, 8]), np.array([1, 2, 3]))["rate"]
    1.0
    """
    gaps = np.diff(arrival_s)
    span = float(arrival_s[-1] - arrival_s[0])
    spread = {
        f"dispersion_{width:g}_s": dispersion(arrival_s, width) for width in (1.0, 10.0, 60.0)
    }
    found = {
        "rate": gaps.size / span if span else np.nan,
        "cv": float(gaps.std() / gaps.mean()) if span and gaps.size > 1 else np.nan,
        **spread,
        "mean_prompt_tokens": float(prompt_tokens.mean()),
        "mean_output_tokens": float(output_tokens.mean()),
    }
    return {name: value if np.isfinite(value) else None for name, value in found.items()}


def coupling(arrival_s: FloatArray, lengths: IntArray, width_s: float = 60.0) -> float:
    """Return the correlation between the count in a bin and the mean length in it.

    A last bin that is not full is left out. NaN with fewer than five bins that are not empty,
    or without variation.
    """
    bins = ((arrival_s - arrival_s[0]) // width_s).astype(np.int64)
    whole = int((arrival_s[-1] - arrival_s[0]) // width_s)
    number = np.bincount(bins)[:whole]
    total = np.bincount(bins, weights=lengths)[:whole]
    busy = number > 0
    if np.count_nonzero(busy) < 5:
        return float("nan")
    return correlation(number[busy], total[busy] / number[busy])


def correlation(one: ArrayLike, other: ArrayLike) -> float:
    """Return Pearson's correlation; NaN where one of the two does not vary."""
    x, y = np.asarray(one, np.float64), np.asarray(other, np.float64)
    if x.size < 2 or x.std() == 0 or y.std() == 0:
        return float("nan")
    return float(np.corrcoef(x, y)[0, 1])


def rank_correlation(one: ArrayLike, other: ArrayLike) -> float:
    """Return Spearman's correlation, ties at their mean rank."""
    return correlation(_ranks(np.asarray(one)), _ranks(np.asarray(other)))


def _ranks(values: NDArray[Any]) -> FloatArray:
    _, place, number = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(number)
    middle: FloatArray = last - (number - 1) / 2
    return middle[place]


def waits(arrival_s: FloatArray, service_s: NDArray[np.floating[Any]]) -> FloatArray:
    """Return the waits in one server that serves in order of arrival (Lindley's recursion).

    Examples
    --------
    >>> waits(np.array([0.0, 1.0, 2.0]), np.array([3.0, 1.0, 1.0])).tolist()
    [0.0, 2.0, 2.0]
    """
    steps = np.cumsum(service_s[:-1] - np.diff(arrival_s))
    walk = np.concatenate(([0.0], steps))
    return walk - np.minimum.accumulate(walk)


def queueing(
    arrival_s: FloatArray, work: IntArray, load: float = 0.7, per_unit_s: float | None = None
) -> tuple[float, float]:
    """Return mean and 99th percentile of the wait in one server, in seconds.

    Parameters
    ----------
    arrival_s : array of float
        Times of arrival in seconds.
    work : array of int
        Work of each request, such as its prompt tokens.
    load : float, default 0.7
        Work over capacity, which sets the speed of the server.
    per_unit_s : float, optional
        Speed instead of a load: seconds a unit of work. With it, two workloads meet the same
        server.
    """
    span = float(arrival_s[-1] - arrival_s[0])
    speed = load * span / float(work.sum()) if per_unit_s is None else per_unit_s
    wait = waits(arrival_s, work * speed)
    return float(wait.mean()), float(np.percentile(wait, 99))
