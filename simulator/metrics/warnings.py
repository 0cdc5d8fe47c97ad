"""What changes the reading of the metrics of a run."""

from collections.abc import Mapping

import numpy as np

from simulator.blocks import blocks, num_rows
from simulator.columns import Columns
from simulator.metrics import Metrics, floats, ints
from workloads.trace import Trace


def warnings_of(
    tables: Mapping[str, Columns], trace: Trace, metrics: Metrics, extrapolated_steps: int
) -> list[str]:
    """Return one sentence for each thing that changes the reading of the metrics.

    Parameters
    ----------
    tables : dict
        The tables of the run.
    trace : Trace
        The workload.
    metrics : dict
        The figures that are read.
    extrapolated_steps : int
        Steps outside the calibrated range of the cost model.
    """
    provenance, requests = trace.provenance, tables["requests"]
    found = list(provenance["warnings"])
    if provenance["dropped"]:
        reasons = ", ".join(f"{number} {name}" for name, number in provenance["dropped"].items())
        found.append(f"rows of the workload were left out: {reasons}")
    waiting = _waiting_at_last_arrival(requests)
    if waiting >= max(20, 0.05 * num_rows(requests)):
        found.append(
            f"overload: {waiting} of {metrics['num_requests']} requests still waited when the "
            "last one arrived; latencies grow with the length of the run"
        )
    if metrics["unfinished"]:
        found.append(
            f"{metrics['unfinished']} of {metrics['num_requests']} requests were not finished "
            "when the run was cut; latencies are of those that got there"
        )
    if metrics["rejected"]:
        found.append(f"{metrics['rejected']} requests were rejected; they count as misses")
    early = _early_turns(requests, trace)
    if early:
        found.append(
            f"{early} turns of conversations arrived before the answer to the turn before was "
            "complete; open replay does not wait for answers"
        )
    if extrapolated_steps:
        found.append(
            f"{extrapolated_steps} of {metrics['num_steps']} steps lie outside the "
            "calibrated range of the cost model"
        )
    return found


def _waiting_at_last_arrival(requests: Columns) -> int:
    """Return how many requests had not been scheduled when the last one arrived."""
    last = max(
        float(floats(block, "arrival_s").max(initial=-np.inf))
        for block in blocks(requests, ["arrival_s"])
    )
    number = 0
    for block in blocks(requests, ("first_scheduled_s", "state")):
        scheduled = floats(block, "first_scheduled_s")
        later = np.isnan(scheduled) | (scheduled > last)
        number += int(np.count_nonzero(later & (block["state"] != "rejected")))
    return number


def _early_turns(requests: Columns, trace: Trace) -> int:
    """Return how many turns arrived before the one before them was answered."""
    if "conversation" not in trace.columns or "turn" not in trace.columns:
        return 0
    arrival, answered = np.full((2, len(trace)), np.nan)
    for block in blocks(requests, ("request_id", "arrival_s", "last_token_s")):
        rows = ints(block, "request_id")
        arrival[rows], answered[rows] = floats(block, "arrival_s"), floats(block, "last_token_s")
    rows = np.flatnonzero(~np.isnan(arrival))
    talk, turn = trace.columns["conversation"][rows], trace.columns["turn"][rows]
    order = np.lexsort((turn, talk))
    follows = (talk[order][1:] == talk[order][:-1]) & (talk[order][1:] >= 0)
    is_early = arrival[rows][order][1:] < answered[rows][order][:-1]
    return int(np.count_nonzero(follows & is_early))
