import pytest

from workloads import Trace, WorkloadError


@pytest.fixture
def trace() -> Trace:
    return Trace(
        [0.0, 1.0, 2.0],
        [100, 900, 50],
        [20, 200, 2000],
        [500, 200, 2000],
        columns={"line": [2, 3, 4]},
    )


def test_error_names_the_first_request_that_is_too_long(trace):
    with pytest.raises(WorkloadError, match="line 3") as error:
        trace.limit_context(1000)
    told = str(error.value)
    assert "900 prompt and 200 output" in told
    assert "1000" in told
    assert "\n" not in told


def test_a_trace_that_fits_stays_the_same(trace):
    assert trace.limit_context(2050) is trace


def test_drop_counts_requests_and_tokens(trace):
    short = trace.limit_context(1000, "drop")
    assert short.prompt_tokens.tolist() == [100]
    step = short.provenance["transforms"][0]
    assert (step["too_long"], step["tokens_lost"]) == (2, 1100 + 2050)


def test_clip_shortens_the_prompt_first(trace):
    short = trace.limit_context(1000, "clip")
    assert short.prompt_tokens.tolist() == [100, 800, 1]
    assert short.output_tokens.tolist() == [20, 200, 999]
    assert short.max_tokens.tolist() == [500, 200, 999]
    step = short.provenance["transforms"][0]
    assert (step["too_long"], step["tokens_lost"]) == (2, 100 + 1050)


def test_caps_are_lowered_to_the_room_and_counted(trace):
    short = trace.head(1).limit_context(400)
    assert short.max_tokens.tolist() == [300]
    assert short.provenance["transforms"][-1]["caps_lowered"] == 1


@pytest.mark.parametrize("limit", [1, 0, -5])
def test_limit_without_room_is_refused(trace, limit):
    with pytest.raises(WorkloadError, match="max_model_len"):
        trace.limit_context(limit)


def test_dropping_everything_is_an_error(trace):
    with pytest.raises(WorkloadError, match="no rows"):
        trace.limit_context(10, "drop")
