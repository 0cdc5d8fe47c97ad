import json
import pickle

import numpy as np
import pytest

from workloads import RequestSpec, Trace, WorkloadError


@pytest.fixture
def trace() -> Trace:
    return Trace(
        [0.0, 1.0, 4.0, 4.0],
        [100, 200, 300, 400],
        [10, 20, 30, 40],
        columns={"tenant": ["a", "b", "a", "c"], "ttft_slo": [0.5, np.nan, 1.0, 1.0]},
    )


def test_rate_span_and_cv(trace):
    assert (len(trace), trace.span_s, trace.rate) == (4, 4.0, 0.75)
    gaps = np.array([1.0, 3.0, 0.0])
    assert trace.cv == pytest.approx(gaps.std() / gaps.mean())


def test_rate_without_a_span_is_not_a_number():
    assert np.isnan(Trace([1.0], [1], [1]).rate)
    assert np.isnan(Trace([1.0, 1.0, 1.0], [1, 1, 1], [1, 1, 1]).cv)


def test_requests_carry_all_columns(trace):
    requests = list(trace.requests())
    assert requests[0] == RequestSpec(0, 0.0, 100, 10, tenant="a", ttft_slo=0.5)
    assert requests[1].ttft_slo is None
    assert [type(value) for value in (requests[0].arrival, requests[0].prompt_tokens)] == [
        float,
        int,
    ]
    assert list(Trace([0.5], [3], [2], [9]).requests()) == [RequestSpec(0, 0.5, 3, 2, 9)]


def test_trace_never_changes(trace):
    with pytest.raises(AttributeError):
        trace.arrival_s = np.zeros(4)
    with pytest.raises(ValueError, match="read-only"):
        trace.prompt_tokens[0] = 1
    trace.provenance["dropped"]["mine"] = 3
    assert trace.provenance["dropped"] == {}


def test_trace_does_not_share_an_array_that_others_can_change():
    mine = np.array([0.0, 1.0])
    trace = Trace(mine, [1, 1], [1, 1])
    mine[0] = 0.5
    assert trace.arrival_s[0] == 0.0


@pytest.mark.parametrize("rate", [0.001, 0.75, 3.7, 1e4])
def test_rescale_meets_the_rate_and_keeps_the_cv(rate):
    gaps = np.random.default_rng(1).gamma(0.3, 1.0, 5000)
    trace = Trace(np.cumsum(gaps), np.ones(5000), np.ones(5000))
    scaled = trace.rescale(rate)
    assert scaled.rate == pytest.approx(rate, rel=1e-12)
    assert scaled.cv == pytest.approx(trace.cv, rel=1e-9)
    assert scaled.provenance["transforms"][0]["request_rate"] == rate


@pytest.mark.parametrize("rate", [0, -1, float("nan"), float("inf")])
def test_rescale_refuses_nonsense(trace, rate):
    with pytest.raises(WorkloadError, match="request_rate"):
        trace.rescale(rate)


def test_rescale_needs_a_span():
    with pytest.raises(WorkloadError, match="two moments"):
        Trace([1.0, 1.0], [1, 1], [1, 1]).rescale(2.0)


def test_select_by_time_and_mask(trace):
    part = trace.select(start_s=1.0, end_s=4.0)
    assert part.prompt_tokens.tolist() == [200]
    tenants = trace.select(where=trace.columns["tenant"] == "a")
    assert tenants.prompt_tokens.tolist() == [100, 300]
    assert tenants.provenance["dropped"] == {"select": 2}
    with pytest.raises(WorkloadError, match="no rows"):
        trace.select(start_s=50.0)
    with pytest.raises(WorkloadError, match="where"):
        trace.select(where=np.array([True]))


def test_head_takes_the_leading_rows_and_never_wraps(trace):
    assert trace.head(2).prompt_tokens.tolist() == [100, 200]
    assert trace.head(4) is trace
    for n in (0, -1, 5):
        with pytest.raises(WorkloadError, match="from 1 to the 4"):
            trace.head(n)


def test_rebase_starts_the_clock_at_the_first_arrival(trace):
    assert trace.select(start_s=1.0).rebase().arrival_s.tolist() == [0.0, 3.0, 3.0]


