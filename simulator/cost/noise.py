"""Run-to-run noise: every step takes a little more or less than the model says."""

from copy import copy
from math import exp, log, sqrt

import numpy as np

from simulator.cost.base import StepWork
from simulator.cost.sum_table import stable
from simulator.cost.table import TableCost

NUM_FACTORS = 4096
"""Equally likely factors that stand for the log-normal distribution."""


class NoisyCost:
    """A cost model whose step times are multiplied with a random factor.

    Parameters
    ----------
    cost : TableCost
        The model; its count of extrapolated steps is shared.
    cv : float
        Standard deviation of the factor divided by its mean, greater than 0.
    rng : numpy.random.Generator
        Stream that is used for nothing else.

    Notes
    -----
    The factor is log-normal with mean 1, independent from step to step, and represented by
    `NUM_FACTORS` quantiles at equal distances of probability. So a run needs no exponential
    function, of which mathematical libraries differ in the last bit.

    Examples
    --------
    >>> from simulator.cost import table_cost
    >>> cost = NoisyCost(table_cost("h100", "llama-3.1-8b"), 0.03, np.random.default_rng(1))
    >>> work = StepWork(1, 1024, (), 1, 1)
    >>> [round(cost.step_time(work) * 1e3, 2) for _ in range(3)]
    [7.22, 7.24, 7.39]
    """

    supports_runs = False

    def __init__(self, cost: TableCost, cv: float, rng: np.random.Generator) -> None:
        self.model = cost
        self._factors = noise_factors(cv)
        self._draw = rng.integers

    @property
    def num_extrapolated(self) -> int:
        """Steps so far outside the calibrated range."""
        return self.model.num_extrapolated

    def step_time(self, work: StepWork) -> float:
        """Return the duration of the step, seconds."""
        return self.model.step_time(work) * self._factors[self._draw(NUM_FACTORS)]

    def expected_time(self, work: StepWork) -> float:
        """Return the mean duration of such a step, seconds; nothing is drawn or counted."""
        return copy(self.model).step_time(work)


def noise_factors(cv: float) -> list[float]:
    """Return equally likely factors of mean 1.

    Parameters
    ----------
    cv : float
        Standard deviation divided by the mean, greater than 0.

    Returns
    -------
    list of float
        Ascending.

    Examples
    --------
    >>> factors = noise_factors(0.1)
    >>> round(sum(factors) / len(factors), 6), round(factors[len(factors) // 2], 3)
    (1.0, 0.995)
    """
    from statistics import NormalDist

    sigma = sqrt(log(1.0 + cv * cv))
    normal = NormalDist()
    quantiles = [
        exp(sigma * normal.inv_cdf((index + 0.5) / NUM_FACTORS)) for index in range(NUM_FACTORS)
    ]
    factors = np.array(quantiles)
    rounded: list[float] = stable(factors / factors.mean()).tolist()
    return rounded
