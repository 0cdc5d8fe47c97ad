"""All laws of lengths, told apart by kind, and mixtures of them."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

import numpy as np
from pydantic import Field, model_validator

from workloads.base import ByKind, IntArray, Spec, with_kind
from workloads.empirical import EmpiricalLength
from workloads.length_laws import (
    ExponentialLength,
    GammaLength,
    GeometricLength,
    NormalLength,
    ParetoTailLength,
    QuantileLength,
    ZipfLength,
)
from workloads.lengths import FixedLength, LognormalLength, UniformLength
from workloads.streams import split

SIMPLE_LENGTHS: Final = (
    FixedLength,
    UniformLength,
    LognormalLength,
    ExponentialLength,
    GammaLength,
    GeometricLength,
    NormalLength,
    ZipfLength,
    ParetoTailLength,
    QuantileLength,
    EmpiricalLength,
)

_MARKS: Final = {
    "tokens": "fixed",
    "exponent": "zipf",
    "low": "uniform",
    "high": "uniform",
    "points": "quantiles",
    "values": "empirical",
    "histogram": "empirical",
    "path": "empirical",
    "stdev": "normal",
    "tail_prob": "pareto-tail",
    "parts": "mixture",
}


def _kind(data: Mapping[str, Any]) -> str:
    return next((kind for mark, kind in _MARKS.items() if mark in data), "lognormal")


SimpleLengthSpec: TypeAlias = Annotated[
    FixedLength
    | UniformLength
    | LognormalLength
    | ExponentialLength
    | GammaLength
    | GeometricLength
    | NormalLength
    | ZipfLength
    | ParetoTailLength
    | QuantileLength
    | EmpiricalLength,
    ByKind(SIMPLE_LENGTHS),
    with_kind(_kind, number="tokens"),
]


class MixtureLength(Spec):
    """One of several laws at each draw: short and long texts, or templates among free text.

    Examples
    --------
    >>> law = MixtureLength.model_validate(
    ...     {"weights": [0.75, 0.25], "parts": [100, {"mu": 7.0, "sigma": 1.0}]})
    >>> round(law.mean)
    527
    """

    kind: Literal["mixture"] = "mixture"
    weights: tuple[Annotated[float, Field(ge=0)], ...] = Field(min_length=1)
    """Probability of each law; they add up to 1."""
    parts: tuple[SimpleLengthSpec, ...] = Field(min_length=1)
    """The laws."""

    @model_validator(mode="after")
    def _weights_make_sense(self) -> Self:
        if len(self.weights) != len(self.parts):
            raise ValueError("expected as many weights as parts")
        if abs(sum(self.weights) - 1) > 1e-6:
            raise ValueError(f"expected weights that add up to 1, got {sum(self.weights):.9g}")
        return self

    def sample(self, n: int, rng: np.random.Generator) -> IntArray:
        """Return `n` independent lengths."""
        choice, *streams = split(rng, 1 + len(self.parts))
        drawn = [part.sample(n, stream) for part, stream in zip(self.parts, streams, strict=True)]
        part = np.searchsorted(np.cumsum(self.weights)[:-1], choice.random(n), side="right")
        return np.array(drawn)[part, np.arange(n)]

    @property
    def mean(self) -> float:
        """Mean asked for, in tokens."""
        return sum(w * part.mean for w, part in zip(self.weights, self.parts, strict=True))


LENGTHS: Final = (*SIMPLE_LENGTHS, MixtureLength)
"""The classes, one a kind."""

LengthSpec: TypeAlias = Annotated[
    FixedLength
    | UniformLength
    | LognormalLength
    | ExponentialLength
    | GammaLength
    | GeometricLength
    | NormalLength
    | ZipfLength
    | ParetoTailLength
    | QuantileLength
    | EmpiricalLength
    | MixtureLength,
    ByKind(LENGTHS),
    with_kind(_kind, number="tokens"),
]
