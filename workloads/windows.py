"""Arrivals described window by window: a rate, a variability and a family for each."""

import math
from collections.abc import Iterator
from itertools import count, islice
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from workloads.base import FloatArray, RequestRate, Spec
from workloads.gaps import GammaGaps, GapLaw, WeibullGaps, cumulative, weibull_shape
from workloads.streams import split

Family = Literal["gamma", "weibull"]


class WindowedArrivals(Spec):
    """In each window of time a renewal process of its own; the windows repeat themselves.

    Notes
    -----
    Each window starts in equilibrium, so that it brings rate · width requests on average.
    Changing `request_rate` multiplies all rates and leaves the variability.

    References
    ----------
    Xiang et al., ServeGen, arXiv 2505.09999: clients as windows of 600 s.

    Examples
    --------
    >>> WindowedArrivals(width_s=600, rates=(1, 0, 2), cvs=(1, 1, 3)).rate
    1.0
    """

    kind: Literal["windowed"] = "windowed"
    width_s: float = Field(gt=0)
    """Width of a window in seconds."""
    rates: tuple[Annotated[float, Field(ge=0)], ...] = Field(min_length=1)
    """Rate in each window, 0 or more."""
    cvs: tuple[Annotated[float, Field(gt=1e-3, le=100)], ...] = Field(min_length=1)
    """Variability of the gaps in each window, or one number for all."""
    families: tuple[Family, ...] = ("gamma",)
    """Family of the gaps in each window, or one for all."""
    request_rate: RequestRate | None = None
    """Mean rate to which the rates are scaled; their own if left out."""

    @model_validator(mode="after")
    def _windows_match(self) -> Self:
        if not any(self.rates):
            raise ValueError("expected rates greater than 0 somewhere")
        for name in ("cvs", "families"):
            if len(getattr(self, name)) not in (1, len(self.rates)):
                raise ValueError(f"expected one of {name}, or one a window")
        return self

    def times(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Return the first `n` arrival times in seconds."""
        found: list[FloatArray] = []
        number = 0
        for inside in self._windows(rng):
            if number >= n:
                break
            found.append(inside)
            number += inside.size
        return np.concatenate(found)[:n] if found else np.empty(0)

    def until(self, horizon: float, rng: np.random.Generator) -> FloatArray:
        """Return the arrivals before a time in seconds, which is not included."""
        windows = islice(self._windows(rng), math.ceil(horizon / self.width_s))
        times = np.concatenate([np.empty(0), *windows])
        return times[times < horizon]

    def _windows(self, rng: np.random.Generator) -> Iterator[FloatArray]:
        """Yield the arrivals of one window after the other, without end."""
        scale = self.rate / (sum(self.rates) / len(self.rates))
        for window in count():
            inside = self._window(window % len(self.rates), scale, rng)
            yield inside + window * self.width_s

    def _window(self, window: int, scale: float, rng: np.random.Generator) -> FloatArray:
        """Return the arrivals in a window, from its beginning."""
        expected = self.rates[window] * scale * self.width_s
        if expected == 0:
            return np.empty(0)
        cv = self.cvs[window % len(self.cvs)]
        law = _law(self.families[window % len(self.families)], cv)
        (rng,) = split(rng, 1)
        times = np.empty(0)
        number = int(expected + 6 * cv * expected**0.5) + 8
        while times.size == 0 or times[-1] < expected:
            more = cumulative(law, number, rng, "ordinary" if times.size else "equilibrium")
            times = np.concatenate((times, more + (times[-1] if times.size else 0.0)))
        return times[times < expected] / (self.rates[window] * scale)

    @property
    def rate(self) -> float:
        """Mean number of arrivals per second over all windows."""
        own = sum(self.rates) / len(self.rates)
        return own if self.request_rate is None else self.request_rate


def _law(family: Family, cv: float) -> GapLaw:
    return GammaGaps(cv) if family == "gamma" else WeibullGaps(weibull_shape(cv))
