"""Laws fitted to a column of positive numbers, and how far each is from it."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workloads.base import FloatArray
from workloads.gaps import weibull_shape

_ROUNDS = 200
_CLOSE = 1e-7

Cdf = Callable[[FloatArray], FloatArray]


class _Data:
    """Distinct values in order, and how often each occurs: lengths repeat a lot."""

    def __init__(self, values: ArrayLike) -> None:
        self.values, counts = np.unique(np.asarray(values, np.float64), return_counts=True)
        self.weights: FloatArray = counts / counts.sum()
        self.logs: FloatArray = np.log(self.values)

    def mean(self, values: FloatArray) -> float:
        """Return the mean of something that is known for each distinct value."""
        return float(self.weights @ values)

    def std(self, values: FloatArray) -> float:
        """Return the standard deviation of something that is known for each distinct value."""
        return math.sqrt(self.mean((values - self.mean(values)) ** 2))


@dataclass(frozen=True, slots=True)
class Fit:
    """A law with fitted parameters.

    Parameters
    ----------
    family : str
        Name of the family.
    parameters : dict of str to float or list
        Its parameters.
    ks : float
        Kolmogorov-Smirnov distance from the data.
    """

    family: str
    parameters: dict[str, Any]
    ks: float

    def __str__(self) -> str:
        told = ", ".join(f"{name} {_short(value)}" for name, value in self.parameters.items())
        return f"{self.family} ({told}), KS {self.ks:.3f}"


def fit_lengths(values: ArrayLike) -> list[Fit]:
    """Fit the families of lengths by maximum likelihood, the nearest first.

    Parameters
    ----------
    values : array_like of int
        Lengths in tokens, 1 or more.

    Returns
    -------
    list of Fit
        Lognormal, exponential, gamma, Weibull, and a mixture of two lognormals; the distance
        compares the law at k + 1/2 with the share of values up to k.
    """
    x = _Data(values)
    laws = [_lognormal(x), _exponential(x), _gamma(x), _weibull(x), _mixture(x)]
    fits = [Fit(name, found, _distance(x, cdf, 0.5)) for name, found, cdf in laws]
    return sorted(fits, key=lambda fit: fit.ks)


def fit_gaps(gaps: ArrayLike) -> list[Fit]:
    """Fit the families of gaps by maximum likelihood, the nearest first; zeros are left out."""
    positive = np.asarray(gaps, np.float64)
    positive = positive[positive > 0]
    if positive.size < 10:
        return []
    x = _Data(positive)
    laws = [_exponential(x), _gamma(x), _weibull(x), _lognormal(x)]
    return sorted(
        (Fit(name, found, _distance(x, cdf, 0.0)) for name, found, cdf in laws),
        key=lambda fit: fit.ks,
    )


def _distance(x: _Data, cdf: Cdf, correction: float) -> float:
    upper = np.cumsum(x.weights)
    law = cdf(x.values + correction)
    if correction:
        return float(np.abs(law - upper).max())
    lower = np.concatenate(([0.0], upper[:-1]))
    return float(max(np.abs(law - upper).max(), np.abs(law - lower).max()))


Law = tuple[str, dict[str, Any], Cdf]


def _lognormal(x: _Data) -> Law:
    mu, sigma = x.mean(x.logs), max(x.std(x.logs), 1e-9)
    return "lognormal", {"mu": mu, "sigma": sigma}, lambda v: _normal((np.log(v) - mu) / sigma)


def _exponential(x: _Data) -> Law:
    mean = x.mean(x.values)
    return "exponential", {"mean": mean}, lambda v: -np.expm1(-v / mean)


def _gamma(x: _Data) -> Law:
    from scipy.special import digamma, gammainc, polygamma

    mean = x.mean(x.values)
    gap = max(math.log(mean) - x.mean(x.logs), 1e-12)
    # Minka's start and Newton steps for the shape.
    k = (3 - gap + math.sqrt((gap - 3) ** 2 + 24 * gap)) / (12 * gap)
    for _ in range(_ROUNDS):
        step = (math.log(k) - float(digamma(k)) - gap) / (1 / k - float(polygamma(1, k)))
        k = max(k - step, k / 10)
        if abs(step) < _CLOSE * k:
            break
    return "gamma", {"shape": k, "scale": mean / k}, lambda v: gammainc(k, v * k / mean)


def _weibull(x: _Data) -> Law:
    mean_log = x.mean(x.logs)
    largest = float(x.logs[-1])
    k = weibull_shape(min(max(x.std(x.values) / x.mean(x.values), 0.05), 50.0))
    for _ in range(_ROUNDS):
        powers = x.weights * np.exp(k * (x.logs - largest))
        ratio = float(powers @ x.logs / powers.sum())
        new = 1 / max(ratio - mean_log, 1e-12)
        # The fixed point is approached from both sides: half steps settle it.
        new = math.sqrt(k * new)
        done, k = abs(new - k) < _CLOSE * k, new
        if done:
            break
    scale = math.exp(largest) * x.mean(np.exp(k * (x.logs - largest))) ** (1 / k)
    return "weibull", {"shape": k, "scale": scale}, lambda v: -np.expm1(-((v / scale) ** k))


def _mixture(x: _Data) -> Law:
    """Fit two lognormals by EM, starting from the lower and the upper half."""
    half = np.cumsum(x.weights) <= 0.5
    start = np.array([half, ~half], np.float64) * x.weights
    if not half.any():
        start[0, 0] = x.weights[0]
    w, mu, sigma = _moments(start, x.logs, 0.05)
    w = np.array([0.5, 0.5])
    before = -math.inf
    for _ in range(_ROUNDS):
        scaled = (x.logs - mu[:, None]) / sigma[:, None]
        density = (w / sigma)[:, None] * np.exp(-0.5 * scaled**2)
        total = np.maximum(density.sum(0), 1e-300)
        w, mu, sigma = _moments(density / total * x.weights, x.logs, 0.02)
        now = x.mean(np.log(total))
        if now - before < _CLOSE:
            break
        before = now
    found = {"w": w.tolist(), "mu": mu.tolist(), "sigma": sigma.tolist()}

    def cdf(v: FloatArray) -> FloatArray:
        parts = [w[i] * _normal((np.log(v) - mu[i]) / sigma[i]) for i in range(2)]
        return np.asarray(parts[0] + parts[1], np.float64)

    return "two lognormals", found, cdf


def _moments(
    shares: FloatArray, logs: FloatArray, least: float
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return weight, mean and standard deviation of each part from its share of each value."""
    number = np.maximum(shares.sum(1), 1e-12)
    mu = shares @ logs / number
    spread = (shares * (logs - mu[:, None]) ** 2).sum(1) / number
    return number / number.sum(), mu, np.maximum(np.sqrt(spread), least)


def _normal(z: NDArray[Any]) -> FloatArray:
    from scipy.special import ndtr

    result: FloatArray = ndtr(z)
    return result


def _short(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(f"{part:.3g}" for part in value) + "]"
    return f"{value:.4g}"
