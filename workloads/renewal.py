"""Renewal processes besides Poisson, gamma and deterministic: Weibull and hyperexponential."""

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from workloads.base import FloatArray, RequestRate, Spec, offer_alternatives, positive
from workloads.gaps import HyperexponentialGaps, Start, WeibullGaps, cumulative, weibull_shape


class WeibullArrivals(Spec):
    """Weibull-distributed gaps: bursts with a heavier tail of silences than gamma's.

    The variability is given as `cv`, or as the Weibull ``shape`` k.

    Raises
    ------
    pydantic.ValidationError
        Both or neither, or out of range.

    Notes
    -----
    k solves Γ(1 + 2/k)/Γ(1 + 1/k)² = 1 + cv². The start in ``equilibrium`` is as for
    `GammaArrivals`.

    References
    ----------
    Xiang et al., ServeGen, arXiv 2505.09999: Weibull or gamma by client and window.

    Examples
    --------
    >>> round(WeibullArrivals.model_validate({"request_rate": 2, "shape": 0.5427}).cv, 2)
    2.0
    """

    model_config = ConfigDict(
        json_schema_extra=lambda schema: offer_alternatives(schema, ("shape",), ["cv"])
    )

    kind: Literal["weibull"] = "weibull"
    request_rate: RequestRate
    """Mean number of requests per second, greater than 0."""
    cv: float = Field(gt=1e-3, le=100)
    """Standard deviation of the gaps over their mean; 1 is Poisson, more is burstier."""
    start: Start = "equilibrium"
    """First gap: `equilibrium` as in a process that has run for long, `ordinary` a full gap."""

    @model_validator(mode="before")
    @classmethod
    def _cv_or_shape(cls, data: object) -> object:
        if not isinstance(data, Mapping) or "shape" not in data:
            return data
        if "cv" in data:
            raise ValueError("expected exactly one of cv and shape")
        power = 1 / positive("shape", data["shape"])
        try:
            square = math.expm1(math.lgamma(1 + 2 * power) - 2 * math.lgamma(1 + power))
        except OverflowError:
            raise ValueError("expected a shape that gives a finite cv") from None
        return {key: value for key, value in data.items() if key != "shape"} | {
            "cv": math.sqrt(square)
        }

    def times(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Return the first `n` arrival times in seconds."""
        law = WeibullGaps(weibull_shape(self.cv))
        return cumulative(law, n, rng, self.start) / self.request_rate

    @property
    def rate(self) -> float:
        """Mean number of arrivals per second."""
        return self.request_rate


class HyperexponentialArrivals(Spec):
    """Gaps from one of two exponential laws, short or long: bursts with few parameters.

    Notes
    -----
    Balanced means: the short law is drawn with p = (1 + √((cv² - 1)/(cv² + 1)))/2 and has rate
    2·p·rate, the other 2·(1 - p)·rate.

    Examples
    --------
    >>> HyperexponentialArrivals(request_rate=2, cv=3).rate
    2.0
    """

    kind: Literal["hyperexponential"] = "hyperexponential"
    request_rate: RequestRate
    """Mean number of requests per second, greater than 0."""
    cv: float = Field(ge=1, le=1e6)
    """Standard deviation of the gaps over their mean, at least 1."""
    start: Start = "equilibrium"
    """First gap: `equilibrium` as in a process that has run for long, `ordinary` a full gap."""

    def times(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Return the first `n` arrival times in seconds."""
        law = HyperexponentialGaps(self.cv)
        return cumulative(law, n, rng, self.start) / self.request_rate

    @property
    def rate(self) -> float:
        """Mean number of arrivals per second."""
        return self.request_rate
