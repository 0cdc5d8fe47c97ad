"""How long prompts and outputs are: the protocol and the laws of lengths."""

import math
from collections.abc import Mapping
from typing import Any, Literal, Protocol, Self

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from workloads.base import (
    FloatArray,
    IntArray,
    PositiveInt,
    Spec,
    finite,
    offer_alternatives,
    positive,
)
from workloads.errors import WorkloadError

_Z99 = 2.3263478740408408
"""The 99 % quantile of the standard normal law."""

_RAREST = 1e-3
"""Smallest share of draws inside the bounds with which `resample` still works."""


class LengthDistribution(Protocol):
    """A law of lengths in tokens."""

    def sample(self, n: int, rng: np.random.Generator) -> IntArray:
        """Return `n` independent lengths, each 1 or more."""
        ...

    @property
    def mean(self) -> float:
        """Mean asked for, in tokens, before rounding and truncation."""
        ...


class FixedLength(Spec):
    """Always the same length.

    Examples
    --------
    >>> FixedLength(tokens=512).sample(2, np.random.default_rng()).tolist()
    [512, 512]
    """

    kind: Literal["fixed"] = "fixed"
    tokens: PositiveInt
    """Length in tokens, 1 or more."""

    def sample(self, n: int, rng: np.random.Generator) -> IntArray:
        """Return `n` times the length; `rng` is not used."""
        return np.full(n, self.tokens, dtype=np.int64)

    @property
    def mean(self) -> float:
        """The length."""
        return float(self.tokens)


class UniformLength(Spec):
    """Whole numbers from `low` to `high`, both included, equally likely.

    Examples
    --------
    >>> UniformLength(low=1, high=3).mean
    2.0
    """

    kind: Literal["uniform"] = "uniform"
    low: PositiveInt
    """Smallest length in tokens, 1 or more."""
    high: PositiveInt
    """Largest length in tokens, at least `low`."""

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.low > self.high:
            raise ValueError(f"expected low of at most high, got {self.low} and {self.high}")
        return self

    def sample(self, n: int, rng: np.random.Generator) -> IntArray:
        """Return `n` independent lengths."""
        return rng.integers(self.low, self.high, size=n, dtype=np.int64, endpoint=True)

    @property
    def mean(self) -> float:
        """The middle of the range."""
        return (self.low + self.high) / 2


class TruncatedSpec(Spec):
    """Base of the continuous laws: bounds, and what happens to draws outside them.

    Notes
    -----
    Draws are rounded half up. ``clip`` moves a length outside the bounds onto the nearest
    one, which puts a mass there; ``resample`` draws again, which raises all other
    probabilities in proportion. Both change the mean: compare ``mean``, which is that of
    the law as asked for, with the mean of the sample. Without `max` only the lower bound
    acts, by clipping unless `truncation` says otherwise.
    """

    min: PositiveInt = 1
    """Smallest length in tokens, 1 or more."""
    max: PositiveInt | None = None
    """Largest length in tokens; none by default."""
    truncation: Literal["clip", "resample"] | None = None
    """What happens outside the bounds; has to be given together with `max`."""

    @model_validator(mode="after")
    def _bounds_make_sense(self) -> Self:
        if self.max is None:
            return self
        if self.truncation is None:
            raise ValueError("expected truncation to be clip or resample, as max is given")
        if self.min > self.max:
            raise ValueError(f"expected min of at most max, got {self.min} and {self.max}")
        return self

    def sample(self, n: int, rng: np.random.Generator) -> IntArray:
        """Return `n` independent lengths within the bounds.

        Raises
        ------
        WorkloadError
            Fewer than one draw in a thousand lies within the bounds of ``resample``.
        """
        top = float(2**53) if self.max is None else float(self.max)
        if self.truncation != "resample":
            return np.clip(_rounded(self._draw(n, rng)), self.min, top).astype(np.int64)
        return self._sample_again(n, top, rng)

    def _sample_again(self, n: int, top: float, rng: np.random.Generator) -> IntArray:
        kept: list[FloatArray] = []
        found = drawn = 0
        while found < n:
            batch = _rounded(self._draw(max(n - found, 1000), rng))
            good = batch[(batch >= self.min) & (batch <= top)]
            kept.append(good)
            found, drawn = found + good.size, drawn + batch.size
            if found < _RAREST * drawn:
                bounds = f"{self.min}..{self.max or ''}"
                raise WorkloadError(
                    f"expected bounds that keep more than 1 draw in 1,000 of {self!r}", value=bounds
                )
        return np.concatenate(kept)[:n].astype(np.int64) if kept else np.empty(0, np.int64)

    def _draw(self, n: int, rng: np.random.Generator) -> FloatArray:
        raise NotImplementedError


