"""Clocks that tick coarsely: found, reported, and undone."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal, TypeAlias

import numpy as np

from workloads.base import FloatArray
from workloads.errors import WorkloadError
from workloads.moves import moved

if TYPE_CHECKING:
    from workloads.trace import Trace

Placement: TypeAlias = Literal["uniform", "even"]

_SHARED: Final = 0.3
_REGULAR: Final = 0.8
_NEAR: Final = 0.05
WARNING: Final = "arrivals stand on a clock"


@dataclass(frozen=True, slots=True)
class Tick:
    """A coarse clock.

    Parameters
    ----------
    tick_s : float
        Time between its ticks in seconds.
    shared : float
        Fraction of requests that arrive at the moment of the request before.
    moments : int
        Distinct moments of arrival.
    """

    tick_s: float
    shared: float
    moments: int

    def __str__(self) -> str:
        return (
            f"{WARNING} of {self.tick_s:.3g} s ({self.moments} moments,"
            f" {self.shared:.0%} of requests share theirs with the one before):"
            " replayed as they are, they are batches; detick spreads them"
        )


def find_tick(arrival_s: FloatArray) -> Tick | None:
    """Find the clock on which arrivals stand.

    Parameters
    ----------
    arrival_s : array of float
        Times in seconds, ascending.

    Returns
    -------
    Tick or None
        A clock if at least 30 % of the requests share their moment with the one before, and
        at least 80 % of the steps between moments are within 5 % of a multiple of the median
        step; None otherwise.

    Examples
    --------
    >>> find_tick(np.repeat(np.arange(20) * 3.0, 5)).tick_s
    3.0
    >>> find_tick(np.arange(20) * 3.0) is None
    True
    """
    steps = np.diff(arrival_s)
    shared = float(np.mean(steps == 0)) if steps.size else 0.0
    if shared < _SHARED:
        return None
    steps = steps[steps > 0]
    if steps.size < 2:
        return None
    tick_s = float(np.median(steps))
    multiples = np.maximum(np.round(steps / tick_s), 1)
    if np.mean(np.abs(steps - multiples * tick_s) <= _NEAR * tick_s) < _REGULAR:
        return None
    return Tick(tick_s, shared, steps.size + 1)


def detick(
    trace: "Trace",
    rng: np.random.Generator,
    tick_s: float | None = None,
    placement: Placement = "uniform",
) -> "Trace":
    """Spread the requests of each tick over the time to the next.

    Parameters
    ----------
    trace : Trace
        Requests on a coarse clock.
    rng : numpy.random.Generator
        For the moments within a tick.
    tick_s : float, optional
        Length of a tick in seconds; found if left out.
    placement : {'uniform', 'even'}, default 'uniform'
        Independent uniform moments, or equal gaps. The order of the file is kept.

    Returns
    -------
    Trace
        The same requests, each at most one tick later.

    Raises
    ------
    WorkloadError
        No `tick_s` is given and none is found, or it is not greater than 0.
    """
    if tick_s is None:
        found = find_tick(trace.arrival_s)
        if found is None:
            told = f"no clock found in {trace.provenance['source']}: expected tick_s"
            raise WorkloadError(told)
        tick_s = found.tick_s
    if not 0 < tick_s < float("inf"):
        raise WorkloadError("expected a tick_s greater than 0", value=tick_s)
    moments, tick, counts = np.unique(trace.arrival_s, return_inverse=True, return_counts=True)
    if placement == "uniform":
        part = np.sort(tick + rng.random(len(trace))) - tick
    else:
        first = np.cumsum(counts) - counts
        part = (np.arange(len(trace)) - first[tick] + 0.5) / counts[tick]
    arrival_s = np.sort(moments[tick] + tick_s * part)
    parameters = {"tick_s": tick_s, "placement": placement, "moments": int(moments.size)}
    result = moved(trace, "detick", parameters, arrival_s)
    account = result.provenance
    account["warnings"] = [told for told in account["warnings"] if not told.startswith(WARNING)]
    return result.with_provenance(account)
