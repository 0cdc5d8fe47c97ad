"""Turns what happens in a run into three tables of plain columns: requests, steps, gaps."""

from array import array
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from policies.base import Decision, Mode, Trigger
from simulator.clock import TICKS_PER_SECOND
from simulator.observer import Observer, StepRecord
from simulator.request import Request, State

Columns = dict[str, NDArray[np.generic]]
"""A table: column name to array, all of one length."""

REQUEST_COLUMNS = {
    "request_id": np.int64,
    "arrival_s": np.float64,
    "first_scheduled_s": np.float64,
    "first_token_s": np.float64,
    "last_token_s": np.float64,
    "finish_s": np.float64,
    "prompt_tokens": np.int64,
    "output_tokens": np.int64,
    "target_output_tokens": np.int64,
    "max_tokens": np.int64,
    "recomputed_tokens": np.int64,
    "cached_tokens": np.int64,
    "num_preemptions": np.int64,
    "num_swaps": np.int64,
    "priority": np.int64,
    "tenant": np.str_,
    "state": np.str_,
    "reject_reason": np.str_,
    "replica": np.int64,
}
"""Columns of the requests table. Times not reached are NaN."""

STEP_COLUMNS = {
    "replica": np.int64,
    "start_s": np.float64,
    "end_s": np.float64,
    "num_steps": np.int64,
    "first_step_s": np.float64,
    "last_step_s": np.float64,
    "decode_rows": np.int64,
    "prefill_chunks": np.int64,
    "prefill_tokens": np.int64,
    "context_tokens": np.int64,
    "useful_tokens": np.int64,
    "charged_tokens": np.int64,
    "kv_blocks_used": np.int64,
    "kv_block_s": np.float64,
    "num_waiting": np.int64,
    "num_running": np.int64,
}
"""Columns of the steps table.

A row is a step, or a run of decode steps that follow each other with the same rows and queues.
Token columns are sums over the run, `kv_blocks_used` is its largest value and `kv_block_s` its
integral over time.
"""

GAP_COLUMNS = {"time_s": np.float64, "gap_s": np.float64, "count": np.int64}
"""Columns of the gaps table: `count` tokens came at `time_s`, `gap_s` after their predecessor."""


class TableRecorder(Observer):
    """Keeps the three tables of one replica.

    Parameters
    ----------
    output_tokens : dict
        Request number to the output length it asks for.
    replica : int
        Number of the replica.
    """

    def __init__(self, output_tokens: dict[int, int], replica: int = 0) -> None:
        self._output_tokens = output_tokens
        self._replica = replica
        self._requests: list[tuple[object, ...]] = []
        self._steps: list[tuple[object, ...]] = []
        self._gap_times = array("d")
        self._gaps = array("d")
        self._gap_counts = array("q")
        self._run: StepRecord | None = None

    def on_step(self, step: StepRecord) -> None:
        """Add a row to the steps table, or lengthen the last one."""
        if self._run is not None and self._run.goes_on(step):
            self._run = self._run.joined(step)
        else:
            self._close_run()
            self._run = step

    def _close_run(self) -> None:
        run, self._run = self._run, None
        if run is None:
            return
        self._steps.append(
            (
                self._replica,
                run.start,
                run.end,
                run.num_steps,
                run.first_step,
                run.last_step,
                run.num_decodes,
                run.num_chunks,
                run.chunk_tokens,
                run.context_tokens,
                run.num_decodes * run.num_steps + run.chunk_tokens,
                run.charged_tokens,
                run.kv_used,
                run.kv_block_ticks / TICKS_PER_SECOND,
                run.num_waiting,
                run.num_running,
            )
        )

    def on_gaps(self, now: float, gaps: dict[float, int]) -> None:
        """Add rows to the gaps table."""
        for gap in sorted(gaps) if len(gaps) > 1 else gaps:
            self._gap_times.append(now)
            self._gaps.append(gap)
            self._gap_counts.append(gaps[gap])

    def on_gap_run(self, times: Sequence[float], gaps: Sequence[float], count: int) -> None:
        """Add a row for each step."""
        self._gap_times.extend(times)
        self._gaps.extend(gaps)
        self._gap_counts.extend([count] * len(times))

    def on_leave(self, request: Request, now: float) -> None:
        """Add a row to the requests table."""
        self._requests.append(self._row(request))

    def tables(self, unfinished: Iterable[Request] = ()) -> dict[str, Columns]:
        """Return the tables; requests that never left are rows too, without a finish time."""
        self._close_run()
        rows = self._requests + [self._row(request) for request in unfinished]
        rows.sort(key=lambda row: row[0])  # type: ignore[arg-type, return-value]
        return {
            "requests": _columns(rows, REQUEST_COLUMNS),
            "steps": _columns(self._steps, STEP_COLUMNS),
            "gaps": {
                name: np.array(column, dtype)
                for (name, dtype), column in zip(
                    GAP_COLUMNS.items(),
                    (self._gap_times, self._gaps, self._gap_counts),
                    strict=True,
                )
            },
        }

    def _row(self, request: Request) -> tuple[object, ...]:
        left = request.state in (State.FINISHED, State.REJECTED, State.ABORTED)
        return (
            request.id,
            request.arrival,
            _or_nan(request.first_scheduled),
            _or_nan(request.first_token),
            _or_nan(request.last_token),
            _or_nan(request.finish),
            request.prompt_tokens,
            request.generated if request.first_token is not None else 0,
            self._output_tokens[request.id],
            request.max_tokens,
            request.recomputed_tokens,
            request.cached_tokens,
            request.preemptions,
            request.swaps,
            request.priority,
            request.tenant,
            request.state.value if left else "unfinished",
            request.reject_reason,
            self._replica,
        )


