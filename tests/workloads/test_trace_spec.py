import json

import numpy as np
import pytest
from pydantic import ValidationError

from workloads import Streams, WorkloadError, parse_workload

HEAD = "arrival_s,prompt_tokens,output_tokens,tenant,conversation\n"
ROWS = "".join(f"{i},{10 + i},{1 + i},{'ab'[i % 2]},c{i // 2}\n" for i in range(20))


@pytest.fixture
def path(write):
    return write(HEAD + ROWS)


def build(path, **options):
    return parse_workload({"path": path, **options}).build(Streams(1))


def names(trace):
    return [step["name"] for step in trace.provenance["transforms"]]


def test_all_controls_are_recorded_in_order(path):
    options = {
        "start_s": 2,
        "end_s": 18,
        "tenants": ["a"],
        "detick": "even",
        "tick_s": 0.5,
        "num_requests": 30,
        "loop": True,
        "prompt_scale": 2,
        "max_gap_s": 1.5,
        "thin": 0.5,
    }
    trace = build(path, **options)
    assert names(trace) == ["pick", "detick", "loop", "scale_lengths", "cap_gaps", "thin"]
    account = trace.provenance
    assert account["sha256"]
    assert account["rows_read"] == account["rows_kept"] + sum(account["dropped"].values())
    assert account["added"] == {"loop": 22}


@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"request_rate": 3}, "rescale"),
        ({"time_warp": 2}, "time_warp"),
        ({"thin": 0.5}, "thin"),
        ({"superpose": 2}, "superpose"),
        ({"client_share": 0.9}, "thin_clients"),
        ({"resample_s": 4}, "bootstrap"),
    ],
)
def test_each_way_of_making_another_load(path, options, name):
    assert names(build(path, **options)) == [name]


def test_two_ways_of_changing_the_rate_are_refused(path):
    with pytest.raises(ValidationError, match=r"at most one of .* got request_rate, thin"):
        parse_workload({"path": path, "request_rate": 3, "thin": 0.5})


def test_a_tick_needs_a_placement(path):
    with pytest.raises(ValidationError, match="expected detick to be uniform or even"):
        parse_workload({"path": path, "tick_s": 3})


def test_spec_with_all_fields_survives_a_round_trip(path):
    data = {"path": path, "columns": {"arrival": "t"}, "tenants": ["a"], "superpose": 2}
    spec = parse_workload(data)
    assert parse_workload(spec.model_dump(mode="json")) == spec
    assert hash(spec) == hash(parse_workload(data))


def test_files_without_times_need_arrivals(write):
    path = write("num_prefill_tokens,num_decode_tokens\n5,6\n7,8\n")
    with pytest.raises(WorkloadError, match="no times: expected arrivals"):
        build(path)
    trace = build(path, arrivals=2.0)
    assert trace.prompt_tokens.tolist() == [5, 7]
    assert np.all(np.diff(trace.arrival_s) > 0)


def test_files_with_times_refuse_arrivals(path):
    with pytest.raises(WorkloadError, match="times of its own: expected no arrivals"):
        build(path, arrivals=2.0)


def test_columns_of_generic_files_are_mapped(write):
    path = write("t,in,out\n0,5,6\n1500,7,8\n")
    columns = {"arrival": "t", "prompt_tokens": "in", "output_tokens": "out"}
    trace = build(path, format="csv", columns=columns, time_unit="ms")
    assert trace.arrival_s.tolist() == [0.0, 1.5]


def test_capped_client_sends_the_next_request_when_one_finishes(path):
    workload = parse_workload({"path": path, "max_concurrency": 2})
    with pytest.raises(WorkloadError, match="arrivals depend on completions"):
        workload.build(Streams(1))
    source = workload.source(Streams(1))
    assert [request.id for request in source.start()] == [0, 1]
    assert [(r.id, r.arrival) for r in source.on_finish(1, 1.25)] == [(2, 2.0)]
    assert [(r.id, r.arrival) for r in source.on_finish(0, 7.5)] == [(3, 7.5)]
    assert len(source.table) == 20


def test_closed_turns_wait_for_the_answer(path):
    workload = parse_workload({"path": path, "turns": "closed"})
    with pytest.raises(WorkloadError, match="arrivals depend on completions"):
        workload.build(Streams(1))
    source = workload.source(Streams(1))
    assert [request.id for request in source.start()] == list(range(0, 20, 2))
    assert [(r.id, r.arrival) for r in source.on_finish(0, 4.5)] == [(1, 4.5)]
    with pytest.raises(ValidationError, match="max_concurrency"):
        parse_workload({"path": path, "turns": "closed", "max_concurrency": 2})


def test_conversations_without_a_clock_get_starts_and_keep_think_times(write, tmp_path):
    entries = [
        {"t": 0, "in": 100, "out": 5, "hash_ids": [1]},
        {"t": 9, "in": 200, "out": 5, "hash_ids": [1, 2, 3], "think_time": 4.0},
    ]
    for name in "abc":
        document = {"block_size": 64, "hash_id_scope": "local", "requests": entries}
        write(json.dumps(document), f"{name}.json")
    data = {"path": tmp_path, "arrivals": {"kind": "deterministic", "request_rate": 0.1}}
    source = parse_workload(data | {"turns": "closed"}).source(Streams(1))
    first = source.start()
    assert [request.arrival for request in first] == [10.0, 20.0, 30.0]
    (second,) = source.on_finish(first[0].id, 12.5)
    assert (second.arrival, second.prompt_tokens, second.turn) == (16.5, 200, 1)
    assert second.block_ids[0] == first[0].block_ids[0]
