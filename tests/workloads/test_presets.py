import json

import numpy as np
import pytest
from pydantic import ValidationError

from workloads import PRESETS, PresetWorkload, Streams, TurnSource, WorkloadError, get_preset
from workloads.shipped import Shipped

OPEN = {name: preset for name, preset in PRESETS.items() if preset.is_open}
SHIPPED = {name: preset for name, preset in PRESETS.items() if isinstance(preset, Shipped)}


def every(presets):
    return pytest.mark.parametrize("preset", presets.values(), ids=presets)


@every(PRESETS)
def test_preset_says_what_it_is(preset):
    for text in (preset.about, preset.source, preset.licence):
        assert text
        assert "\n" not in text
    assert preset.name in repr(preset)


@every(SHIPPED)
def test_file_names_its_source_and_is_small(preset):
    assert len(preset._bytes) < 50_000
    assert preset.licence in ("CC-BY-4.0", "Apache-2.0", "MIT")
    notes = preset.trace(50, streams=Streams(1)).provenance["notes"]
    assert {"source", "licence", "made"} <= set(notes)
    assert "TIMESTAMP" not in json.dumps(preset._table)


@every(OPEN)
def test_preset_keeps_its_word(preset):
    trace = preset.trace(streams=Streams(1))
    assert len(trace) == preset.num_rows
    # Truncation moves a synthetic mean a little, heavy tails a drawn one; blocks keep theirs.
    assert trace.prompt_tokens.mean() == pytest.approx(preset.mean_prompt_tokens, rel=0.2)
    assert trace.output_tokens.mean() == pytest.approx(preset.mean_output_tokens, rel=0.2)
    cv = max(trace.cv, 1)
    assert trace.rate == pytest.approx(preset.request_rate, rel=0.02 + 4 * cv / len(trace) ** 0.5)


@every(PRESETS)
def test_preset_is_reproducible(preset):
    first, again, other = (
        preset.trace(200, 3.0, streams=Streams(1, r)).content_hash() for r in (0, 0, 1)
    )
    assert first == again != other


@every(OPEN)
def test_preset_meets_another_rate_on_average(preset):
    rates = [
        n / preset.trace(n, 7.0, streams=Streams(2, r)).arrival_s[-1]
        for r, n in enumerate([300] * 20)
    ]
    error = 4 * np.std(rates) / np.sqrt(len(rates))
    # n over the last arrival overstates the rate by about its relative variance; a day's
    # profile is not at its mean all the time.
    assert abs(np.mean(rates) - 7.0) < error + 7.0 / 40 + np.var(rates) / 7.0


@every(PRESETS)
@pytest.mark.parametrize(
    ("n", "rate", "field"),
    [(0, None, "num_requests"), (-1, None, "num_requests"), (5, 0.0, "request_rate")],
)
def test_preset_refuses_nonsense(preset, n, rate, field):
    with pytest.raises(WorkloadError, match=field):
        preset.trace(n, rate, streams=Streams(1))


def test_unknown_name_gets_a_suggestion():
    with pytest.raises(WorkloadError, match="did you mean 'azure-co"):
        get_preset("azure-conv")
    with pytest.raises(WorkloadError, match="expected one of demo-chat"):
        get_preset("???")


def test_conversations_are_asked_turn_by_turn():
    workload = PresetWorkload(name="coding-assistant", num_requests=200)
    assert not workload.is_open
    with pytest.raises(WorkloadError, match="depend on completions"):
        workload.build(Streams(1))
    source = workload.source(Streams(1))
    assert isinstance(source, TurnSource)
    assert len(source.table) == 200
    assert source.table.chains.block_size == 64
    with pytest.raises(ValidationError, match="max_concurrency"):
        PresetWorkload(name="coding-assistant", max_concurrency=4)


def test_another_rate_of_conversations_moves_their_starts():
    slow, fast = (
        get_preset("coding-assistant").trace(500, rate, streams=Streams(1)) for rate in (0.5, 5.0)
    )
    first = [trace.arrival_s[trace.columns["turn"] == 0] for trace in (slow, fast)]
    number = min(first[0].size, first[1].size)
    np.testing.assert_allclose(first[0][:number], first[1][:number] * 10)


def test_reasoning_has_its_share():
    trace = get_preset("reasoning-r1").trace(streams=Streams(1))
    share = trace.columns["reasoning_tokens"].sum() / trace.output_tokens.sum()
    assert 0.5 < share < 0.9
    assert np.unique(trace.columns["tenant"]).size > 20


def test_clients_of_the_arena_are_tenants():
    trace = get_preset("arena-27-clients").trace(streams=Streams(1))
    _, counts = np.unique(trace.columns["tenant"], return_counts=True)
    assert counts.size == 27
    assert np.sort(counts)[::-1][:4].sum() / 1500 == pytest.approx(0.5847, abs=1e-4)


@pytest.mark.parametrize("name", ["azure-code-2023"])
def test_bursts_come_again_with_fresh_draws(name):
    preset = get_preset(name)
    n = preset.num_rows
    trace = preset.trace(2 * n, streams=Streams(1))
    assert sorted(trace.prompt_tokens[:n]) == sorted(trace.prompt_tokens[n:])
    assert trace.prompt_tokens[:n].tolist() != trace.prompt_tokens[n:].tolist()
    part = preset.trace(500, streams=Streams(1))
    assert part.arrival_s.tolist() == trace.arrival_s[:500].tolist()
    assert part.prompt_tokens.tolist() == trace.prompt_tokens[:500].tolist()
    assert preset.trace(1, streams=Streams(1)).arrival_s.tolist() == [0.0]
