"""Every preset against the trace or the figures it was made of."""

import importlib.util
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from workloads import PRESETS, Streams, get_preset
from workloads.shipped import Shipped
from workloads.statistics import correlation, coupling, dispersion, queueing

pytestmark = pytest.mark.shared

ROOT = Path(__file__).parents[2]
SEEDS = 20
WIDTHS = (1.0, 10.0, 60.0)


@pytest.fixture(scope="module")
def script():
    path = ROOT / "scripts" / "build_presets.py"
    spec = importlib.util.spec_from_file_location("build_presets", path)
    script = importlib.util.module_from_spec(spec)
    sys.modules["build_presets"] = script
    spec.loader.exec_module(script)
    return script


@pytest.fixture(scope="module")
def published(traces):
    return json.loads((traces / "summary.json").read_text())["traces"]


SHIPPED = [name for name, preset in PRESETS.items() if isinstance(preset, Shipped)]


@pytest.mark.parametrize("name", SHIPPED)
def test_rebuilding_gives_the_shipped_bytes(script, traces, name):
    assert set(script.PRESETS) == set(SHIPPED)
    assert script.build(name, traces) == (script.DATA / f"{name}.json.bz2").read_bytes()


CLOCKED = {
    # name: relative tolerances of rate, CV, and dispersion at 1, 10 and 60 s
    "azure-conv-2023": (0.005, 0.05, 0.10, 0.05, 0.02),
    "azure-code-2023": (0.005, 0.01, 0.15, 0.07, 0.02),
    "mooncake-conversation": (0.005, 0.02, 0.05, 0.05, 0.02),
    "arena-27-clients": (0.005, 0.05, 0.20, 0.05, 0.25),
}


@pytest.mark.parametrize("name", CLOCKED)
def test_preset_reproduces_its_trace(script, traces, name):
    """Means over 20 seeds within the tolerances above; the original's waits between extremes."""
    original = script.original(name, traces)
    unit = 0.7 * original.span_s / original.prompt_tokens.sum()

    def arrivals(trace):
        return [trace.rate, trace.cv, *(dispersion(trace.arrival_s, width) for width in WIDTHS)]

    def couplings(trace):
        lengths = (trace.prompt_tokens, trace.output_tokens)
        return [coupling(trace.arrival_s, length) for length in lengths]

    def waits(trace):
        return queueing(trace.arrival_s, trace.prompt_tokens, per_unit_s=unit)

    drawn = [get_preset(name).trace(streams=Streams(0, r)) for r in range(SEEDS)]
    found, truth = np.mean([arrivals(trace) for trace in drawn], axis=0), arrivals(original)
    assert np.all(np.abs(found / truth - 1) <= CLOCKED[name]), (found, truth)
    # The arena's ten minutes are too few for a correlation per minute.
    if name != "arena-27-clients":
        tied = np.mean([couplings(trace) for trace in drawn], axis=0)
        assert tied == pytest.approx(couplings(original), abs=0.06)
    for trace in drawn[:3]:
        for column in ("prompt_tokens", "output_tokens"):
            both = (np.sort(getattr(t, column)) for t in (trace, original))
            np.testing.assert_array_equal(*both)
        assert correlation(trace.prompt_tokens, trace.output_tokens) == pytest.approx(
            correlation(original.prompt_tokens, original.output_tokens)
        )
    spread, truth = np.array([waits(trace) for trace in drawn]), np.array(waits(original))
    assert np.all(spread.min(0) <= truth)
    assert np.all(truth <= spread.max(0))


