"""A run as Chrome trace events, for Perfetto (ui.perfetto.dev) and chrome://tracing.

One process a replica: a slice a step, counters for batch size, queue and KV blocks, and a track a
request with its phases. Times are microseconds of the simulated clock, to the nanosecond.
"""

import gzip
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.errors import UserError
from simulator.lifelines import Span
from simulator.whole_file import whole_file

if TYPE_CHECKING:
    from simulator.result import Result

Event = dict[str, Any]

STEPS = 1
"""Thread number of the steps of a replica. Its process number is its own + 1: to viewers, process 0
is that of an operating system."""

_KINDS = ("empty", "prefill", "decode", "mixed")


def trace_events(result: "Result", spans: dict[int, list[Span]]) -> dict[str, Any]:
    """Return a run in the JSON object format of the Trace Event Format.

    Parameters
    ----------
    result : Result
    spans : dict of int to list of Span
        Request number to what it did (`simulator.lifelines.spans_of`).

    Returns
    -------
    dict
        `traceEvents` in order of time, `displayTimeUnit`, and in `otherData` where it comes from.

    References
    ----------
    Trace Event Format: `M` metadata, `X` complete slices, `C` counters, `b` and `e` nestable
    asynchronous slices.

    Examples
    --------
    >>> from simulator import RunSpec, simulate
    >>> spec = RunSpec(
    ...     workload={"arrivals": 1, "prompt_tokens": 4, "output_tokens": 2, "num_requests": 1},
    ...     cost={"kind": "fixed", "step_ms": 500})
    >>> trace = trace_events(simulate(spec), {})
    >>> [(e["name"], e["dur"]) for e in trace["traceEvents"] if e["ph"] == "X"]
    [('prefill', 500000.0), ('decode', 500000.0)]
    """
    names = [
        event
        for replica in range(result.spec.engine.num_replicas)
        for event in (
            _meta(replica, "process_name", f"replica {replica}"),
            _meta(replica, "thread_name", "steps"),
        )
    ]
    events = [*_steps(result), *_requests(result, spans)]
    events.sort(key=lambda event: event["ts"])  # stable: ends stand before begins
    return {
        "traceEvents": names + events,
        "displayTimeUnit": "ms",
        "otherData": {
            "policy": result.spec.policy_kind,
            "spec_sha256": result.spec.content_hash(),
            "workload": result.trace.provenance["source"],
        },
    }


def write_trace(path: Path, result: "Result", spans: dict[int, list[Span]]) -> None:
    """Write a run as a Chrome trace; a name that ends in .gz is compressed.

    Raises
    ------
    UserError
        If the file cannot be written.
    """
    text = json.dumps(trace_events(result, spans), separators=(",", ":"), allow_nan=False)
    data = text.encode()
    with whole_file(path) as file:
        file.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def check_path(path: Path, *, force: bool) -> None:
    """Check before a run that its trace may be written.

    Raises
    ------
    UserError
        If the name does not end in .json or .json.gz, the folder is missing, or the file exists.
    """
    if not path.name.endswith((".json", ".json.gz")):
        raise UserError(f"--chrome-trace {path}: expected a name that ends in .json or .json.gz")
    if not path.parent.is_dir():
        raise UserError(f"--chrome-trace {path}: there is no folder {path.parent}")
    if path.exists() and not force:
        raise UserError(f"{path}: exists already; choose another name or add --force")


def _meta(replica: int, what: str, name: str) -> Event:
    return {"ph": "M", "name": what, "pid": replica + 1, "tid": STEPS, "args": {"name": name}}


def _us(seconds: float) -> float:
    """Return microseconds, to the nanosecond.

    Examples
    --------
    >>> _us(0.0000123456)
    12.346
    """
    return round(seconds * 1e9) / 1e3


def _steps(result: "Result") -> list[Event]:
    """Return the steps as slices, and the counters that change with them."""
    table = result.tables["steps"]
    names = list(table)
    events: list[Event] = []
    ends: dict[int, float] = {}
    for row in zip(*(table[name].tolist() for name in names), strict=True):
        step = dict(zip(names, row, strict=True))
        replica, start, end = step.pop("replica"), _us(step.pop("start_s")), _us(step.pop("end_s"))
        if start > ends.get(replica, start):
            events += _counters(replica, ends[replica])
        rows = step["decode_rows"] + step["prefill_chunks"]
        waiting, used = step["num_waiting"], step["kv_blocks_used"]
        events += _counters(replica, start, rows, waiting, used)
        events.append(
            {
                "ph": "X",
                "name": _KINDS[2 * bool(step["decode_rows"]) + bool(step["prefill_chunks"])],
                "cat": "step",
                "pid": replica + 1,
                "tid": STEPS,
                "ts": start,
                "dur": round(end - start, 3),
                "args": {"batch_size": rows} | step,
            }
        )
        ends[replica] = end
    for replica, end in ends.items():
        events += _counters(replica, end)
    return events


def _counters(
    replica: int, ts: float, rows: int = 0, waiting: int = 0, used: int = 0
) -> list[Event]:
    values = {"batch size": rows, "waiting": waiting, "KV blocks": used}
    return [
        {"ph": "C", "name": name, "pid": replica + 1, "ts": ts, "args": {name: value}}
        for name, value in values.items()
    ]


def _requests(result: "Result", spans: dict[int, list[Span]]) -> list[Event]:
    """Return a track for every request: one slice for all of it, one within for every phase."""
    table = result.tables["requests"]
    told = ("prompt_tokens", "output_tokens", "cached_tokens", "num_preemptions", "state")
    digits = len(str(max(spans, default=0)))  # viewers sort the tracks by name
    events: list[Event] = []
    for row, rid in enumerate(table["request_id"].tolist()):
        found = spans.get(rid)
        if not found:
            continue
        common = {
            "cat": "request",
            "id2": {"local": hex(rid)},
            "pid": int(table["replica"][row]) + 1,
            "tid": STEPS,
        }
        args = {name: table[name][row].item() for name in told}
        whole = Span(f"request {rid:0{digits}d}", found[0].start, found[-1].end)
        events.append(_edge("b", whole.phase, whole.start, common) | {"args": args})
        for span in found:
            events.append(_edge("b", span.phase, span.start, common))
            events.append(_edge("e", span.phase, span.end, common))
        events.append(_edge("e", whole.phase, whole.end, common))
    return events


def _edge(ph: str, name: str, seconds: float, common: Event) -> Event:
    return {"ph": ph, "name": name, "ts": _us(seconds)} | common
