"""Rates that change with time, with their integrals and the exact inverses of these.

Every profile repeats itself. A process of rate 1 that is mapped through the inverse of the
integrated rate becomes a process of that rate; scaling the rate then keeps the same draws.
"""

from typing import Annotated, Literal, Protocol, Self, TypeAlias

import numpy as np
from pydantic import Field, model_validator

from workloads.base import ByKind, FloatArray, IntArray, Spec

_GRID = 4096
_STEPS = 60
_CLOSE = 1e-9

Rate: TypeAlias = Annotated[float, Field(ge=0)]


class RateFunction(Protocol):
    """An integrated rate and its inverse."""

    def integral(self, times: FloatArray) -> FloatArray:
        """Return the expected number of arrivals up to some times in seconds."""
        ...

    def inverse(self, numbers: FloatArray) -> FloatArray:
        """Return the times at which so many arrivals are expected."""
        ...


class Profile(Spec):
    """Base of the rates that repeat themselves."""

    @property
    def period_s(self) -> float:
        """Time after which the rate repeats itself, in seconds."""
        raise NotImplementedError

    @property
    def mean(self) -> float:
        """Mean rate over a period."""
        return float(self._within(np.array([self.period_s]))[0]) / self.period_s

    def integral(self, times: FloatArray) -> FloatArray:
        """Return the expected number of arrivals up to some times in seconds."""
        rounds, rest = np.divmod(times, self.period_s)
        return rounds * (self.mean * self.period_s) + self._within(rest)

    def inverse(self, numbers: FloatArray) -> FloatArray:
        """Return the times at which so many arrivals are expected."""
        rounds, rest = np.divmod(numbers, self.mean * self.period_s)
        return rounds * self.period_s + self._back(rest)

    def _within(self, times: FloatArray) -> FloatArray:
        raise NotImplementedError

    def _back(self, numbers: FloatArray) -> FloatArray:
        raise NotImplementedError


class StepRate(Profile):
    """A constant rate in each of several intervals of equal width.

    Examples
    --------
    >>> profile = StepRate(rates=(0, 4), width_s=10)
    >>> profile.mean, profile.inverse(np.array([0.0, 20.0, 41.0])).tolist()
    (2.0, [10.0, 15.0, 30.25])
    """

    kind: Literal["steps"] = "steps"
    rates: tuple[Rate, ...] = Field(min_length=1)
    """Rate in each interval, 0 or more; requests per second, or relative to each other."""
    width_s: float = Field(gt=0)
    """Width of an interval in seconds."""

    @model_validator(mode="after")
    def _not_all_zero(self) -> Self:
        _check_some(self.rates)
        return self

    @property
    def period_s(self) -> float:
        """All intervals together."""
        return self.width_s * len(self.rates)

    def _turned(self) -> FloatArray:
        return np.array(self.rates)

    def _edges(self) -> FloatArray:
        return np.concatenate(([0.0], np.cumsum(self._turned()))) * self.width_s

    def _within(self, times: FloatArray) -> FloatArray:
        return np.interp(times, np.arange(len(self.rates) + 1) * self.width_s, self._edges())

    def _back(self, numbers: FloatArray) -> FloatArray:
        edges = self._edges()
        step = _segment(edges, numbers)
        return step * self.width_s + (numbers - edges[step]) / self._turned()[step]


class DayRate(StepRate):
    """A table of 24 hourly rates; the clock starts at an hour of the day."""

    kind: Literal["day"] = "day"  # type: ignore[assignment]
    rates: tuple[Rate, ...] = Field(min_length=24, max_length=24)
    """Rate in each hour, from midnight; requests per second, or relative to each other."""
    width_s: float = Field(3600.0, gt=0)
    """Length of an hour in seconds; less makes days that pass faster."""
    start_hour: int = Field(0, ge=0, le=23)
    """Hour of the day at time 0."""

    def _turned(self) -> FloatArray:
        return np.roll(np.array(self.rates), -self.start_hour)


class LinearRate(Profile):
    """A rate that moves in straight lines from point to point."""

    kind: Literal["linear"] = "linear"
    times_s: tuple[Rate, ...] = Field(min_length=2)
    """Times of the points in seconds, ascending from 0; the last one is the period."""
    rates: tuple[Rate, ...] = Field(min_length=2)
    """Rate at each point, 0 or more."""

    @model_validator(mode="after")
    def _points_make_sense(self) -> Self:
        if len(self.times_s) != len(self.rates):
            raise ValueError("expected as many rates as times_s")
        if self.times_s[0] != 0 or np.any(np.diff(self.times_s) <= 0):
            raise ValueError("expected times_s that ascend from 0")
        _check_some(self.rates)
        return self

    @property
    def period_s(self) -> float:
        """Time of the last point."""
        return self.times_s[-1]

    def _points(self) -> tuple[FloatArray, FloatArray, FloatArray]:
        times, rates = np.array(self.times_s), np.array(self.rates)
        areas = np.diff(times) * (rates[:-1] + rates[1:]) / 2
        return times, rates, np.concatenate(([0.0], np.cumsum(areas)))

    def _within(self, times: FloatArray) -> FloatArray:
        at, rates, areas = self._points()
        step = np.clip(np.searchsorted(at, times, side="right") - 1, 0, at.size - 2)
        slope = np.diff(rates) / np.diff(at)
        since = times - at[step]
        inside = areas[step] + since * (rates[step] + slope[step] * since / 2)
        return np.asarray(inside, np.float64)

    def _back(self, numbers: FloatArray) -> FloatArray:
        at, rates, areas = self._points()
        step = _segment(areas, numbers)
        slope, rest = (np.diff(rates) / np.diff(at))[step], numbers - areas[step]
        root = np.sqrt(np.maximum(rates[step] ** 2 + 2 * slope * rest, 0))
        since = np.divide(2 * rest, rates[step] + root, out=np.zeros_like(rest), where=rest > 0)
        return np.asarray(at[step] + since, np.float64)


