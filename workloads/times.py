"""Laws of time spans, above all of how long users think."""

import math
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Protocol, Self, TypeAlias

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from workloads.base import ByKind, FloatArray, Spec, finite, offer_alternatives, positive, with_kind
from workloads.streams import split


class TimeLaw(Protocol):
    """A law of time spans in seconds.

    The first spans do not depend on how many are asked for.
    """

    def sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Return `n` independent spans, each 0 or more."""
        ...

    @property
    def mean(self) -> float:
        """Mean in seconds."""
        ...


class FixedTime(Spec):
    """Always the same."""

    kind: Literal["fixed"] = "fixed"
    seconds: float = Field(ge=0)
    """Length in seconds."""

    def sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Return `n` times the span; `rng` is not used."""
        return np.full(n, self.seconds)

    @property
    def mean(self) -> float:
        """The span."""
        return self.seconds


class ExponentialTime(Spec):
    """Without memory, as in the textbooks' closed loops."""

    kind: Literal["exponential"] = "exponential"
    mean_s: float = Field(gt=0)
    """Mean in seconds."""

    def sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Return `n` independent spans."""
        return rng.exponential(self.mean_s, n)

    @property
    def mean(self) -> float:
        """Mean in seconds."""
        return self.mean_s


class LognormalTime(Spec):
    """Mostly short, sometimes very long.

    Given by `mean_s` and `cv`, or by ``mu`` and ``sigma`` of the logarithm of seconds.

    Examples
    --------
    >>> law = LognormalTime.model_validate({"mu": 0.0, "sigma": 1.0})
    >>> round(law.mean, 3)
    1.649
    """

    model_config = ConfigDict(
        json_schema_extra=lambda schema: offer_alternatives(
            schema, ("mu", "sigma"), ["mean_s", "cv"]
        )
    )

    kind: Literal["lognormal"] = "lognormal"
    mean_s: float = Field(gt=0)
    """Mean in seconds."""
    cv: float = Field(gt=0)
    """Standard deviation over the mean."""

    @model_validator(mode="before")
    @classmethod
    def _one_pair(cls, data: object) -> object:
        if not isinstance(data, Mapping) or not {"mu", "sigma"} & set(data):
            return data
        if {"mean_s", "cv"} & set(data) or not {"mu", "sigma"} <= set(data):
            raise ValueError("expected exactly one pair: mean_s and cv, mu and sigma")
        mu, sigma = finite("mu", data["mu"]), positive("sigma", data["sigma"])
        if mu + sigma**2 > 100:
            raise ValueError("expected a mu and a sigma that give seconds a number can hold")
        rest = {key: value for key, value in data.items() if key not in ("mu", "sigma")}
        return rest | {
            "mean_s": math.exp(mu + sigma**2 / 2),
            "cv": math.sqrt(math.expm1(sigma**2)),
        }

    def sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Return `n` independent spans."""
        variance = math.log1p(self.cv**2)
        return rng.lognormal(math.log(self.mean_s) - variance / 2, math.sqrt(variance), n)

    @property
    def mean(self) -> float:
        """Mean in seconds."""
        return self.mean_s


SIMPLE_TIMES = (FixedTime, ExponentialTime, LognormalTime)

SimpleTime: TypeAlias = Annotated[FixedTime | ExponentialTime | LognormalTime, ByKind(SIMPLE_TIMES)]


class MixtureTime(Spec):
    """One of several laws at each draw: fast tools and slow people."""

    kind: Literal["mixture"] = "mixture"
    weights: tuple[Annotated[float, Field(ge=0)], ...] = Field(min_length=1)
    """Probability of each law; they add up to 1."""
    parts: tuple[SimpleTime, ...] = Field(min_length=1)
    """The laws."""

    @model_validator(mode="after")
    def _weights_make_sense(self) -> Self:
        if len(self.weights) != len(self.parts):
            raise ValueError("expected as many weights as parts")
        if abs(sum(self.weights) - 1) > 1e-6:
            raise ValueError(f"expected weights that add up to 1, got {sum(self.weights):.9g}")
        return self

    def sample(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Return `n` independent spans."""
        choice, *streams = split(rng, 1 + len(self.parts))
        drawn = [part.sample(n, stream) for part, stream in zip(self.parts, streams, strict=True)]
        part = np.searchsorted(np.cumsum(self.weights)[:-1], choice.random(n), side="right")
        return np.array(drawn)[part, np.arange(n)]

    @property
    def mean(self) -> float:
        """Mean in seconds."""
        return sum(w * part.mean for w, part in zip(self.weights, self.parts, strict=True))


def _kind(data: Mapping[str, Any]) -> str:
    if "parts" in data:
        return "mixture"
    if "seconds" in data:
        return "fixed"
    return "lognormal" if "cv" in data or "mu" in data else "exponential"


TIMES = (*SIMPLE_TIMES, MixtureTime)

TimeSpec: TypeAlias = Annotated[
    FixedTime | ExponentialTime | LognormalTime | MixtureTime,
    ByKind(TIMES),
    with_kind(_kind, number="seconds"),
]
