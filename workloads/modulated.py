"""Arrivals whose rate changes with time: by a known function, or by chance."""

import math
from collections.abc import Mapping
from typing import Literal, Self

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from workloads.base import FloatArray, RequestRate, Spec, offer_alternatives, positive
from workloads.gaps import GammaGaps, Start, cumulative
from workloads.rates import RateFunction, RateSpec, Spike, WithSpikes
from workloads.streams import split

_SOJOURNS = 256


class VaryingArrivals(Spec):
    """Arrivals that follow a rate known beforehand: a day, a ramp, a spike.

    Notes
    -----
    A renewal process of rate 1 is mapped through the inverse of the integrated rate. With a
    `cv` of 1 this is the non-homogeneous Poisson process, exactly; otherwise `cv` is that of
    the gaps as seen at a constant rate, not over the whole run. The mean rate is that of the
    profile, without its spikes.

    Examples
    --------
    >>> arrivals = VaryingArrivals.model_validate(
    ...     {"profile": {"kind": "steps", "rates": [1, 3], "width_s": 60}, "request_rate": 8})
    >>> arrivals.rate, float(arrivals.times(1000, np.random.default_rng(1))[-1].round())
    (8.0, 132.0)
    """

    kind: Literal["varying"] = "varying"
    profile: RateSpec
    """Rate over time; it repeats itself."""
    request_rate: RequestRate | None = None
    """Mean rate to which the profile is scaled; its own if left out."""
    cv: float = Field(1.0, gt=0)
    """Variability of the gaps at a constant rate; 1 is Poisson."""
    spikes: tuple[Spike, ...] = ()
    """Stretches of time in which the rate is multiplied."""
    start: Start = "equilibrium"
    """First gap: `equilibrium` as in a process that has run for long, `ordinary` a full gap."""

    def times(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Return the first `n` arrival times in seconds."""
        units = cumulative(GammaGaps(self.cv), n, rng, self.start)
        rate: RateFunction = self.profile
        scale = self.rate / self.profile.mean
        if self.spikes:
            rate = WithSpikes(self.profile, self.spikes)
        return rate.inverse(units / scale)

    @property
    def rate(self) -> float:
        """Mean number of arrivals per second over a period, without spikes."""
        return self.profile.mean if self.request_rate is None else self.request_rate


class MmppArrivals(Spec):
    """Two states that take turns by chance, each with its own rate.

    Notes
    -----
    With exponential sojourns and a `cv` of 1 this is the Markov-modulated Poisson process of
    two states. Start in ``equilibrium``: state and time left in it as in a process that has
    run for long; ``ordinary``: at the beginning of the first state.

    References
    ----------
    Fischer and Meier-Hellstern, The Markov-modulated Poisson process cookbook, Performance
    Evaluation 18 (1993).

    Examples
    --------
    >>> MmppArrivals(rates=(10, 2), sojourns_s=(5, 15)).rate
    4.0
    """

    kind: Literal["mmpp"] = "mmpp"
    rates: tuple[float, float]
    """Rate in each state in requests per second, 0 or more, not both 0."""
    sojourns_s: tuple[float, float]
    """Mean time in each state in seconds, greater than 0."""
    sojourn_cvs: tuple[float, float] = (1.0, 1.0)
    """Variability of these times, gamma distributed; 1 is exponential."""
    cv: float = Field(1.0, gt=0)
    """Variability of the gaps at a constant rate; 1 is Poisson."""
    start: Start = "equilibrium"
    """`equilibrium` as in a process that has run for long, `ordinary` at the first state."""

    @model_validator(mode="after")
    def _numbers_make_sense(self) -> Self:
        if min(self.rates) < 0 or max(self.rates) <= 0:
            raise ValueError(f"expected rates of at least 0, not both 0, got {self.rates}")
        for name in ("sojourns_s", "sojourn_cvs"):
            if min(getattr(self, name)) <= 0:
                raise ValueError(f"expected {name} greater than 0, got {getattr(self, name)}")
        return self

    def times(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Return the first `n` arrival times in seconds."""
        for_gaps, for_states = split(rng, 2)
        units = cumulative(GammaGaps(self.cv), n, for_gaps, self.start)
        if not n:
            return units
        ends, numbers, rates = self._path(float(units[-1]), for_states)
        step = np.searchsorted(numbers, units, side="right")
        starts = np.concatenate(([0.0], ends))[step]
        before = np.concatenate(([0.0], numbers))[step]
        return starts + (units - before) / rates[step]

    def _path(
        self, needed: float, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return ends, expected numbers of arrivals up to them, and rates of the sojourns."""
        laws = [GammaGaps(cv) for cv in self.sojourn_cvs]
        first, begin = 0, None
        if self.start == "equilibrium":
            first = int(rng.random() * sum(self.sojourns_s) >= self.sojourns_s[0])
            begin = laws[first].residual(rng) * self.sojourns_s[first]
        turn = (first, 1 - first)
        rounds: list[FloatArray] = []
        total = 0.0
        while total <= needed:
            round_ = np.empty((_SOJOURNS, 2))
            for place, state in enumerate(turn):
                round_[:, place] = laws[state].draw(_SOJOURNS, rng) * self.sojourns_s[state]
            if begin is not None:
                round_[0, 0], begin = begin, None
            rounds.append(round_.ravel())
            total += float((round_ @ np.array([self.rates[state] for state in turn])).sum())
        sojourns = np.concatenate(rounds)
        rates = np.tile([self.rates[state] for state in turn], sojourns.size // 2)
        return np.cumsum(sojourns), np.cumsum(sojourns * rates), rates

    @property
    def rate(self) -> float:
        """Long-run mean number of arrivals per second."""
        weights = np.array(self.sojourns_s)
        return float(weights @ np.array(self.rates) / weights.sum())

    def dispersion(self, width_s: float) -> float:
        """Return the index of dispersion at a width, for exponential sojourns and a cv of 1."""
        (a, b), (r, s) = self.rates, (1 / self.sojourns_s[0], 1 / self.sojourns_s[1])
        most = 2 * (a - b) ** 2 * r * s / ((r + s) ** 2 * (a * s + b * r))
        x = (r + s) * width_s
        return 1 + most * (1 + math.expm1(-x) / x)


class OnOffArrivals(Spec):
    """Bursts and silences, each of random length.

    The rate is given as `request_rate`, the long-run mean, or as ``rate_on``, that inside a
    burst.

    Raises
    ------
    pydantic.ValidationError
        Both or neither, or out of range.

    Examples
    --------
    >>> law = OnOffArrivals.model_validate(
    ...     {"rate_on": 9.0, "mean_on_s": 16.7, "mean_off_s": 43.3, "cv": 2.2})
    >>> round(law.rate, 3)
    2.505
    """

    model_config = ConfigDict(
        json_schema_extra=lambda schema: offer_alternatives(schema, ("rate_on",), ["request_rate"])
    )

    kind: Literal["on-off"] = "on-off"
    request_rate: RequestRate
    """Long-run mean number of requests per second, bursts and silences together."""
    mean_on_s: float = Field(gt=0)
    """Mean length of a burst in seconds."""
    mean_off_s: float = Field(gt=0)
    """Mean length of a silence in seconds."""
    cv_on: float = Field(1.0, gt=0)
    """Variability of the bursts' lengths, gamma distributed; 1 is exponential."""
    cv_off: float = Field(1.0, gt=0)
    """Variability of the silences' lengths, gamma distributed; 1 is exponential."""
    cv: float = Field(1.0, gt=0)
    """Variability of the gaps inside a burst; 1 is Poisson."""
    start: Start = "equilibrium"
    """`equilibrium` as in a process that has run for long, `ordinary` at a burst's beginning."""

    @model_validator(mode="before")
    @classmethod
    def _mean_or_inside(cls, data: object) -> object:
        if not isinstance(data, Mapping) or "rate_on" not in data:
            return data
        if "request_rate" in data:
            raise ValueError("expected exactly one of request_rate and rate_on")
        rest = {key: value for key, value in data.items() if key != "rate_on"}
        on = positive("mean_on_s", data.get("mean_on_s"))
        off = positive("mean_off_s", data.get("mean_off_s"))
        return rest | {"request_rate": positive("rate_on", data["rate_on"]) * on / (on + off)}

    def times(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Return the first `n` arrival times in seconds."""
        return self._states().times(n, rng)

    def _states(self) -> MmppArrivals:
        share = self.mean_on_s / (self.mean_on_s + self.mean_off_s)
        return MmppArrivals(
            rates=(self.request_rate / share, 0.0),
            sojourns_s=(self.mean_on_s, self.mean_off_s),
            sojourn_cvs=(self.cv_on, self.cv_off),
            cv=self.cv,
            start=self.start,
        )

    @property
    def rate(self) -> float:
        """Long-run mean number of arrivals per second."""
        return self.request_rate
