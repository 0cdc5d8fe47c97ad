"""Turns what happens in a run into three tables of plain columns: requests, steps, gaps."""

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter

import numpy as np

from policies.base import Decision, Mode, Trigger
from simulator.clock import TICKS_PER_SECOND
from simulator.columns import BLOCK, Columns, NumberStore, RowStore, Sink
from simulator.observer import Observer, StepRecord
from simulator.request import Outputs, Request, State

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

_ATTRIBUTES = {
    "request_id": "id",
    "arrival_s": "arrival",
    "first_scheduled_s": "first_scheduled",
    "first_token_s": "first_token",
    "last_token_s": "last_token",
    "finish_s": "finish",
    "output_tokens": "generated",
    "num_preemptions": "preemptions",
    "num_swaps": "swaps",
    "state": "state._value_",
}
"""Attributes of a request that are not called like their columns."""
_REQUEST_FIELDS = {
    name: dtype
    for name, dtype in REQUEST_COLUMNS.items()
    if name not in ("target_output_tokens", "replica")
}
"""What is recorded of a request when it leaves."""
_recorded = attrgetter(*[_ATTRIBUTES.get(name, name) for name in _REQUEST_FIELDS])
_LEFT = {state.value for state in (State.FINISHED, State.REJECTED, State.ABORTED)}

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
    "prefill_pairs": np.float64,
    "prefill_context_tokens": np.int64,
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
integral over time. `prefill_pairs` counts pairs of query and key in the prompt pieces,
`prefill_context_tokens` the tokens they attend to.
"""

_DERIVED = ("replica", "useful_tokens")
_RECORDED = {
    "kv_block_ticks" if name == "kv_block_s" else name: np.int64 if name == "kv_block_s" else dtype
    for name, dtype in STEP_COLUMNS.items()
    if name not in _DERIVED
}
"""The fields of `StepRecord`, in their order, as columns."""

GAP_COLUMNS = {"time_s": np.float64, "gap_s": np.float64, "count": np.int64}
"""Columns of the gaps table: `count` tokens came at `time_s`, `gap_s` after their predecessor."""


class TableRecorder(Observer):
    """Keeps the three tables of one replica.

    Parameters
    ----------
    output_tokens : Outputs
        Output length that each request asks for.
    replica : int
        Number of the replica.
    sinks : dict of str to callable, optional
        By table, what takes rows away while the run goes on; requests come as they leave.
    """

    def __init__(
        self, output_tokens: Outputs, replica: int = 0, sinks: Mapping[str, Sink] | None = None
    ) -> None:
        self._output_tokens = output_tokens
        self._replica = replica
        take = sinks or {}
        self._requests = RowStore(_REQUEST_FIELDS, self._request_columns, take.get("requests"))
        self._steps = RowStore(_RECORDED, self._step_columns, take.get("steps"))
        self._gaps = NumberStore(GAP_COLUMNS, take.get("gaps"))
        self._run: StepRecord | None = None

    def on_step(self, step: StepRecord) -> None:
        """Add a row to the steps table, or lengthen the last one."""
        run = self._run
        if run is None:
            self._run = step
        elif step.num_chunks == 0 and run.goes_on(step):
            self._run = run.joined(step)
        else:
            self._steps.append(run)
            self._run = step

    def on_gaps(self, now: float, gaps: dict[float, int]) -> None:
        """Add rows to the gaps table."""
        times, lengths, counts = self._gaps.lists
        for gap in sorted(gaps) if len(gaps) > 1 else gaps:
            times.append(now)
            lengths.append(gap)
            counts.append(gaps[gap])
        if len(times) >= BLOCK:
            self._gaps.settle()

    def on_gap_run(self, times: Sequence[float], gaps: Sequence[float], count: int) -> None:
        """Add a row for each step."""
        columns = self._gaps.lists
        columns[0] += times
        columns[1] += gaps
        columns[2] += [count] * len(times)

    def on_leave(self, request: Request, now: float) -> None:
        """Add a row to the requests table."""
        self._requests.append(_recorded(request))

    def tables(self, unfinished: Iterable[Request] = ()) -> dict[str, Columns]:
        """Return what is kept of the tables.

        Requests that never left are rows too, without a finish time.
        """
        requests = self._requests.columns([_recorded(request) for request in unfinished])
        order = np.argsort(requests["request_id"], kind="stable")
        return {
            "requests": {name: column[order] for name, column in requests.items()},
            "steps": self._steps.columns([] if self._run is None else [self._run]),
            "gaps": self._gaps.columns(),
        }

    def _step_columns(self, recorded: Columns) -> Columns:
        num_steps, rows = recorded["num_steps"], recorded["decode_rows"]
        derived: Columns = {
            "replica": np.full(len(num_steps), self._replica, np.int64),
            "useful_tokens": rows * num_steps + recorded["prefill_tokens"],  # type: ignore[operator]
            "kv_block_s": recorded["kv_block_ticks"] / TICKS_PER_SECOND,  # type: ignore[operator]
        }
        return {name: {**recorded, **derived}[name] for name in STEP_COLUMNS}

    def _request_columns(self, recorded: Columns) -> Columns:
        ids = recorded["request_id"].tolist()
        states: list[str] = recorded["state"].tolist()
        outputs, began = self._output_tokens, ~np.isnan(recorded["first_token_s"])
        derived: Columns = {
            "output_tokens": recorded["output_tokens"] * began,
            "target_output_tokens": np.array([outputs[rid] for rid in ids], np.int64),
            "state": np.array([s if s in _LEFT else "unfinished" for s in states], np.str_),
            "replica": np.full(len(ids), self._replica, np.int64),
        }
        return {name: {**recorded, **derived}[name] for name in REQUEST_COLUMNS}


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
