import pytest
from pydantic import TypeAdapter, ValidationError

from workloads import (
    WORKLOADS,
    PresetWorkload,
    Streams,
    SyntheticWorkload,
    TraceWorkload,
    WorkloadError,
    WorkloadSpec,
    parse_workload,
)

SYNTHETIC = {
    "arrivals": {"kind": "gamma", "request_rate": 8, "burstiness": 0.5},
    "prompt_tokens": {"kind": "lognormal", "mean": 512, "cv": 1.2},
    "output_tokens": {"kind": "lognormal", "mean": 128, "cv": 1.0},
    "num_requests": 200,
}
CSV = """TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:15:46.0,374,44
2023-11-16 18:15:50.0,3960,109
2023-11-16 18:15:52.0,30,5
"""


@pytest.fixture
def path(write):
    return write(CSV)


def test_kind_is_found(path):
    assert isinstance(parse_workload(SYNTHETIC), SyntheticWorkload)
    assert isinstance(parse_workload({"path": path}), TraceWorkload)
    assert isinstance(parse_workload({"name": "demo-chat"}), PresetWorkload)
    assert isinstance(parse_workload(parse_workload(SYNTHETIC)), SyntheticWorkload)


def test_spec_survives_a_round_trip_through_json(path):
    for data in (SYNTHETIC, {"path": path, "request_rate": 2}, {"name": "demo-chat"}):
        spec = parse_workload(data)
        assert parse_workload(spec.model_dump(mode="json")) == spec
        assert hash(spec) == hash(parse_workload(data))


def test_synthetic_workload_is_built():
    trace = parse_workload(SYNTHETIC).build(Streams(1))
    assert len(trace) == 200
    assert trace.max_tokens.tolist() == trace.output_tokens.tolist()


def test_recorded_times_are_kept_without_a_rate(path):
    assert parse_workload({"path": path}).build(Streams(1)).arrival_s.tolist() == [0.0, 4.0, 6.0]


def test_trace_meets_the_rate_whatever_is_left_out(path):
    data = {"path": path, "request_rate": 5, "num_requests": 3, "on_overlong": "drop"}
    trace = parse_workload(data).build(Streams(1), max_model_len=2048)
    assert len(trace) == 2
    assert trace.rate == pytest.approx(5.0, rel=1e-12)
    assert trace.provenance["dropped"] == {"limit_context": 1}


def test_overlong_request_is_an_error_that_names_its_line(path):
    with pytest.raises(WorkloadError, match=r"request 1 \(line 3\) of trace.csv has 3960 prompt"):
        parse_workload({"path": path}).build(Streams(1), max_model_len=2048)


def test_overlong_request_beyond_the_rows_used_does_not_matter(path):
    trace = parse_workload({"path": path, "num_requests": 1}).build(Streams(1), 2048)
    assert len(trace) == 1


@pytest.mark.parametrize("how", ["drop", "clip"])
def test_overlong_synthetic_requests_are_counted(how):
    workload = parse_workload(SYNTHETIC | {"on_overlong": how})
    trace = workload.build(Streams(1), max_model_len=600)
    step = trace.provenance["transforms"][0]
    assert step["too_long"] > 0
    assert (trace.prompt_tokens + trace.max_tokens).max() <= 600
    assert len(trace) == (200 if how == "clip" else 200 - step["too_long"])


def test_more_requests_than_rows_is_an_error(path):
    with pytest.raises(WorkloadError, match=r"got 4, expected a num_requests from 1 to the 3"):
        parse_workload({"path": path, "num_requests": 4}).build(Streams(1))


def test_caps_are_set_after_the_limit():
    workload = parse_workload({"name": "demo-chat", "max_tokens": {"kind": "room"}})
    trace = workload.build(Streams(1), max_model_len=8192)
    assert (trace.prompt_tokens + trace.max_tokens).tolist() == [8192] * 500


def test_lenient_trace_drops_and_counts(write):
    path = write(CSV + "never,1,1\n")
    with pytest.raises(WorkloadError, match="line 5"):
        parse_workload({"path": path}).build(Streams(1))
    trace = parse_workload({"path": path, "strict": False}).build(Streams(1))
    assert trace.provenance["dropped"] == {"TIMESTAMP: not a time": 1}


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({}, "arrivals"),
        ({"kind": "half-open"}, "synthetic"),
        (SYNTHETIC | {"num_requests": 0}, "num_requests"),
        (SYNTHETIC | {"requests": 5}, "requests"),
        (SYNTHETIC | {"arrivals": {"request_rate": 0}}, "request_rate"),
        ({"path": "a.csv", "request_rate": 0}, "request_rate"),
        ({"path": "a.csv", "on_overlong": "ignore"}, "on_overlong"),
        ({"name": "azure-conv"}, "azure-conv-2023"),
        ({"name": "demo-chat", "request_rate": 0}, "request_rate"),
        ("demo-chat", "valid"),
    ],
)
def test_nonsense_is_refused_by_name(data, field):
    with pytest.raises(ValidationError, match=field):
        parse_workload(data)


def test_table_and_union_name_the_same_kinds():
    mapping = TypeAdapter(WorkloadSpec).json_schema()["discriminator"]["mapping"]
    assert set(mapping) == {spec.model_fields["kind"].default for spec in WORKLOADS}
