import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from workloads import JOINTS, JointSpec, Streams, parse_workload
from workloads.statistics import correlation, rank_correlation

SPEC = TypeAdapter(JointSpec)
PAIRS = {"pairs": [[10, 1], [20, 2], [30, 3]]}
COPULA = {
    "prompt_tokens": {"mean": 500, "cv": 1},
    "output_tokens": {"kind": "exponential", "mean": 200},
    "rank_correlation": -0.4,
}
BINS = {
    "prompt_tokens": {"low": 1, "high": 100},
    "up_to": [30, 60],
    "output_tokens": [1, {"low": 5, "high": 6}, 9],
}


def sample(data, n=20_000, seed=1):
    return SPEC.validate_python(data).sample(n, Streams(seed))


def test_pairs_stay_pairs():
    prompts, outputs = sample(PAIRS)
    assert np.array_equal(prompts, outputs * 10)
    assert np.bincount(outputs)[1:] == pytest.approx([20_000 / 3] * 3, rel=0.05)


def test_pairs_come_from_any_trace_file(write):
    path = write("num_prefill_tokens,num_decode_tokens\n10,1\n20,2\n")
    prompts, outputs = sample({"path": str(path)})
    assert np.array_equal(prompts, outputs * 10)


def test_blocks_keep_neighbours():
    rows = [[i, i] for i in range(1, 101)]
    prompts, _ = sample({"pairs": rows, "block_rows": 10}, 1000)
    steps = np.diff(prompts)
    assert np.mean((steps == 1) | (steps == -99)) > 0.85
    assert np.unique(prompts).size > 50


def test_copula_keeps_both_laws_and_has_the_rank_correlation():
    prompts, outputs = sample(COPULA)
    assert rank_correlation(prompts, outputs) == pytest.approx(-0.4, abs=4 / np.sqrt(20_000))
    free = SPEC.validate_python(COPULA | {"rank_correlation": 0.0}).sample(20_000, Streams(1))
    assert np.array_equal(np.sort(prompts), np.sort(free[0]))
    assert np.array_equal(np.sort(outputs), np.sort(free[1]))


def test_outputs_follow_the_bin_of_the_prompt():
    prompts, outputs = sample(BINS)
    assert np.all(outputs[prompts <= 30] == 1)
    middle = (prompts > 30) & (prompts <= 60)
    assert set(outputs[middle]) == {5, 6}
    assert np.all(outputs[prompts > 60] == 9)


@pytest.mark.parametrize("data", [PAIRS, COPULA, BINS], ids=lambda data: next(iter(data)))
def test_spec_survives_a_round_trip(data):
    law = SPEC.validate_python(data)
    assert SPEC.validate_python(law.model_dump(mode="json")) == law
    assert hash(law) == hash(law.model_copy())


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({}, "exactly one"),
        (PAIRS | {"path": "a.csv"}, "exactly one"),
        ({"pairs": []}, "pairs"),
        ({"pairs": [[0, 1]]}, "pairs"),
        (PAIRS | {"block_rows": 0}, "block_rows"),
        (COPULA | {"rank_correlation": 1}, "rank_correlation"),
        (BINS | {"up_to": [30]}, "one more law"),
        (BINS | {"up_to": [60, 30]}, "ascend"),
    ],
)
def test_nonsense_is_refused_by_name(data, told):
    with pytest.raises(ValidationError, match=told):
        SPEC.validate_python(data)


def test_table_and_union_name_the_same_kinds():
    mapping = SPEC.json_schema()["discriminator"]["mapping"]
    assert set(mapping) == {law.model_fields["kind"].default for law in JOINTS}


def build(**data):
    return parse_workload({"arrivals": 2, "num_requests": 500, **data}).build(Streams(1))


def test_workload_takes_joint_lengths_instead_of_two_laws():
    trace = build(lengths=PAIRS)
    assert np.array_equal(trace.prompt_tokens, trace.output_tokens * 10)
    apart = build(prompt_tokens=5, output_tokens=6)
    assert np.array_equal(trace.arrival_s, apart.arrival_s)
    for bad in ({"lengths": PAIRS, "prompt_tokens": 5}, {"prompt_tokens": 5}):
        with pytest.raises(ValidationError, match="lengths"):
            build(**bad)


def test_reasoning_is_a_part_of_the_output_and_changes_nothing_else():
    laws = {"prompt_tokens": 50, "output_tokens": {"mean": 900, "cv": 1}}
    plain = build(**laws)
    share = {"values": [0.37, 0.92], "probs": [0.4, 0.6]}
    trace = build(**laws, reasoning=share)
    assert np.array_equal(trace.output_tokens, plain.output_tokens)
    parts = trace.columns["reasoning_tokens"] / trace.output_tokens
    assert np.mean(np.abs(parts - 0.92) < 0.01) == pytest.approx(0.6, abs=0.1)
    assert trace.content_hash() == plain.content_hash()
    for bad in ({"values": []}, {"values": [1.1]}, {"values": [1.0], "probs": [0.9]}):
        with pytest.raises(ValidationError, match=r"values|probs"):
            build(**laws, reasoning=bad)


def test_horizon_is_not_included():
    trace = build(prompt_tokens=5, output_tokens=6, horizon_s=20)
    assert trace.arrival_s[-1] < 20
    assert trace.provenance["dropped"]["select"] == 500 - len(trace)
    exact = parse_workload(
        {
            "arrivals": {"kind": "deterministic", "request_rate": 1},
            "prompt_tokens": 1,
            "output_tokens": 1,
            "horizon_s": 3,
        }
    ).build(Streams(1))
    assert exact.arrival_s.tolist() == [1.0, 2.0]


@pytest.mark.shared
def test_resampled_pairs_keep_what_filtering_did_to_arxiv(traces):
    name = "vidur_processed/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv.gz"
    prompts, outputs = sample({"path": str(traces / name)})
    assert (prompts + outputs).max() <= 4096
    assert correlation(prompts, outputs) == pytest.approx(-0.46, abs=0.02)
    shuffled = np.random.default_rng(1).permutation(outputs)
    assert np.mean(prompts + shuffled > 4096) == pytest.approx(0.059, abs=0.01)