@pytest.mark.parametrize("name", ["sharegpt-8k", "arxiv-4k"])
def test_pairs_reproduce_their_data_set(script, traces, name):
    original, preset = script.original(name, traces), get_preset(name)
    assert preset.mean_prompt_tokens == pytest.approx(original.prompt_tokens.mean())
    assert preset.mean_output_tokens == pytest.approx(original.output_tokens.mean())
    trace = preset.trace(100_000, streams=Streams(0))
    for column in ("prompt_tokens", "output_tokens"):
        mine, theirs = getattr(trace, column), getattr(original, column)
        percents = [5, 25, 50, 75, 95, 99]
        assert np.percentile(mine, percents) == pytest.approx(
            np.percentile(theirs, percents), rel=0.05
        )
    both = [correlation(t.prompt_tokens, t.output_tokens) for t in (trace, original)]
    assert both[0] == pytest.approx(both[1], abs=0.02)
    limit = (original.prompt_tokens + original.output_tokens).max()
    assert (trace.prompt_tokens + trace.output_tokens).max() <= limit


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("reasoning-r1", "servegen_deepseek_r1"),
        ("chat-small", "servegen_m_small"),
        ("chat-mid", "servegen_m_mid"),
        ("chat-large", "servegen_m_large"),
    ],
)
def test_clients_reproduce_the_published_figures(published, name, key):
    """Rate within 1 %, percentiles of lengths within 10 % or one token, means within 10 %."""
    figures, preset = published[key], get_preset(name)
    assert preset.request_rate == pytest.approx(figures["mean_rate_per_s"], rel=0.01)
    trace = preset.trace(200_000, streams=Streams(0))
    for column, table in (("prompt_tokens", "input_tokens"), ("output_tokens", "output_tokens")):
        drawn = getattr(trace, column)
        for percent in (10, 25, 50, 75, 90, 95, 99):
            expected = figures[table]["quantiles"][f"p{percent}"]
            assert np.percentile(drawn, percent) == pytest.approx(expected, rel=0.10, abs=1.0)
        assert drawn.mean() == pytest.approx(figures[table]["mean"], rel=0.10)


def test_largest_clients_of_r1_have_their_published_share(published):
    figures = published["servegen_deepseek_r1"]
    spec = get_preset("reasoning-r1")._spec
    rates = np.sort([client.arrivals.rate for client in spec.clients])[::-1]
    assert rates[0] / rates.sum() == pytest.approx(figures["top_clients"][0]["share"], rel=0.01)
    needed = [int(np.searchsorted(np.cumsum(rates) / rates.sum(), p)) + 1 for p in (0.5, 0.8, 0.9)]
    assert needed == figures["clients_for_50_80_90_pct_of_requests"]


def test_day_of_a_chat_preset_has_its_profile(published):
    profile = np.array(published["servegen_m_large"]["hourly_rate_profile_relative_24"])
    trace = get_preset("chat-large").trace(50_000, 50_000 / 86_400, streams=Streams(0))
    hours = np.histogram(trace.arrival_s, np.arange(25) * 3600.0)[0] / 50_000 * 24
    assert hours == pytest.approx(profile / profile.mean(), abs=0.15)


def test_conversations_reproduce_the_published_figures(published):
    """Turns within 10 % (their p90 20 %), outputs 10 %, think times 35 %, prompts 30 %."""
    figures = published["coding_assistant"]
    spec = get_preset("coding-assistant")._spec.model_copy(
        update={"num_conversations": 1000, "block_size": 65_536}
    )
    table = spec.source(Streams(0)).table
    turns = np.bincount(table.columns["conversation"])
    assert turns.mean() == pytest.approx(figures["requests_per_conversation"]["mean"], rel=0.10)
    assert np.percentile(turns, 90) == pytest.approx(155, rel=0.20)
    think = table.columns["think_s"]
    assert np.nanpercentile(think, [50, 90]) == pytest.approx([10, 166], rel=0.35)
    for percent in (25, 50, 75, 90, 99):
        expected = figures["output_tokens"]["quantiles"][f"p{percent}"]
        assert np.percentile(table.output_tokens, percent) == pytest.approx(expected, rel=0.10)
    prompts = figures["input_tokens"]
    assert table.prompt_tokens.mean() == pytest.approx(prompts["mean"], rel=0.30)
    median = prompts["quantiles"]["p50"]
    assert np.percentile(table.prompt_tokens, 50) == pytest.approx(median, rel=0.30)
