"""Laws of the gap between two arrivals, with mean 1: their shape alone.

Each has `draw` for whole gaps and `residual` for the gap that is under way when one starts to
look at a process that has run for long: a gap is met in proportion to its length.
"""

import math
from typing import Literal, Protocol, TypeAlias

import numpy as np

from workloads.base import FloatArray

Start: TypeAlias = Literal["equilibrium", "ordinary"]


class GapLaw(Protocol):
    """A law of positive numbers with mean 1."""

    def draw(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Return `n` independent gaps."""
        ...

    def residual(self, rng: np.random.Generator) -> float:
        """Return what is left of a gap that is under way."""
        ...


class GammaGaps:
    """Gamma of shape 1/cv²; the size-biased gap has shape 1/cv² + 1.

    Parameters
    ----------
    cv : float
        Standard deviation, greater than 0; 1 is the exponential law.
    """

    def __init__(self, cv: float) -> None:
        self._shape = cv**-2

    def draw(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Return `n` independent gaps."""
        return rng.gamma(self._shape, 1.0 / self._shape, n)

    def residual(self, rng: np.random.Generator) -> float:
        """Return what is left of a gap that is under way."""
        return rng.random() * rng.gamma(self._shape + 1.0, 1.0 / self._shape)


class WeibullGaps:
    """Weibull of a shape k; the size-biased gap is the 1/k-th power of a gamma of 1 + 1/k.

    Parameters
    ----------
    shape : float
        k, greater than 0; 1 is the exponential law, less is burstier.
    """

    def __init__(self, shape: float) -> None:
        self._shape = shape
        self._scale = math.exp(-math.lgamma(1 + 1 / shape))

    def draw(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Return `n` independent gaps."""
        return self._scale * rng.weibull(self._shape, n)

    def residual(self, rng: np.random.Generator) -> float:
        """Return what is left of a gap that is under way."""
        power = 1 / self._shape
        return rng.random() * self._scale * float(rng.gamma(1 + power) ** power)


class HyperexponentialGaps:
    """A mixture of two exponential laws with balanced means: each brings half of the time.

    Parameters
    ----------
    cv : float
        Standard deviation, at least 1.
    """

    def __init__(self, cv: float) -> None:
        square = cv**2
        self._share = (1 + math.sqrt((square - 1) / (square + 1))) / 2
        self._rates = np.array([2 * self._share, 2 * (1 - self._share)])

    def draw(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Return `n` independent gaps."""
        # Two draws a gap, in turn, so that the first gaps do not depend on their number.
        draws = rng.random((n, 2))
        rates = self._rates[(draws[:, 0] >= self._share).astype(np.int64)]
        gaps: FloatArray = -np.log1p(-draws[:, 1]) / rates
        return gaps

    def residual(self, rng: np.random.Generator) -> float:
        """Return what is left: half of the time belongs to each law, which has no memory."""
        rate = self._rates[int(rng.random() >= 0.5)]
        return float(rng.exponential() / rate)


def cumulative(law: GapLaw, n: int, rng: np.random.Generator, start: Start) -> FloatArray:
    """Return the first `n` arrivals of a renewal process of rate 1."""
    gaps = np.empty(n)
    if n and start == "equilibrium":
        gaps[0] = law.residual(rng)
        gaps[1:] = law.draw(n - 1, rng)
    else:
        gaps[:] = law.draw(n, rng)
    return np.cumsum(gaps)


def weibull_shape(cv: float) -> float:
    """Return the Weibull shape with a given coefficient of variation.

    Notes
    -----
    Solves Γ(1 + 2/k)/Γ(1 + 1/k)² = 1 + cv² by bisection, in logarithms.

    Examples
    --------
    >>> [round(weibull_shape(cv), 4) for cv in (0.5, 1, 2, 10)]
    [2.1013, 1.0, 0.5427, 0.2332]
    """
    low, high = 1e-2, 1e4
    wanted = math.log1p(cv**2)
    for _ in range(200):
        middle = math.sqrt(low * high)
        found = math.lgamma(1 + 2 / middle) - 2 * math.lgamma(1 + 1 / middle)
        low, high = (middle, high) if found > wanted else (low, middle)
    return math.sqrt(low * high)