def test_deadlines_keep_their_distance_from_the_arrival():
    trace = Trace([1.0, 3.0], [1, 1], [1, 1], columns={"deadline": [2.0, np.nan]})
    assert trace.rescale(0.25).columns["deadline"][0] == 3.0
    assert trace.rebase().columns["deadline"][0] == 1.0
    assert next(trace.rebase().requests()).deadline == 1.0


def test_account_adds_up_after_every_step(trace):
    end = trace.head(3).select(start_s=0.5).rescale(2.0).limit_context(225, "drop")
    account = end.provenance
    assert account["rows_read"] == account["rows_kept"] + sum(account["dropped"].values()) == 4
    assert account["rows_kept"] == len(end) == 1
    names = [step["name"] for step in account["transforms"]]
    assert names == ["head", "select", "rescale", "limit_context"]
    assert json.loads(json.dumps(account)) == account


def test_hash_depends_on_what_reaches_the_requests_only(trace):
    same = Trace(
        trace.arrival_s,
        trace.prompt_tokens,
        trace.output_tokens,
        columns={**trace.columns, "line": [2, 3, 4, 5]},
    )
    assert same.content_hash() == trace.content_hash()
    others = [
        trace.rescale(1.0),
        trace.head(3),
        trace.derive("x", {}, output_tokens=trace.output_tokens + 1, max_tokens=[50] * 4),
        trace.derive("x", {}, max_tokens=[50] * 4),
        trace.derive("x", {}, tenant=["a", "b", "a", "d"]),
        Trace(trace.arrival_s, trace.prompt_tokens, trace.output_tokens),
    ]
    hashes = {other.content_hash() for other in [trace, *others]}
    assert len(hashes) == 7


def test_trace_survives_pickling(trace):
    copy = pickle.loads(pickle.dumps(trace))
    assert copy.content_hash() == trace.content_hash()
    assert copy.provenance == trace.provenance


def test_repr_is_five_lines(trace):
    lines = repr(trace.rescale(2.0)).splitlines()
    assert len(lines) == 5
    assert "2 requests/s" in lines[0]
    assert "rescale" in lines[4]


@pytest.mark.parametrize(
    ("columns", "told"),
    [
        (([], [], []), "no rows"),
        (([0.0, 1.0], [1], [1, 1]), "column prompt_tokens: got 1, expected 2 rows"),
        (([1.0, 0.0], [1, 1], [1, 1]), "arrival_s of request 1"),
        (([-1.0, 0.0], [1, 1], [1, 1]), "arrival_s of request 0"),
        (([0.0, np.nan], [1, 1], [1, 1]), "arrival_s of request 1"),
        (([0.0, 1.0], [1, 0], [1, 1]), "got 0, .* prompt_tokens of request 1"),
        (([0.0, 1.0], [1, 1], [-1, 1]), "got -1, .* output_tokens of request 0"),
        (([0.0, 1.0], [1, 1], [5, 5], [5, 4]), "max_tokens of request 1"),
        (([0.0, 1.0], [1.5, 1], [1, 1]), "column prompt_tokens: expected whole numbers"),
        (([0.0, 1.0], ["x", 1], [1, 1]), "column prompt_tokens"),
        (([[0.0], [1.0]], [1, 1], [1, 1]), "one dimension"),
        (([0.0], [1], [1], None, {"size": [0]}), "size of request 0"),
        (([0.0], [1], [1], None, {"arrival_s": [0]}), "another name"),
        (([0.0], [1], [1], None, {"x": [object()]}), "numbers or text"),
    ],
)
def test_broken_columns_are_refused(columns, told):
    with pytest.raises(WorkloadError, match=told) as error:
        Trace(*columns)
    assert "\n" not in str(error.value)


def test_error_names_the_line_where_there_is_one():
    with pytest.raises(WorkloadError, match=r"request 1 \(line 9\)"):
        Trace([0.0, 1.0], [1, 0], [1, 1], columns={"line": [8, 9]})


def test_provenance_has_to_fit_the_rows(trace):
    with pytest.raises(WorkloadError, match="got 4, expected a provenance of 1 rows kept"):
        Trace([0.0], [1], [1], provenance=trace.provenance)


def test_many_requests_are_numbered_through(monkeypatch):
    monkeypatch.setattr("workloads.columns._CHUNK", 2)
    requests = list(Trace(np.arange(5.0), [1] * 5, [1] * 5).requests())
    assert [(r.id, r.arrival) for r in requests] == [(i, float(i)) for i in range(5)]
