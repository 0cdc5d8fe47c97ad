import math

import pytest

from workloads import RequestSpec, WorkloadError


def test_cap_defaults_to_the_output():
    assert RequestSpec(0, 0.0, 10, 7).max_tokens == 7
    assert RequestSpec(0, 0.0, 10, 7, max_tokens=9).max_tokens == 9


def test_request_is_immutable():
    with pytest.raises(AttributeError):
        RequestSpec(0, 0.0, 10, 7).priority = 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("arrival", -1.0),
        ("arrival", math.nan),
        ("arrival", math.inf),
        ("prompt_tokens", 0),
        ("output_tokens", 0),
        ("max_tokens", 6),
        ("size", 0),
    ],
)
def test_value_out_of_range_is_refused_by_name(field, value):
    row = {"id": 5, "arrival": 0.0, "prompt_tokens": 10, "output_tokens": 7} | {field: value}
    with pytest.raises(WorkloadError, match=f"{field} of request 5"):
        RequestSpec(**row)


def test_a_chain_needs_a_block_size():
    assert RequestSpec(0, 0.0, 10, 7, block_ids=(1,), id_block_size=16).block_ids == (1,)
    with pytest.raises(WorkloadError, match="id_block_size of request 0"):
        RequestSpec(0, 0.0, 10, 7, block_ids=(1,))
