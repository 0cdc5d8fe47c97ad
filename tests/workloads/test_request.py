import inspect
import math
import pickle
from copy import copy, deepcopy

import pytest

from workloads import RequestSpec, Trace, WorkloadError
from workloads.columns import OPTIONAL


def test_cap_defaults_to_the_output():
    assert RequestSpec(0, 0.0, 10, 7).max_tokens == 7
    assert RequestSpec(0, 0.0, 10, 7, max_tokens=9).max_tokens == 9


def test_request_is_immutable():
    request = RequestSpec(0, 0.0, 10, 7)
    with pytest.raises(AttributeError):
        request.priority = 1
    with pytest.raises(AttributeError):
        request.unknown = 1
    with pytest.raises(AttributeError):
        del request.priority


def test_request_is_a_value():
    request = RequestSpec(3, 0.5, 10, 7, tenant="a", ttft_slo=1.0, block_ids=(1,), id_block_size=16)
    for same in (copy(request), deepcopy(request), pickle.loads(pickle.dumps(request))):
        assert same == request
        assert hash(same) == hash(request)
    assert request.at(2.0).arrival == 2.0
    assert request.at(2.0).at(0.5) == request
    assert request != request._replace(turn=1)
    assert eval(repr(request)) == request
    with pytest.raises(WorkloadError, match="arrival of request 3"):
        request.at(-1.0)


def test_fields_have_the_order_and_the_defaults_of_the_parameters():
    given = list(inspect.signature(RequestSpec).parameters.values())
    assert [p.name for p in given] == list(RequestSpec._fields)
    assert {p.name: p.default for p in given[4:]} == RequestSpec._field_defaults
    # Traces hand their columns over by position.
    assert [p.name for p in given[5:-2]] == list(OPTIONAL)


def test_requests_of_a_trace_have_its_columns_and_the_defaults():
    columns = {"tenant": ["a", "b"], "deadline": [math.nan, 4.0], "turn": [1, 2]}
    first, second = Trace([0.0, 1.0], [5, 6], [2, 3], columns=columns).requests()
    assert first == RequestSpec(0, 0.0, 5, 2, tenant="a", turn=1)
    assert second == RequestSpec(1, 1.0, 6, 3, tenant="b", turn=2, deadline=4.0)


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
