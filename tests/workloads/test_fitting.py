import json

import pytest

from workloads import Streams, Trace, WorkloadError, fit_workload, parse_workload
from workloads.ticks import detick


def drawn(arrivals, **laws):
    lengths = {"prompt_tokens": {"mean": 500, "cv": 1}, "output_tokens": {"mean": 100, "cv": 1}}
    spec = {"arrivals": arrivals, "num_requests": 4000, **lengths, **laws}
    return parse_workload(spec).build(Streams(3))


ON_OFF = {"kind": "on-off", "request_rate": 2, "mean_on_s": 20, "mean_off_s": 40, "cv": 1.0}
DAY = {"kind": "varying", "profile": {"kind": "steps", "rates": [1, 1, 6, 1], "width_s": 300}}


@pytest.mark.parametrize(
    ("arrivals", "kinds"),
    [
        (4, {"poisson", "gamma"}),
        ({"request_rate": 4, "cv": 2.5}, {"gamma"}),
        (ON_OFF, {"on-off", "steps of 10 s"}),
        (DAY, {"steps of 60 s", "steps of 10 s"}),
    ],
)
def test_fit_finds_the_kind_of_arrivals(arrivals, kinds):
    fit = fit_workload(drawn(arrivals), seeds=6)
    assert fit.report["chosen"] in kinds
    low, high = fit.report["spread"]["p99_wait_s"]
    inside = low <= fit.report["trace"]["p99_wait_s"] <= high
    assert fit.report["queueing_inside_spread"] == inside
    again = parse_workload(json.loads(json.dumps(fit.to_dict())))
    assert again.build(Streams(1)).content_hash() == fit.spec.build(Streams(1)).content_hash()
    assert fit.report["chosen"] in fit.text()


def test_tied_lengths_stay_tied():
    pairs = [[10 * i, i] for i in range(1, 200)]
    trace = parse_workload(
        {"arrivals": 4, "lengths": {"pairs": pairs}, "num_requests": 2000}
    ).build(Streams(1))
    fit = fit_workload(trace, seeds=2)
    assert fit.spec.lengths.rank_correlation == 0.99


@pytest.mark.parametrize(
    ("trace", "told"),
    [
        (Trace([0.0, 1.0], [1, 1], [1, 1]), "got 2, expected at least 100"),
        (Trace([0.0] * 200, [1] * 200, [1] * 200), "with times"),
        (Trace([3.0 * (i // 9) for i in range(900)], [1] * 900, [1] * 900), "coarse clock"),
    ],
)
def test_traces_that_cannot_be_fitted_are_told(trace, told):
    with pytest.raises(WorkloadError, match=told):
        fit_workload(trace)


@pytest.mark.shared
@pytest.mark.parametrize(
    "name",
    [
        "azure_llm_2023/AzureLLMInferenceTrace_conv.csv.gz",
        "azure_llm_2023/AzureLLMInferenceTrace_code.csv.gz",
        "mooncake_fast25/conversation_trace.jsonl.gz",
    ],
)
def test_fit_of_a_real_trace_reproduces_its_queueing(real, name):
    """Mean and p99 wait within 30 %, where Poisson is off by 40 % to 100-fold."""
    trace = real(name)
    if "mooncake" in name:
        trace = detick(trace, Streams(0)("detick"))
    fit = fit_workload(trace)
    assert fit.report["queueing_inside_spread"]
    chosen = next(c for c in fit.report["candidates"] if c["name"] == fit.report["chosen"])
    for key in ("mean_wait_s", "p99_wait_s"):
        assert chosen["figures"][key] == pytest.approx(fit.report["trace"][key], rel=0.30)
