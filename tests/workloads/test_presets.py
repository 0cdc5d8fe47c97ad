import numpy as np
import pytest

from workloads import PRESETS, Streams, WorkloadError, get_preset


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_preset_says_what_it_is_and_keeps_its_word(preset):
    for text in (preset.about, preset.source, preset.licence):
        assert text
        assert "\n" not in text
    trace = preset.trace(streams=Streams(1))
    assert len(trace) == preset.num_rows
    # Truncation moves a synthetic mean a little; the blocks keep theirs exactly.
    assert trace.prompt_tokens.mean() == pytest.approx(preset.mean_prompt_tokens, rel=0.2)
    assert trace.output_tokens.mean() == pytest.approx(preset.mean_output_tokens, rel=0.2)
    assert trace.rate == pytest.approx(preset.request_rate, rel=4 / np.sqrt(len(trace)))


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_preset_is_reproducible(preset):
    first, again, other = (
        preset.trace(200, 3.0, streams=Streams(1, r)).content_hash() for r in (0, 0, 1)
    )
    assert first == again != other


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
def test_preset_meets_another_rate_on_average(preset):
    rates = [
        n / preset.trace(n, 7.0, streams=Streams(2, r)).arrival_s[-1]
        for r, n in enumerate([300] * 100)
    ]
    error = 4 * np.std(rates) / np.sqrt(len(rates))
    # n over the last arrival overstates the rate by about 1/n.
    assert abs(np.mean(rates) - 7.0) < error + 7.0 / 200


@pytest.mark.parametrize("preset", PRESETS.values(), ids=PRESETS)
@pytest.mark.parametrize(
    ("n", "rate", "field"),
    [(0, None, "num_requests"), (-1, None, "num_requests"), (5, 0.0, "request_rate")],
)
def test_preset_refuses_nonsense(preset, n, rate, field):
    with pytest.raises(WorkloadError, match=field):
        preset.trace(n, rate, streams=Streams(1))


def test_unknown_name_gets_a_suggestion():
    with pytest.raises(WorkloadError, match="did you mean 'azure-conv-2023'"):
        get_preset("azure-conv")
    with pytest.raises(WorkloadError, match="expected one of demo-chat"):
        get_preset("???")