def merge_tables(replicas: Sequence[dict[str, Columns]]) -> dict[str, Columns]:
    """Return the tables of several replicas as one: requests by number, the rest by time."""
    if len(replicas) == 1:
        return replicas[0]
    keys = {"requests": "request_id", "steps": "start_s", "gaps": "time_s"}
    merged: dict[str, Columns] = {}
    for name, key in keys.items():
        columns = {
            column: np.concatenate([tables[name][column] for tables in replicas])
            for column in replicas[0][name]
        }
        order = np.argsort(columns[key], kind="stable")
        merged[name] = {column: values[order] for column, values in columns.items()}
    return merged


class DecisionLog(Observer):
    """Lists every decision that did something other than the one before.

    A decision that repeats the last one (the same work, nobody moved) adds no line, so that the
    log does not depend on how often a policy was asked.

    Examples
    --------
    >>> log = DecisionLog()
    >>> log.on_decision(0.0, Trigger.ARRIVAL, Decision(admit=(0,)), [(0, 5)])
    >>> log.lines
    ['0.000000000 admit 0 | 0:5']
    """

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._last: list[str] = []

    def on_decision(
        self, now: float, trigger: Trigger, decision: Decision, work: list[tuple[int, int]]
    ) -> None:
        """Write one line for a decision that is not empty."""
        parts = [f"reject {rid}" for rid, _ in decision.reject]
        words = {Mode.RECOMPUTE: "preempt", Mode.SWAP: "swap out"}
        parts += [f"{words[mode]} {rid}" for rid, mode in decision.preempt]
        parts += [f"swap in {rid}" for rid in decision.swap_in]
        parts += [f"admit {rid}" for rid in decision.admit]
        if work:
            parts.append("| " + " ".join(f"{rid}:{tokens}" for rid, tokens in work))
        if parts and parts != self._last:
            self.lines.append(f"{now:.9f} {' '.join(parts)}")
            self._last = parts


def _or_nan(time: float | None) -> float:
    return float("nan") if time is None else time


def _columns(rows: Sequence[tuple[object, ...]], types: Mapping[str, type]) -> Columns:
    columns = zip(*rows, strict=True) if rows else ((),) * len(types)
    return {
        name: np.array(column, dtype=dtype)
        for (name, dtype), column in zip(types.items(), columns, strict=True)
    }
