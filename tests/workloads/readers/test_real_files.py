"""Every real file of the reference material, against its published figures."""

import json

import numpy as np
import pytest

from workloads import WorkloadError, read_trace
from workloads.chains import lru_hit_blocks, reusable_tokens

pytestmark = pytest.mark.shared

FULL = [
    "vidur_processed/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv.gz",
    "etalon_processed/sharegpt_8k_filtered_stats_llama2_tokenizer.csv.gz",
    "mooncake_fast25/conversation_trace.jsonl.gz",
    "vtc_arena/arena_27clients_600s.csv",
    "format_samples/azure_lmm_2025/multimodal.head5.csv",
    "format_samples/azure_llm_2024/code_1week.head5.csv",
    "format_samples/qwen_bailian/authored_chain.jsonl",
]


@pytest.fixture(scope="session")
def published(traces):
    return json.loads((traces / "summary.json").read_text())


@pytest.mark.parametrize("name", FULL)
def test_rows_tokens_and_digest_are_the_published_ones(traces, published, name):
    expected = published["files"][name]
    trace = read_trace(traces / name)
    assert trace.provenance["sha256"] == expected["sha256_uncompressed"]
    assert len(trace) == trace.provenance["rows_read"] == expected["rows"]
    assert trace.prompt_tokens.sum() == expected["sum_input"]
    assert trace.output_tokens.sum() == expected["sum_output"]
    assert len(trace.provenance["warnings"]) == ("qwen" in name or "mooncake" in name)


def test_mooncake_prefixes_are_the_published_ones(real, published):
    trace = real(FULL[2])
    expected = published["traces"]["mooncake_conversation"]["prefix"]
    assert trace.chains.ids.size == expected["blocks_total"]
    assert np.unique(trace.chains.ids).size == expected["blocks_unique"]
    hits = reusable_tokens(trace.chains, trace.prompt_tokens, partial=True)
    ratio = expected["infinite_cache"]["token_hit_ratio"]
    assert hits.sum() / trace.prompt_tokens.sum() == pytest.approx(ratio, abs=1e-6)
    blocks = -(-hits // 512).sum() / trace.chains.ids.size
    assert blocks == pytest.approx(expected["infinite_cache"]["block_hit_ratio"], abs=1e-6)
    for capacity, share in expected["lru_block_hit_ratio_by_capacity_blocks"].items():
        found = lru_hit_blocks(trace.chains, int(capacity)) / trace.chains.ids.size
        assert found == pytest.approx(share, abs=1e-6)
    whole = reusable_tokens(trace.chains, trace.prompt_tokens)
    assert np.all(whole <= hits)
    assert whole.sum() / trace.prompt_tokens.sum() == pytest.approx(0.3734, abs=1e-4)


@pytest.mark.parametrize(
    ("name", "rows", "dropped", "conversations"),
    [
        ("burstgpt/BurstGPT_1.head400.csv", 383, {"failure": 17}, None),
        ("burstgpt/BurstGPT_3.head146.csv", 145, {"failure": 1}, 54),
    ],
)
def test_burstgpt_drops_its_failures(traces, name, rows, dropped, conversations):
    trace = read_trace(traces / name)
    assert (len(trace), trace.provenance["dropped"]) == (rows, dropped)
    assert set(trace.columns["model"]) == {"ChatGPT", "GPT-4"}
    if conversations:
        assert np.unique(trace.columns["conversation"]).size - 1 <= conversations
        assert trace.provenance["warnings"] == ["4 times: a conversation changes its model"]


def test_failures_of_burstgpt_have_no_prompt_either(traces):
    path = traces / "burstgpt/BurstGPT_1.head400.csv"
    assert len(read_trace(path, failures="impute")) == 383
    with pytest.raises(WorkloadError, match="column Response tokens: got '0'"):
        read_trace(path, failures="error")


def test_conversations_are_the_published_ones(traces, published):
    trace = read_trace(traces / "kv_cache_tester/traces")
    files = [v for k, v in published["files"].items() if k.startswith("kv_cache_tester/")]
    own = sum(file["requests"] for file in files)
    nested = sum(file["nested_requests"] for file in files)
    assert (own, nested, len(files)) == (1172, len(trace) - 1172, 52)
    assert trace.columns["conversation"].max() + 1 == 57
    one = read_trace(traces / "kv_cache_tester/traces/trace_0700.json.gz")
    expected = published["files"]["kv_cache_tester/traces/trace_0700.json.gz"]
    assert one.prompt_tokens.sum() == expected["sum_input"]
    assert one.provenance["sha256"] == expected["sha256_uncompressed"]


@pytest.mark.parametrize(
    ("name", "format_", "rows", "span_s"),
    [
        ("aibrix/authored_workload.jsonl", "aibrix", 3, 6.011),
        ("llmservingsim/example_trace.jsonl", "llmservingsim", 10, None),
        ("splitwise_sim/test_trace.csv", "splitwise-sim", 3, 3.0),
        ("servegen_offline/trace_d.head2.jsonl", "servegen-offline", 2, 0.0),
        ("qwen_bailian/authored_chain.jsonl", "qwen-bailian", 5, 68.886),
    ],
)
def test_samples_are_recognised(traces, name, format_, rows, span_s):
    trace = read_trace(traces / "format_samples" / name)
    assert trace.provenance["notes"]["format"] == format_
    assert len(trace) == rows
    if span_s is not None:
        assert trace.span_s == pytest.approx(span_s, abs=1e-9)


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("servegen_offline/trace_a.head3.jsonl", 3),
        ("aiperf_mooncake/authored_multiturn.jsonl", 4),
    ],
)
def test_samples_without_outputs_need_one(traces, name, rows):
    path = traces / "format_samples" / name
    with pytest.raises(WorkloadError, match="column output_length"):
        read_trace(path)
    assert len(read_trace(path, default_output=64)) == rows


@pytest.mark.parametrize(
    ("name", "told", "kept", "dropped"),
    [
        (
            "burstgpt_bad.csv",
            "line 5, column Timestamp: got '11', expected a time that is not before",
            [472, 300, 5],
            {"failure": 2, "Request tokens: not a number": 1, "Timestamp: empty": 1},
        ),
        (
            "mooncake_bad.jsonl",
            "line 3, column hash_ids: .*expected 4 blocks of 512 for 2048 tokens, not 2",
            [1024, 512],
            {
                "hash_ids: too few blocks": 1,
                "timestamp: not a number": 1,
                "output_length: missing": 1,
                "timestamp: missing": 1,
                "not JSON": 1,
                "not a number": 1,
            },
        ),
    ],
)
def test_malformed_samples(traces, name, told, kept, dropped):
    path = traces / "format_samples/bad" / name
    with pytest.raises(WorkloadError, match=told) as error:
        read_trace(path)
    assert "\n" not in str(error.value)
    trace = read_trace(path, strict=False)
    assert trace.prompt_tokens.tolist() == kept
    account = trace.provenance
    assert account["dropped"] == dropped
    assert account["rows_read"] == account["rows_kept"] + sum(dropped.values())
