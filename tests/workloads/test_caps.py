import pytest
from pydantic import TypeAdapter, ValidationError

from workloads import CAPS, CapSpec, Trace, WorkloadError

SPEC = TypeAdapter(CapSpec)


@pytest.fixture
def trace() -> Trace:
    return Trace([0.0, 1.0], [100, 200], [10, 21])


@pytest.mark.parametrize(
    ("data", "caps"),
    [
        ({}, [10, 21]),
        (64, [64, 64]),
        ({"factor": 1.5}, [15, 32]),
        ({"factor": 1.1}, [11, 24]),
        ({"kind": "room"}, [924, 824]),
        ({"at_most": 900}, [900, 824]),
    ],
)
def test_caps_follow_the_rule(trace, data, caps):
    capped = SPEC.validate_python(data).apply(trace, 1024)
    assert capped.max_tokens.tolist() == caps
    assert capped.output_tokens.tolist() == [10, 21]


def test_caps_never_exceed_the_room(trace):
    assert SPEC.validate_python(900).apply(trace, 1024).max_tokens.tolist() == [900, 824]


def test_a_cap_below_the_output_is_an_error(trace):
    with pytest.raises(WorkloadError, match="max_tokens of request 1"):
        SPEC.validate_python(20).apply(trace, None)


def test_room_needs_a_context(trace):
    with pytest.raises(WorkloadError, match="max_model_len"):
        SPEC.validate_python({"kind": "room"}).apply(trace, None)


@pytest.mark.parametrize("data", [0, {"factor": 0.5}, {"kind": "none"}, {"tokens": 5, "x": 1}])
def test_nonsense_is_refused(data):
    with pytest.raises(ValidationError):
        SPEC.validate_python(data)


def test_table_and_union_name_the_same_kinds():
    mapping = SPEC.json_schema()["discriminator"]["mapping"]
    assert set(mapping) == {cap.model_fields["kind"].default for cap in CAPS}
