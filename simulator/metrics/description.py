"""Number, mean, deviation and percentiles of samples that come in parts."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

import numpy as np

from simulator.stats import Floats, Ints, weighted_mean_std, weighted_percentile
from simulator.stats.exact_sum import Total
from simulator.stats.order_statistics import OrderStatistics

Samples = tuple[Floats, Ints]
"""Values, and how often each stands in a list."""

Parts = Callable[[], Iterable[Mapping[str, Samples]]]
"""Goes through the parts of some lists, by name; every call gives the same parts, at least one."""


@dataclass(frozen=True, slots=True)
class Description:
    """What a list of numbers is like.

    Attributes
    ----------
    number : int
        Length of the list.
    mean, std : float
        Mean and (population) standard deviation; NaN of an empty list.
    percentiles : array
        One for each level asked for; NaN of an empty list.
    """

    number: int
    mean: float
    std: float
    percentiles: Floats


def describe(values: Floats, counts: Ints, percentiles: Floats) -> Description:
    """Describe a list in which each value stands `counts` times."""
    number = int(counts.sum())
    if number == 0:
        return _nothing(len(percentiles))
    mean, std = weighted_mean_std(values, counts)
    return Description(number, mean, std, weighted_percentile(values, counts, percentiles))


def describe_parts(parts: Parts, percentiles: Floats) -> dict[str, Description]:
    """Describe lists whose samples come in parts, in memory that does not grow with their number.

    A single part is described as by `describe`. Several are gone through several times; what comes
    out is exact and the same for any order of the parts and of the samples.

    Parameters
    ----------
    parts : callable
        Goes through the parts.
    percentiles : array
        In 0..100.

    Examples
    --------
    >>> parts = [{"ttft": (np.array([x]), np.array([1]))} for x in (1.0, 2.0, 6.0)]
    >>> found = describe_parts(lambda: parts, np.array([50.0]))["ttft"]
    >>> found.number, found.mean, found.percentiles.tolist()
    (3, 3.0, [2.0])
    """
    first = list(islice(parts(), 2))
    if len(first) == 1:
        return {name: describe(*samples, percentiles) for name, samples in first[0].items()}
    folds = {name: _Fold(percentiles) for name in first[0]}
    del first
    for _ in range(OrderStatistics.ROUNDS):
        for part in parts():
            for name, samples in part.items():
                folds[name].add(*samples)
        for fold in folds.values():
            fold.end_round()
    return {name: fold.description() for name, fold in folds.items()}


class _Fold:
    """The description of a list under way."""

    def __init__(self, percentiles: Floats) -> None:
        self._order = OrderStatistics(percentiles)
        self._num_percentiles = len(percentiles)
        self._sum = Total()
        self._squares = Total()
        self._mean = np.nan

    def add(self, values: Floats, counts: Ints) -> None:
        self._order.add(values, counts)
        if self._order.round == 0:
            self._sum.add(values * counts)
        elif self._order.round == 1:
            self._squares.add((values - self._mean) ** 2 * counts)

    def end_round(self) -> None:
        self._order.end_round()
        if self._order.round == 1 and self._order.total:
            self._mean = self._sum.value / self._order.total

    def description(self) -> Description:
        number = self._order.total
        if number == 0:
            return _nothing(self._num_percentiles)
        std = float(np.sqrt(self._squares.value / number))
        return Description(number, self._mean, std, self._order.percentiles())


def _nothing(num_percentiles: int) -> Description:
    return Description(0, np.nan, np.nan, np.full(num_percentiles, np.nan))
