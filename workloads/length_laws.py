"""More laws of lengths: exponential, gamma, geometric, normal, Zipf, and a heavy tail."""

import math
from typing import Annotated, Literal, Self, TypeAlias

import numpy as np
from pydantic import Field, model_validator

from workloads.base import FloatArray, IntArray, PositiveInt, Spec
from workloads.lengths import TruncatedSpec

_WIDEST = 10_000_000


class ExponentialLength(TruncatedSpec):
    """Exponential: the law with one parameter that outputs are often said to follow."""

    kind: Literal["exponential"] = "exponential"
    mean: float = Field(gt=0)
    """Mean in tokens, before rounding and truncation."""

    def _draw(self, n: int, rng: np.random.Generator) -> FloatArray:
        return rng.exponential(self.mean, n)


class GammaLength(TruncatedSpec):
    """Gamma of shape 1/cv²: less skewed than lognormal."""

    kind: Literal["gamma"] = "gamma"
    mean: float = Field(gt=0)
    """Mean in tokens, before rounding and truncation."""
    cv: float = Field(gt=0)
    """Standard deviation over the mean."""

    def _draw(self, n: int, rng: np.random.Generator) -> FloatArray:
        shape = self.cv**-2
        return rng.gamma(shape, self.mean / shape, n)


class GeometricLength(TruncatedSpec):
    """Geometric on 1, 2, 3, ...: after each token the text ends with the same probability."""

    kind: Literal["geometric"] = "geometric"
    mean: float = Field(ge=1)
    """Mean in tokens, before truncation; the probability of an end is its inverse."""

    def _draw(self, n: int, rng: np.random.Generator) -> FloatArray:
        return rng.geometric(1 / self.mean, n).astype(np.float64)


class NormalLength(TruncatedSpec):
    """Normal, as in the synthetic data of GuideLLM and AIPerf.

    References
    ----------
    GuideLLM: ``prompt_tokens``, ``prompt_tokens_stdev``, ``prompt_tokens_min``,
    ``prompt_tokens_max``; draws outside the bounds are moved onto them there (``clip``).
    """

    kind: Literal["normal"] = "normal"
    mean: float = Field(gt=0)
    """Mean in tokens, before rounding and truncation."""
    stdev: float = Field(ge=0)
    """Standard deviation in tokens, before rounding and truncation."""

    def _draw(self, n: int, rng: np.random.Generator) -> FloatArray:
        return rng.normal(self.mean, self.stdev, n)


