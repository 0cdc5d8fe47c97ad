from itertools import pairwise

import numpy as np
import pytest

from workloads import Streams, Trace, get_preset
from workloads.blocks import BlockPreset, block_table

BLOCK_S = 12.0


@pytest.fixture(scope="module")
def preset() -> BlockPreset:
    preset = get_preset("azure-conv-2023")
    assert isinstance(preset, BlockPreset)
    return preset


@pytest.fixture(scope="module")
def original(real) -> Trace:
    return real("azure_llm_2023/AzureLLMInferenceTrace_conv.csv.gz")


def counts(trace: Trace) -> np.ndarray:
    return np.bincount((trace.arrival_s // BLOCK_S).astype(np.int64), minlength=292)


def pairs(trace: Trace, rows: slice = slice(None)) -> list[tuple[int, int]]:
    prompts, outputs = trace.prompt_tokens[rows].tolist(), trace.output_tokens[rows].tolist()
    return sorted(zip(prompts, outputs, strict=True))


@pytest.mark.shared
def test_every_block_keeps_its_count_and_its_pairs(preset, original):
    trace = preset.trace(streams=Streams(1))
    assert counts(trace).tolist() == counts(original).tolist()
    ends = np.cumsum(counts(original))
    for low, high in pairwise(ends):
        assert pairs(trace, slice(low, high)) == pairs(original, slice(low, high))


@pytest.mark.shared
def test_whole_preset_keeps_lengths_and_mean_rate(preset, original):
    trace = preset.trace(streams=Streams(2))
    assert pairs(trace) == pairs(original)
    assert preset.request_rate == pytest.approx(len(original) / original.span_s, rel=1e-9)


def test_no_order_is_left_in_the_file(preset):
    for block in preset._table["blocks"]:
        rows = list(zip(block["prompt_tokens"], block["output_tokens"], strict=True))
        assert rows == sorted(rows)


def test_draws_differ_in_order_only(preset):
    one, two = (preset.trace(streams=Streams(1, r)) for r in range(2))
    assert pairs(one) == pairs(two)
    assert one.prompt_tokens.tolist() != two.prompt_tokens.tolist()
    assert one.arrival_s.tolist() != two.arrival_s.tolist()


def test_fewer_requests_are_the_leading_blocks(preset):
    whole = preset.trace(streams=Streams(1))
    n = int(counts(whole)[:3].sum()) + 10
    part = preset.trace(n, streams=Streams(1))
    full_blocks = n - 10
    assert part.arrival_s[:full_blocks].tolist() == whole.arrival_s[:full_blocks].tolist()
    assert part.prompt_tokens.tolist() == whole.prompt_tokens[:n].tolist()
    last_block_s = BLOCK_S * 10 / counts(whole)[3]
    assert part.arrival_s[-1] <= 3 * BLOCK_S + last_block_s


def test_more_requests_repeat_the_blocks_with_fresh_draws(preset):
    n = preset.num_rows
    trace = preset.trace(2 * n, streams=Streams(1))
    first, second = slice(0, n), slice(n, 2 * n)
    assert pairs(trace, first) == pairs(trace, second)
    assert trace.prompt_tokens[first].tolist() != trace.prompt_tokens[second].tolist()
    assert trace.arrival_s[n] > trace.arrival_s[n - 1]


def test_rate_stretches_time_exactly(preset):
    plain = preset.trace(1000, streams=Streams(1))
    fast = preset.trace(1000, 8.0, streams=Streams(1))
    assert fast.prompt_tokens.tolist() == plain.prompt_tokens.tolist()
    factor = fast.provenance["transforms"][0]["factor"]
    np.testing.assert_allclose(fast.arrival_s, plain.arrival_s * factor, rtol=1e-12)
    assert fast.arrival_s[-1] <= 1000 / 8.0


def test_blocks_of_a_trace_cover_it_once():
    trace = Trace([0.0, 9.0, 10.0, 20.0], [4, 3, 2, 1], [1, 1, 1, 1])
    table = block_table(trace, 10.0, {})
    assert [block["duration_s"] for block in table["blocks"]] == [10.0, 10.0]
    assert [block["prompt_tokens"] for block in table["blocks"]] == [[3, 4], [1, 2]]


def test_clients_stay_with_their_pairs():
    trace = Trace([0.0, 1.0, 9.0], [4, 3, 2], [1, 1, 1], columns={"tenant": ["b", "a", "b"]})
    table = block_table(trace, 10.0, {}, tenants=True)
    assert table["tenants"] == ["a", "b"]
    assert table["blocks"][0]["prompt_tokens"] == [2, 3, 4]
    assert table["blocks"][0]["tenant"] == [1, 0, 1]