class SinusoidRate(Profile):
    """A rate that swings: mean + amplitude · sin(2π·time/period + phase)."""

    kind: Literal["sinusoid"] = "sinusoid"
    mean_rate: float = Field(gt=0)
    """Mean rate in requests per second."""
    amplitude: float = Field(ge=0)
    """Swing to either side, at most the mean."""
    length_s: float = Field(gt=0)
    """Period in seconds."""
    phase: float = 0.0
    """Angle at time 0 in radians."""

    @model_validator(mode="after")
    def _never_negative(self) -> Self:
        if self.amplitude > self.mean_rate:
            told = f"{self.amplitude:g} and {self.mean_rate:g}: the rate would be negative"
            raise ValueError(f"expected an amplitude of at most mean_rate, got {told}")
        return self

    @property
    def period_s(self) -> float:
        """The period."""
        return self.length_s

    def _within(self, times: FloatArray) -> FloatArray:
        speed = 2 * np.pi / self.length_s
        swing = np.cos(self.phase) - np.cos(speed * times + self.phase)
        return np.asarray(self.mean_rate * times + self.amplitude / speed * swing, np.float64)

    def _back(self, numbers: FloatArray) -> FloatArray:
        grid = np.linspace(0.0, self.length_s, _GRID + 1)
        edges = self._within(grid)
        step = _segment(edges, numbers)
        low, high = grid[step], grid[step + 1]
        times = low + (high - low) * (numbers - edges[step]) / (edges[step + 1] - edges[step])
        open_ = np.arange(numbers.size)
        for _ in range(_STEPS):
            # Newton's step where it stays in the bracket, else halving.
            here = times[open_]
            excess = self._within(here) - numbers[open_]
            low[open_] = np.where(excess < 0, here, low[open_])
            high[open_] = np.where(excess < 0, high[open_], here)
            slope = self._rate(here)
            step_ = np.divide(excess, slope, out=np.full_like(here, np.inf), where=slope > 0)
            newton = here - step_
            inside = (newton >= low[open_]) & (newton <= high[open_])
            times[open_] = np.where(inside, newton, (low[open_] + high[open_]) / 2)
            open_ = open_[np.abs(excess) > _CLOSE]
            if not open_.size:
                break
        return times

    def _rate(self, times: FloatArray) -> FloatArray:
        angle = 2 * np.pi / self.length_s * times + self.phase
        return self.mean_rate + self.amplitude * np.sin(angle)


class Spike(Spec):
    """A stretch of time in which the rate is multiplied."""

    start_s: float = Field(ge=0)
    """Beginning in seconds."""
    duration_s: float = Field(gt=0)
    """Length in seconds."""
    factor: float = Field(ge=0)
    """Factor on the rate; 0 is an outage of the clients."""


class WithSpikes:
    """A rate with spikes on top; where spikes overlap, their factors multiply.

    Parameters
    ----------
    rate : RateFunction
        The rate below.
    spikes : tuple of Spike
        The spikes.
    """

    def __init__(self, rate: RateFunction, spikes: tuple[Spike, ...]) -> None:
        edges = {0.0}
        for spike in spikes:
            edges |= {spike.start_s, spike.start_s + spike.duration_s}
        self._rate = rate
        self._starts = np.array(sorted(edges))
        self._factors = np.ones(self._starts.size)
        for spike in spikes:
            inside = self._starts >= spike.start_s
            inside &= self._starts < spike.start_s + spike.duration_s
            self._factors[inside] *= spike.factor
        self._below = rate.integral(self._starts)
        self._above = np.concatenate(([0.0], np.cumsum(np.diff(self._below) * self._factors[:-1])))

    def integral(self, times: FloatArray) -> FloatArray:
        """Return the expected number of arrivals up to some times in seconds."""
        part = np.searchsorted(self._starts, times, side="right") - 1
        extra = (self._rate.integral(times) - self._below[part]) * self._factors[part]
        return np.asarray(self._above[part] + extra, np.float64)

    def inverse(self, numbers: FloatArray) -> FloatArray:
        """Return the times at which so many arrivals are expected."""
        part = np.searchsorted(self._above, numbers, side="right") - 1
        rest = (numbers - self._above[part]) / self._factors[part]
        return self._rate.inverse(self._below[part] + rest)


def _segment(edges: FloatArray, numbers: FloatArray) -> IntArray:
    """Return the last segment that starts at or below each number and is not empty."""
    step = np.searchsorted(edges, numbers, side="right") - 1
    last = int(np.flatnonzero(np.diff(edges) > 0)[-1])
    return np.minimum(step, last)


def _check_some(rates: tuple[float, ...]) -> None:
    if not any(rates):
        raise ValueError("expected a rate greater than 0 somewhere")


RATES = (StepRate, DayRate, LinearRate, SinusoidRate)

RateSpec: TypeAlias = Annotated[StepRate | DayRate | LinearRate | SinusoidRate, ByKind(RATES)]
