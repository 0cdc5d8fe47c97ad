"""Quantities over time, averaged over equal intervals, from the tables of a run."""

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from simulator.errors import UserError
from simulator.metrics import measured_window
from simulator.metrics.utilisation import use_of_steps
from simulator.stats import Floats, overlap

if TYPE_CHECKING:
    from simulator.result import Result


def binned(result: "Result", what: str, bins: int) -> tuple[Floats, Floats]:
    """Return interval edges in seconds and the time average of a quantity in each interval.

    Parameters
    ----------
    result : Result
    what : str
        A key of `simulator.plots.TIMELINES` or `GPU_TIMELINES`, or "running".
    bins : int
        Number of intervals.

    Raises
    ------
    UserError
        If the machine has no GPU and the quantity needs one.
    """
    window = measured_window(result.tables, result.spec.measure)
    edges = np.linspace(window.start, window.end, bins + 1)
    if not window.length:
        return edges, np.zeros(bins)
    steps = result.tables["steps"]
    start, end, held, decodes, chunks = (
        steps[name].astype(np.float64)
        for name in ("start_s", "end_s", "kv_block_s", "decode_rows", "prefill_chunks")
    )
    width = np.diff(edges)
    if what == "num_waiting":
        return edges, per_time(_waiting(result, edges), width)
    if what == "utilisation":
        share = np.full(len(start), 1 / result.spec.engine.num_replicas)
        return edges, per_time(integrate(start, end, share, edges), width)
    if what in ("mfu", "bandwidth"):
        shares = use_of_steps(result.spec, result.tables["steps"])
        if shares is None:
            raise UserError(f"{what}: the cost model {result.spec.cost.kind!r} has no GPU")
        share = shares[what == "bandwidth"] / result.spec.engine.num_replicas
        return edges, per_time(integrate(start, end, share, edges), width)
    if what == "kv_usage":
        total = (result.num_blocks or np.nan) * result.spec.engine.num_replicas
        share = held / (end - start) / total
        return edges, per_time(integrate(start, end, share, edges), width)
    if what == "running":
        return edges, per_time(
            integrate(start, end, steps["num_running"].astype(float), edges), width
        )
    busy = integrate(start, end, np.ones(len(start)), edges)
    rows = integrate(start, end, decodes + chunks, edges)
    return edges, per_time(rows, busy)


def per_time(amount: Floats, time: Floats) -> Floats:
    """Divide by a time; 0 where there is none."""
    quotient: Floats = np.divide(amount, time, out=np.zeros(len(time)), where=time > 0)
    return quotient


def integrate(start: Floats, end: Floats, values: Floats, edges: Floats) -> Floats:
    """Integrate a quantity that holds `values` on [start, end) over each interval.

    The intervals of several replicas may overlap; their values add up.
    """
    times = np.concatenate([start, end])
    order = np.argsort(times, kind="stable")
    rates = np.cumsum(np.concatenate([values, -values])[order])
    times = times[order]
    if not len(times):
        return np.zeros(len(edges) - 1)
    area = np.concatenate([[0.0], np.cumsum(rates[:-1] * np.diff(times))])
    return np.diff(np.interp(edges, times, area))


def _waiting(result: "Result", edges: Floats) -> Floats:
    """Return the seconds of waiting for a first step in each interval, over all requests."""
    table = result.tables["requests"]
    arrival = table["arrival_s"].astype(float)
    until = np.where(
        np.isnan(table["first_scheduled_s"].astype(float)),
        table["finish_s"].astype(float),
        table["first_scheduled_s"].astype(float),
    )
    until = np.nan_to_num(until, nan=edges[-1])
    return np.array([overlap(arrival, until, low, high).sum() for low, high in pairwise(edges)])
