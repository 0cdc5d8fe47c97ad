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
_ENOUGH = 20_000

Cdf = Callable[[FloatArray], FloatArray]


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
    x = np.sort(np.asarray(values, np.float64))
    laws = [_lognormal(x), _exponential(x), _gamma(x), _weibull(x), _mixture(x)]
    fits = [Fit(name, found, _distance(x, cdf, 0.5)) for name, found, cdf in laws]
    return sorted(fits, key=lambda fit: fit.ks)


def fit_gaps(gaps: ArrayLike) -> list[Fit]:
    """Fit the families of gaps by maximum likelihood, the nearest first; zeros are left out."""
    x = np.sort(np.asarray(gaps, np.float64))
    x = x[x > 0]
    if x.size < 10:
        return []
    laws = [_exponential(x), _gamma(x), _weibull(x), _lognormal(x)]
    return sorted(
        (Fit(name, found, _distance(x, cdf, 0.0)) for name, found, cdf in laws),
        key=lambda fit: fit.ks,
    )


def _distance(x: FloatArray, cdf: Cdf, correction: float) -> float:
    values, counts = np.unique(x, return_counts=True)
    upper = np.cumsum(counts) / x.size
    law = cdf(values + correction)
    if correction:
        return float(np.abs(law - upper).max())
    lower = np.concatenate(([0.0], upper[:-1]))
    return float(max(np.abs(law - upper).max(), np.abs(law - lower).max()))


Law = tuple[str, dict[str, Any], Cdf]


def _lognormal(x: FloatArray) -> Law:
    mu, sigma = float(np.log(x).mean()), max(float(np.log(x).std()), 1e-9)
    return "lognormal", {"mu": mu, "sigma": sigma}, lambda v: _normal((np.log(v) - mu) / sigma)


def _exponential(x: FloatArray) -> Law:
    mean = float(x.mean())
    return "exponential", {"mean": mean}, lambda v: -np.expm1(-v / mean)


def _gamma(x: FloatArray) -> Law:
    from scipy.special import digamma, gammainc, polygamma

    mean = float(x.mean())
    gap = max(math.log(mean) - float(np.log(x).mean()), 1e-12)
    # Minka's start and Newton steps for the shape.
    k = (3 - gap + math.sqrt((gap - 3) ** 2 + 24 * gap)) / (12 * gap)
    for _ in range(_ROUNDS):
        step = (math.log(k) - float(digamma(k)) - gap) / (1 / k - float(polygamma(1, k)))
        k = max(k - step, k / 10)
        if abs(step) < _CLOSE * k:
            break
    return "gamma", {"shape": k, "scale": mean / k}, lambda v: gammainc(k, v * k / mean)


def _weibull(x: FloatArray) -> Law:
    logs = np.log(x)
    mean_log = logs.mean()
    k = weibull_shape(min(max(float(x.std() / x.mean()), 0.05), 50.0))
    for _ in range(_ROUNDS):
        powers = np.exp(k * (logs - logs.max()))
        ratio = float(powers @ logs / powers.sum())
        new = 1 / max(ratio - mean_log, 1e-12)
        # The fixed point is approached from both sides: half steps settle it.
        new = math.sqrt(k * new)
        done, k = abs(new - k) < _CLOSE * k, new
        if done:
            break
    scale = float(np.exp(logs.max()) * np.mean(np.exp(k * (logs - logs.max()))) ** (1 / k))
    return "weibull", {"shape": k, "scale": scale}, lambda v: -np.expm1(-((v / scale) ** k))


def _mixture(x: FloatArray) -> Law:
    """Fit two lognormals by EM, starting from the lower and the upper half."""
    logs = np.log(x)
    data = logs if logs.size <= _ENOUGH else logs[:: -(-logs.size // _ENOUGH)]
    middle = data.size // 2
    w = np.array([0.5, 0.5])
    mu = np.array([data[: middle + 1].mean(), data[middle:].mean()])
    sigma = np.maximum([data[: middle + 1].std(), data[middle:].std()], 0.05)
    before = -math.inf
    for _ in range(_ROUNDS):
        density = w * np.exp(-(((data[:, None] - mu) / sigma) ** 2) / 2) / sigma
        total = density.sum(1)
        weight = density / np.maximum(total, 1e-300)[:, None]
        number = np.maximum(weight.sum(0), 1e-9)
        w, mu = number / number.sum(), (weight * data[:, None]).sum(0) / number
        spread = (weight * (data[:, None] - mu) ** 2).sum(0) / number
        sigma = np.maximum(np.sqrt(spread), 0.02)
        now = float(np.log(np.maximum(total, 1e-300)).mean())
        if now - before < _CLOSE:
            break
        before = now
    found = {"w": w.tolist(), "mu": mu.tolist(), "sigma": sigma.tolist()}

    def cdf(v: FloatArray) -> FloatArray:
        parts = [w[i] * _normal((np.log(v) - mu[i]) / sigma[i]) for i in range(2)]
        return np.asarray(parts[0] + parts[1], np.float64)

    return "two lognormals", found, cdf


def _normal(z: NDArray[Any]) -> FloatArray:
    from scipy.special import ndtr

    result: FloatArray = ndtr(z)
    return result


def _short(value: object) -> str:
    if isinstance(value, list):
        return "[" + ", ".join(f"{part:.3g}" for part in value) + "]"
    return f"{value:.4g}"
