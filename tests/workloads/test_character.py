import json

import numpy as np
import pytest

from workloads import Streams, Trace, characterise, get_preset, read_trace, summarise, write_trace
from workloads.fits import fit_gaps, fit_lengths


@pytest.fixture(scope="module")
def published(traces):
    return json.loads((traces / "summary.json").read_text())["traces"]


def test_every_section_is_there_and_plain(tmp_path):
    trace = get_preset("arena-27-clients").trace(streams=Streams(1))
    found = characterise(trace)
    assert json.loads(json.dumps(found)) == found
    assert found["clients"]["clients"] == 27
    assert found["arrivals"]["requests"] == 1500
    text = found.text()
    assert all(name in text for name in ("dispersion", "output_tokens", "queueing", "clients"))
    assert "nan" not in text


def test_conversations_and_prefixes_are_told():
    source = get_preset("coding-assistant").trace(300, streams=Streams(1))
    found = characterise(source)
    assert found["prefixes"]["token_hit_fraction"] > 0.5
    assert found["conversations"]["conversations"] > 1
    assert found["conversations"]["p90_think_s"] > found["conversations"]["p50_think_s"]


def test_what_cannot_be_computed_is_none():
    found = characterise(Trace([0.0, 0.0], [5, 5], [1, 2]))
    assert found["arrivals"]["rate"] is None
    assert found["queueing"] is None
    assert "all at one moment" in found.text()
    assert characterise(Trace([0.0], [5], [1]))["prompt_tokens"]["fits"] == []


def test_known_laws_are_found_again():
    rng = np.random.default_rng(1)
    for draw, family in (
        (rng.lognormal(6, 1, 20_000), "lognormal"),
        (rng.exponential(2000, 20_000), "exponential"),
        (rng.gamma(4, 500, 20_000), "gamma"),
        (1000 * rng.weibull(2.5, 20_000), "weibull"),
    ):
        fits = {fit.family: fit for fit in fit_lengths(np.ceil(draw))}
        assert fits[family].ks < 0.012
        assert family in str(fits[family])
    two = np.concatenate([rng.lognormal(3, 0.3, 10_000), rng.lognormal(6, 0.5, 10_000)])
    best = fit_lengths(np.ceil(two))[0]
    assert best.family == "two lognormals"
    assert best.parameters["mu"] == pytest.approx([3, 6], abs=0.1)


def test_gaps_of_a_clock_or_of_few_requests():
    assert fit_gaps([1.0] * 5) == []
    assert fit_gaps(np.zeros(50)) == []


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("azure_llm_2023/AzureLLMInferenceTrace_conv.csv.gz", "azure2023_conv"),
        ("azure_llm_2023/AzureLLMInferenceTrace_code.csv.gz", "azure2023_code"),
        ("vtc_arena/arena_27clients_600s.csv", "vtc_arena_27clients"),
        ("mooncake_fast25/conversation_trace.jsonl.gz", "mooncake_conversation"),
    ],
)
def test_figures_are_the_published_ones(real, published, name, key):
    found, expected = characterise(real(name)), published[key]
    arrivals = expected["arrivals"]
    assert found["arrivals"]["rate"] == pytest.approx(arrivals["mean_rate_per_s"], rel=1e-4)
    assert found["arrivals"]["cv"] == pytest.approx(arrivals["iat_cv"], rel=1e-4)
    assert found["arrivals"]["longest_gap_s"] == pytest.approx(arrivals["max_gap_s"], rel=1e-4)
    for width, value in found["arrivals"]["dispersion"].items():
        if value is not None:
            theirs = arrivals["index_of_dispersion"].get(width.replace(" ", ""))
            if theirs is not None:
                assert value == pytest.approx(theirs["idc"], rel=1e-3)
    local = arrivals["cv_per_5min_window"]
    assert found["arrivals"]["cv_per_5_min"]["median"] == pytest.approx(local["median"], rel=0.01)
    for column, theirs in (("prompt_tokens", "input_tokens"), ("output_tokens", "output_tokens")):
        assert found[column]["mean"] == pytest.approx(expected[theirs]["mean"], rel=1e-5)
        for fit in found[column]["fits"]:
            if fit["family"] in ("lognormal", "exponential", "gamma", "weibull"):
                known = expected[theirs]["fits"][fit["family"]]
                assert fit["ks"] == pytest.approx(known["ks"], abs=0.003)
    ties = expected["correlation"]
    assert found["ties"]["prompt_output_spearman"] == pytest.approx(ties["spearman"], abs=1e-4)
    tied = expected["nonstationarity"]["corr_per_min_rate_vs_mean_input"]
    if key != "vtc_arena_27clients":  # its figure has a last minute with one request
        assert found["ties"]["rate_prompt_per_min"] == pytest.approx(tied, abs=0.001)


def test_summary_of_a_file_needs_no_rows_in_memory(write, monkeypatch, tmp_path):
    monkeypatch.setattr("workloads.readers.rows._FLUSH", 50)
    rng = np.random.default_rng(1)
    trace = Trace(
        np.cumsum(rng.exponential(0.3, 2000)), rng.integers(1, 9000, 2000), np.full(2000, 7)
    )
    path = write_trace(trace, tmp_path / "a.csv")
    found, whole = summarise(path), characterise(read_trace(path))
    for figure in ("rate", "cv", "span_s", "longest_gap_s", "dispersion"):
        mine, theirs = found["arrivals"][figure], whole["arrivals"][figure]
        assert mine == pytest.approx(theirs, nan_ok=True), figure
    for name in ("prompt_quantiles", "output_quantiles"):
        assert found["series"][name] == whole["series"][name]
    assert found["prompt_tokens"]["mean"] == pytest.approx(trace.prompt_tokens.mean())
    assert found["prompt_tokens"]["p50"] == np.sort(trace.prompt_tokens)[999]
    assert found["account"] == whole["account"]
    assert found.text().splitlines()[0] == whole.text().splitlines()[0]


def test_summary_counts_what_it_drops_and_refuses_disorder(write):
    head = "arrival_s,prompt_tokens,output_tokens\n"
    found = summarise(write(head + "0,5,5\nx,5,5\n9,6,5\n"), strict=False)
    assert (found["account"]["rows_read"], found["account"]["rows_kept"]) == (3, 2)
    assert found["account"]["dropped"] == {"arrival_s: not a number": 1}
    for content, told in (
        (head + "5,5,5\n3,5,5\n", "order of time"),
        (head + "x,5,5\n", "no rows left"),
        (head + "0,5,5\n1e9,5,5\n", "four years"),
    ):
        with pytest.raises(ValueError, match=told):
            summarise(write(content), strict=False)
    with pytest.raises(ValueError, match="expected a format out of"):
        summarise(write(head), "x")


@pytest.mark.shared
def test_summary_of_a_real_file_is_that_of_its_trace(traces):
    path = traces / "mooncake_fast25/conversation_trace.jsonl.gz"
    found = summarise(path)
    assert found["prompt_tokens"]["max"] == 126_195
    assert found["arrivals"]["requests"] == 12_031
    assert found["arrivals"]["cv"] == pytest.approx(3.03374, rel=1e-4)
