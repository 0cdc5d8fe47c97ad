"""When requests arrive: the protocol and the renewal processes."""

from collections.abc import Mapping
from typing import Any, Literal, Protocol

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from workloads.base import FloatArray, RequestRate, Spec, offer_alternatives, positive
from workloads.gaps import Start

BURSTINESS = ("burstiness", "smoothness")
"""Other tools' names of the gamma shape."""


class ArrivalProcess(Protocol):
    """A law of arrival times.

    The first arrivals do not depend on how many are asked for: ``times(10, rng)`` are the
    first ten of ``times(1000, rng)`` from a generator in the same state.
    """

    def times(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Return the first `n` arrival times in seconds, ascending, 0 or more."""
        ...

    @property
    def rate(self) -> float:
        """Long-run mean number of arrivals per second."""
        ...


class PoissonArrivals(Spec):
    """Arrivals without memory: exponential gaps.

    Examples
    --------
    >>> arrivals = PoissonArrivals(request_rate=4)
    >>> arrivals.times(3, np.random.default_rng(1)).round(2).tolist()
    [0.27, 0.35, 1.69]
    """

    kind: Literal["poisson"] = "poisson"
    request_rate: RequestRate
    """Mean number of requests per second, greater than 0."""

    def times(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Return the first `n` arrival times in seconds."""
        return np.cumsum(rng.exponential(1.0 / self.request_rate, n))

    @property
    def rate(self) -> float:
        """Mean number of arrivals per second."""
        return self.request_rate

    @property
    def cv(self) -> float:
        """1, whatever the rate."""
        return 1.0


class GammaArrivals(Spec):
    """Gamma-distributed gaps of a given variability.

    The variability is given as `cv`, or as the gamma shape 1/cv², which vLLM's benchmarks
    call ``burstiness`` and AIPerf ``smoothness`` (1 is Poisson, below 1 is bursty).

    Raises
    ------
    pydantic.ValidationError
        None or more than one of the three given, or not a positive number.

    Notes
    -----
    Gaps have shape k = 1/cv² and mean 1/rate; none is clamped and the sample is not scaled
    to the rate afterwards. The rate over N requests has a relative standard deviation of
    about cv/√N. In the state that a long-running process is in (``equilibrium``) the first
    arrival comes after U·G, with U uniform on (0, 1) and G gamma of shape k + 1 and the same
    scale: a gap is met in proportion to its length. A process that starts with a full gap
    (``ordinary``) delivers about (cv² - 1)/2 requests too many early on.

    References
    ----------
    vLLM, ``vllm/benchmarks/serve.py``, ``get_request``: the same shape, but it starts with a
    full gap and then scales the sample so that the last of N requests goes out at N/rate.
    Cox, Renewal Theory (1962), chapter 5 (residual life).

    Examples
    --------
    >>> GammaArrivals.model_validate({"request_rate": 8, "burstiness": 0.25}).cv
    2.0
    """

    model_config = ConfigDict(
        json_schema_extra=lambda schema: offer_alternatives(schema, BURSTINESS, ["cv"])
    )

    kind: Literal["gamma"] = "gamma"
    request_rate: RequestRate
    """Mean number of requests per second, greater than 0."""
    cv: float = Field(gt=0)
    """Standard deviation of the gaps over their mean; 1 is Poisson, more is burstier."""
    start: Start = "equilibrium"
    """First gap: `equilibrium` as in a process that has run for long, `ordinary` a full gap."""

    @model_validator(mode="before")
    @classmethod
    def _one_measure_of_variability(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        given = [name for name in ("cv", *BURSTINESS) if name in data]
        if len(given) != 1:
            raise ValueError(f"expected exactly one of cv and burstiness, got {given or 'none'}")
        if given == ["cv"]:
            return data
        return {"cv": positive(given[0], data[given[0]]) ** -0.5, **_without(data, given[0])}

    def times(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Return the first `n` arrival times in seconds."""
        shape = self.cv**-2
        scale = 1.0 / (self.request_rate * shape)
        gaps = np.empty(n)
        if n and self.start == "equilibrium":
            gaps[0] = rng.random() * rng.gamma(shape + 1.0, scale)
            gaps[1:] = rng.gamma(shape, scale, n - 1)
        else:
            gaps[:] = rng.gamma(shape, scale, n)
        return np.cumsum(gaps)

    @property
    def rate(self) -> float:
        """Mean number of arrivals per second."""
        return self.request_rate


class DeterministicArrivals(Spec):
    """Equal gaps.

    Notes
    -----
    Equal gaps can fall into step with equal service times. A random phase
    (``start: equilibrium``) moves the whole sequence by a uniform part of one gap.

    Examples
    --------
    >>> DeterministicArrivals(request_rate=4).times(3, np.random.default_rng()).tolist()
    [0.25, 0.5, 0.75]
    """

    kind: Literal["deterministic"] = "deterministic"
    request_rate: RequestRate
    """Number of requests per second, greater than 0."""
    start: Start = "ordinary"
    """First arrival: `ordinary` one gap after 0, `equilibrium` a uniform part of a gap."""

    def times(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Return the first `n` arrival times in seconds."""
        late = rng.random() - 1.0 if self.start == "equilibrium" else 0.0
        return (np.arange(1, n + 1, dtype=np.float64) + late) / self.request_rate

    @property
    def rate(self) -> float:
        """Number of arrivals per second."""
        return self.request_rate

    @property
    def cv(self) -> float:
        """0, as all gaps are equal."""
        return 0.0


def _without(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in data.items() if key != name}