class ZipfLength(Spec):
    """Bounded Zipf: the probability of k is proportional to k to the power of -exponent.

    Examples
    --------
    >>> round(ZipfLength(low=1, high=3, exponent=1).mean, 4)
    1.6364
    """

    kind: Literal["zipf"] = "zipf"
    low: PositiveInt
    """Smallest length in tokens, 1 or more."""
    high: PositiveInt
    """Largest length in tokens, at least `low`."""
    exponent: float = Field(ge=0, le=100)
    """How fast the probability falls; 0 is uniform."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if not self.low <= self.high < self.low + _WIDEST:
            told = f"{self.low} and {self.high}"
            raise ValueError(f"expected low <= high, at most {_WIDEST} apart, got {told}")
        return self

    def sample(self, n: int, rng: np.random.Generator) -> IntArray:
        """Return `n` independent lengths."""
        values, probs = self._table()
        return values[np.searchsorted(np.cumsum(probs)[:-1], rng.random(n), side="right")]

    @property
    def mean(self) -> float:
        """Mean in tokens."""
        values, probs = self._table()
        return float(values @ probs)

    def _table(self) -> tuple[IntArray, FloatArray]:
        values = np.arange(self.low, self.high + 1, dtype=np.int64)
        weights = (values / self.low) ** -self.exponent
        return values, weights / weights.sum()


class ParetoTailLength(TruncatedSpec):
    """A lognormal body and a Pareto tail above a threshold.

    References
    ----------
    Xiang et al., ServeGen, arXiv 2505.09999: inputs as lognormal with a Pareto tail.

    Examples
    --------
    >>> law = ParetoTailLength(mu=5, sigma=1, threshold=1000, tail_prob=0.05, alpha=2)
    >>> float(np.mean(law.sample(100_000, np.random.default_rng(1)) > 1000).round(2))
    0.05
    """

    kind: Literal["pareto-tail"] = "pareto-tail"
    mu: float
    """Mean of the logarithm of the body."""
    sigma: float = Field(gt=0)
    """Standard deviation of the logarithm of the body."""
    threshold: float = Field(ge=1)
    """Length at which the tail begins, in tokens."""
    tail_prob: float = Field(gt=0, lt=1)
    """Probability of the tail."""
    alpha: float = Field(gt=0)
    """Exponent of the tail; the mean is infinite at 1 or less, unless there is a `max`."""

    def _draw(self, n: int, rng: np.random.Generator) -> FloatArray:
        from scipy.special import ndtri

        part, place = rng.random((n, 2)).T
        below = ndtri(place * self._below())
        body = np.exp(np.minimum(self.mu + self.sigma * below, 700))
        tail = self.threshold * (1 - place) ** (-1 / self.alpha)
        return np.asarray(np.where(part < self.tail_prob, tail, body), np.float64)

    def _below(self) -> float:
        """Return the probability that the lognormal law stays below the threshold."""
        return _normal((math.log(self.threshold) - self.mu) / self.sigma)

    @model_validator(mode="after")
    def _body_is_there(self) -> Self:
        if self._below() < 1e-9:
            raise ValueError("expected a threshold above the body, not far below it")
        return self

    @property
    def mean(self) -> float:
        """Mean in tokens, before rounding and truncation; infinite if alpha is 1 or less."""
        end = (math.log(self.threshold) - self.mu) / self.sigma
        whole = math.exp(self.mu + self.sigma**2 / 2)
        body = whole * _normal(end - self.sigma) / _normal(end)
        tail = self.threshold * self.alpha / (self.alpha - 1) if self.alpha > 1 else math.inf
        return (1 - self.tail_prob) * body + self.tail_prob * tail


def _normal(x: float) -> float:
    return math.erfc(-x / math.sqrt(2)) / 2


Percentile: TypeAlias = Annotated[float, Field(ge=0, le=100)]


class QuantileLength(Spec):
    """Lengths from a table of percentiles: what a trace leaves behind.

    Notes
    -----
    Between two points values are interpolated, linearly or in logarithms, and rounded half
    up. Heavy tails need points above the 99th percentile: a straight line from there to the
    maximum makes the mean up to seven times too large on real traces.

    Examples
    --------
    >>> QuantileLength(points=((0, 10), (50, 20), (100, 60))).mean
    27.5
    """

    kind: Literal["quantiles"] = "quantiles"
    points: tuple[tuple[Percentile, Annotated[float, Field(ge=1, le=2**53)]], ...] = Field(
        min_length=2
    )
    """Pairs of percentile and length, both ascending, from percentile 0 to 100."""
    interpolation: Literal["linear", "log"] = "linear"
    """How values between the points are found."""

    @model_validator(mode="after")
    def _points_make_sense(self) -> Self:
        percents, values = np.array(self.points).T
        if percents[0] != 0 or percents[-1] != 100 or np.any(np.diff(percents) <= 0):
            raise ValueError("expected points whose percentiles ascend from 0 to 100")
        if np.any(np.diff(values) < 0):
            raise ValueError("expected points whose lengths ascend")
        return self

    def sample(self, n: int, rng: np.random.Generator) -> IntArray:
        """Return `n` independent lengths."""
        percents, values = np.array(self.points).T
        if self.interpolation == "log":
            drawn = np.exp(np.interp(rng.random(n) * 100, percents, np.log(values)))
        else:
            drawn = np.interp(rng.random(n) * 100, percents, values)
        return np.asarray(np.floor(drawn + 0.5), np.int64)

    @property
    def mean(self) -> float:
        """Mean in tokens, before rounding."""
        percents, values = np.array(self.points).T
        low, high = values[:-1], values[1:]
        middle = (low + high) / 2
        if self.interpolation == "log":
            rise = high > low * (1 + 1e-9)
            middle[rise] = (high - low)[rise] / np.log(high[rise] / low[rise])
        return float(np.diff(percents) @ middle / 100)
