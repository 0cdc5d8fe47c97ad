"""Spans of time: how many are under way at a moment, and for how much longer."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from simulator.stats import Floats, overlap


class Spans:
    """Spans of time, each with a weight.

    Parameters
    ----------
    starts, ends : array of shape (n,)
        Moments, seconds.
    weights : array of shape (n,), optional
        How much each counts; 1 if left out.

    Examples
    --------
    Two requests wait, from 0 to 3 and from 2 to 5:

    >>> spans = Spans([0.0, 2.0], [3.0, 5.0])
    >>> spans.before([2.5, 4.0]), spans.rest_before([2.5, 4.0])
    (array([2., 1.]), array([3., 1.]))
    >>> spans.area(1.0, 4.0), spans.rest_area(1.0, 4.0)
    (4.0, 6.0)
    """

    def __init__(self, starts: ArrayLike, ends: ArrayLike, weights: ArrayLike = 1.0) -> None:
        self._starts = np.asarray(starts, dtype=float)
        self._ends = np.asarray(ends, dtype=float)
        self._weights = np.broadcast_to(np.asarray(weights, dtype=float), self._starts.shape)

    def before(self, times: ArrayLike) -> Floats:
        """Return the weight under way just before each moment."""
        return self._sum(times, self._weights)

    def rest_before(self, times: ArrayLike) -> Floats:
        """Return the weighted time to their ends of those under way just before each moment."""
        moments = np.asarray(times, dtype=float)
        return self._sum(moments, self._weights * self._ends) - moments * self.before(moments)

    def area(self, low: float, high: float) -> float:
        """Return the integral of the weight under way, from `low` to `high`."""
        return float((self._weights * overlap(self._starts, self._ends, low, high)).sum())

    def rest_area(self, low: float, high: float) -> float:
        """Return the integral of the weighted time to the ends, from `low` to `high`."""
        first, last = np.clip(self._starts, low, high), np.clip(self._ends, low, high)
        triangles = (self._ends - first) ** 2 - (self._ends - last) ** 2
        return float((self._weights * triangles).sum() / 2)

    def _sum(self, times: ArrayLike, values: Floats) -> Floats:
        return _total_before(self._starts, values, times) - _total_before(self._ends, values, times)


class Level:
    """A number that changes in steps, such as how many are present.

    Parameters
    ----------
    times : array of shape (n,)
        Moments of the changes, seconds, in any order.
    changes : array of shape (n,)
        What is added then.

    Examples
    --------
    >>> present = Level.of([0.0, 2.0], [3.0, 5.0])
    >>> present.before([2.5, 4.0]), present.squared().area(1.0, 4.0)
    (array([2., 1.]), 6.0)
    """

    def __init__(self, times: ArrayLike, changes: ArrayLike) -> None:
        moments = np.asarray(times, dtype=float)
        order = np.argsort(moments, kind="stable")
        self._times = moments[order]
        self._values = np.cumsum(np.asarray(changes, dtype=float)[order])

    @classmethod
    def of(cls, starts: ArrayLike, ends: ArrayLike) -> "Level":
        """Return how many spans are under way."""
        first, last = np.asarray(starts, dtype=float), np.asarray(ends, dtype=float)
        changes = np.concatenate([np.ones(len(first)), -np.ones(len(last))])
        return cls(np.concatenate([first, last]), changes)

    @classmethod
    def total(cls, levels: Sequence["Level"]) -> "Level":
        """Return the sum of several."""
        times = np.concatenate([level._times for level in levels])
        return cls(times, np.concatenate([np.diff(level._values, prepend=0.0) for level in levels]))

    def squared(self) -> "Level":
        """Return the square."""
        return Level(self._times, np.diff(self._values**2, prepend=0.0))

    def before(self, times: ArrayLike) -> Floats:
        """Return the value just before each moment."""
        values = np.concatenate([[0.0], self._values])
        found: Floats = values[np.searchsorted(self._times, np.asarray(times), "left")]
        return found

    def area(self, low: float, high: float) -> float:
        """Return the integral from `low` to `high`."""
        lasts = np.append(self._times[1:], np.inf)
        return float((self._values * overlap(self._times, lasts, low, high)).sum())


def _total_before(moments: Floats, values: Floats, times: ArrayLike) -> Floats:
    """Return the sum of the values whose moments lie before each time."""
    order = np.argsort(moments, kind="stable")
    sums = np.concatenate([[0.0], np.cumsum(values[order])])
    found: Floats = sums[np.searchsorted(moments[order], times, "left")]
    return found


def work_before(arrivals: Floats, services: Floats) -> Floats:
    """Return the work that each arrival finds in one server that never rests while there is any.

    Parameters
    ----------
    arrivals : array of shape (n,)
        Moments in ascending order, seconds.
    services : array of shape (n,)
        Work that each brings, seconds.

    Examples
    --------
    >>> work_before(np.array([0.0, 1.0, 5.0]), np.array([3.0, 1.0, 1.0])).tolist()
    [0.0, 2.0, 0.0]
    """
    drift = np.concatenate([[0.0], np.cumsum(services[:-1] - np.diff(arrivals))])
    found: Floats = drift - np.minimum.accumulate(np.minimum(drift, 0.0))
    return found