class LognormalLength(TruncatedSpec):
    """Lengths whose logarithm is normal: many short ones and a long tail.

    Given by `mean` and `cv`, or by ``median`` and ``p99``, or by ``mu`` and ``sigma`` of the
    logarithm.

    Raises
    ------
    pydantic.ValidationError
        Not exactly one of the three pairs, or a value out of its range.

    Notes
    -----
    sigma² = ln(1 + cv²) and mu = ln(mean) - sigma²/2.

    Examples
    --------
    >>> law = LognormalLength(mean=500, cv=1.2, max=4096, truncation="clip")
    >>> law.sample(4, np.random.default_rng(2)).tolist()
    [383, 195, 217, 32]
    >>> LognormalLength.model_validate({"median": 100, "p99": 1000}).mean.__round__()
    163
    """

    model_config = ConfigDict(
        json_schema_extra=lambda schema: offer_alternatives(
            schema, ("median", "p99", "mu", "sigma"), ["mean", "cv"]
        )
    )

    kind: Literal["lognormal"] = "lognormal"
    mean: float = Field(gt=0)
    """Mean in tokens, before rounding and truncation."""
    cv: float = Field(gt=0)
    """Standard deviation over the mean."""

    @model_validator(mode="before")
    @classmethod
    def _one_pair(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        pairs = (("mean", "cv"), ("median", "p99"), ("mu", "sigma"))
        given = [pair for pair in pairs if any(name in data for name in pair)]
        if len(given) != 1 or any(name not in data for name in given[0]):
            raise ValueError("expected exactly one pair: mean and cv, median and p99, mu and sigma")
        if given == [("mean", "cv")]:
            return data
        mu, sigma = _log_parameters(given[0][0], data)
        rest = {key: value for key, value in data.items() if key not in given[0]}
        return rest | {"mean": _exp(mu + sigma**2 / 2), "cv": _exp(sigma**2, minus_one=True) ** 0.5}

    @property
    def sigma(self) -> float:
        """Standard deviation of the logarithm."""
        return math.sqrt(math.log1p(self.cv**2))

    @property
    def mu(self) -> float:
        """Mean of the logarithm: the logarithm of the median."""
        return math.log(self.mean) - self.sigma**2 / 2

    def _draw(self, n: int, rng: np.random.Generator) -> FloatArray:
        return rng.lognormal(self.mu, self.sigma, n)


def _log_parameters(first: str, data: Mapping[str, Any]) -> tuple[float, float]:
    """Return mu and sigma, from themselves or from median and p99."""
    if first == "mu":
        return finite("mu", data["mu"]), positive("sigma", data["sigma"])
    median, p99 = positive("median", data["median"]), positive("p99", data["p99"])
    if p99 <= median:
        raise ValueError(f"expected p99 greater than median, got {p99:g} and {median:g}")
    return math.log(median), math.log(p99 / median) / _Z99


def _exp(power: float, *, minus_one: bool = False) -> float:
    try:
        return math.expm1(power) if minus_one else math.exp(power)
    except OverflowError:
        raise ValueError(
            "expected a mean that a number can hold; mu or sigma is too large"
        ) from None


def _rounded(values: FloatArray) -> FloatArray:
    return np.floor(values + 0.5)
