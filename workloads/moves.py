"""Arrivals moved in time, and what moves with them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from workloads.base import FloatArray, IntArray
from workloads.errors import WorkloadError, check_rate

if TYPE_CHECKING:
    from workloads.trace import Trace


def moved(
    trace: "Trace",
    transform: str,
    parameters: Mapping[str, object],
    arrival_s: FloatArray,
    factor: float = 1.0,
) -> "Trace":
    """Return a trace with other arrivals.

    Parameters
    ----------
    trace : Trace
        The requests.
    transform : str
        Name for the account.
    parameters : mapping
        Parameters for the account.
    arrival_s : array of float
        The new arrivals, ascending.
    factor : float, default 1
        By which think times grow. Deadlines leave each request as much time as before.
    """
    changed = follow(trace, np.arange(len(trace)), arrival_s)
    if "think_s" in trace.columns:
        changed["think_s"] = trace.columns["think_s"] * factor
    return trace.derive(transform, parameters, **changed)


def follow(trace: "Trace", rows: IntArray, arrival_s: FloatArray) -> dict[str, Any]:
    """Return the columns that change when some rows arrive at other times."""
    changed: dict[str, Any] = {"arrival_s": arrival_s}
    if "deadline" in trace.columns:
        changed["deadline"] = trace.columns["deadline"][rows] + arrival_s - trace.arrival_s[rows]
    return changed


def rescale(trace: "Trace", request_rate: float) -> "Trace":
    """Stretch or shrink time to a mean rate; see `Trace.rescale`."""
    check_rate(request_rate)
    if not trace.span_s > 0:
        raise WorkloadError(
            f"expected arrivals at two moments at least in {trace.provenance['source']}"
        )
    factor = trace.rate / request_rate
    parameters = {"request_rate": request_rate, "factor": factor}
    return moved(trace, "rescale", parameters, trace.arrival_s * factor, factor)


def time_warp(trace: "Trace", speed: float) -> "Trace":
    """Run the clock faster: every time is divided by `speed`.

    The gaps keep their CV, but bursts, silences, drifts and think times shrink alike.

    Examples
    --------
    >>> from workloads import Trace
    >>> time_warp(Trace([0.0, 3.0], [1, 1], [1, 1]), 2.0).arrival_s.tolist()
    [0.0, 1.5]
    """
    if not 0 < speed < float("inf"):
        raise WorkloadError("expected a time_warp greater than 0", value=speed)
    return moved(trace, "time_warp", {"speed": speed}, trace.arrival_s / speed, 1 / speed)
