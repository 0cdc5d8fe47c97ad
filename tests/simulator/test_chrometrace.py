"""The Chrome trace: what the viewer's importer asks for, and that it tells the run."""

import gzip
import json
from collections import defaultdict
from pathlib import Path

import pytest

from simulator import RunSpec, UserError, simulate
from simulator.chrometrace import check_path, trace_events, write_trace
from simulator.lifelines import Lifelines, spans_of

REQUIRED = {
    "M": {"name", "pid", "args"},
    "X": {"name", "pid", "tid", "ts", "dur"},
    "C": {"name", "pid", "ts", "args"},
    "b": {"name", "pid", "ts", "id2", "cat"},
    "e": {"name", "pid", "ts", "id2", "cat"},
}
"""Phase of an event to the fields without which an importer drops it."""


@pytest.fixture(scope="module", params=["plain", "replicas", "async"])
def traced(request: pytest.FixtureRequest) -> tuple:
    engine = {
        "plain": {"num_blocks": 900},
        "replicas": {"num_replicas": 2, "num_blocks": 900},
        "async": {"async_scheduling": True},
    }[request.param]
    workload = {"name": "azure-conv-2023", "num_requests": 50, "request_rate": 16}
    watch = Lifelines()
    spec = RunSpec.from_dict({"workload": workload, "policy": "vllm-v1", "engine": engine})
    result = simulate(spec, observers=[watch])
    spans = spans_of(result.tables, watch)
    return result, spans, json.loads(json.dumps(trace_events(result, spans), allow_nan=False))


def test_every_event_has_what_its_kind_needs(traced: tuple) -> None:
    events = traced[2]["traceEvents"]
    assert {event["ph"] for event in events} == set(REQUIRED)
    for event in events:
        assert REQUIRED[event["ph"]] <= event.keys()
        assert event.get("ts", 0) >= 0
    times = [event["ts"] for event in events if "ts" in event]
    assert times == sorted(times)


def test_steps_are_slices_that_do_not_overlap(traced: tuple) -> None:
    result, _, trace = traced
    steps = result.tables["steps"]
    slices = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert len(slices) == len(steps["start_s"])
    assert slices[0]["ts"] == pytest.approx(steps["start_s"][0] * 1e6, abs=1e-3)
    end: dict[int, float] = defaultdict(float)
    for event in slices:
        assert event["ts"] >= end[event["pid"]] - 1e-6
        end[event["pid"]] = event["ts"] + event["dur"]
    kinds = {
        (e["args"]["decode_rows"] > 0, e["args"]["prefill_chunks"] > 0): e["name"] for e in slices
    }
    assert (
        kinds.items()
        <= {
            (True, False): "decode",
            (False, True): "prefill",
            (True, True): "mixed",
        }.items()
    )


def test_counters_follow_the_steps_and_end_at_zero(traced: tuple) -> None:
    counters = defaultdict(list)
    for event in traced[2]["traceEvents"]:
        if event["ph"] == "C":
            counters[event["pid"], event["name"]].append(*event["args"].values())
    assert {name for _, name in counters} == {"batch size", "waiting", "KV blocks"}
    assert all(values[-1] == 0 and max(values) >= 0 for values in counters.values())
    assert max(counters[1, "batch size"]) > 1


def number(event: dict) -> int:
    """Return the request that an asynchronous event belongs to."""
    return int(event["id2"]["local"], 16)


def test_requests_are_nested_slices_that_balance(traced: tuple) -> None:
    result, spans, trace = traced
    stacks: dict[int, list[str]] = defaultdict(list)
    seen = defaultdict(set)
    for event in trace["traceEvents"]:
        if event["ph"] == "b":
            stacks[number(event)].append(event["name"])
            seen[number(event)].add(event["name"])
        elif event["ph"] == "e":
            assert stacks[number(event)].pop() == event["name"]
    assert not any(stacks.values())
    assert len(seen) == result.metrics["num_requests"]
    for rid, names in seen.items():
        assert names == {f"request {rid:02d}", *(span.phase for span in spans[rid])}
    if result.metrics["num_preemptions"]:
        assert any("preempted" in names for names in seen.values())


def test_compressed_and_plain_files_hold_the_same(traced: tuple, tmp_path: Path) -> None:
    result, spans, trace = traced
    for name in ("t.json", "t.json.gz", "again.json.gz"):
        write_trace(tmp_path / name, result, spans)
    assert json.loads((tmp_path / "t.json").read_bytes()) == trace
    packed = (tmp_path / "t.json.gz").read_bytes()
    assert gzip.decompress(packed) == (tmp_path / "t.json").read_bytes()
    assert packed == (tmp_path / "again.json.gz").read_bytes()


def test_a_wrong_place_is_refused_before_the_run(tmp_path: Path) -> None:
    (tmp_path / "there.json").touch()
    for name, message in {
        "t.txt": "expected a name that ends in .json or .json.gz",
        "none/t.json": "there is no folder",
        "there.json": "exists already",
    }.items():
        with pytest.raises(UserError, match=message):
            check_path(tmp_path / name, force=False)
    check_path(tmp_path / "there.json", force=True)
