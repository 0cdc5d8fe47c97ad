"""The worked examples as a person runs them: a trace file, a specification, a result."""

import pytest

from simulator import DecisionLog, RunSpec, simulate

R1 = [(0, 4, 2), (0, 2, 5), (0, 3, 3), (1, 2, 2)]
I4 = [(0, 5, 3), (0, 10, 2), (1.5, 3, 3)]


@pytest.fixture
def run(tmp_path):
    def _run(policy, requests, **parts):
        path = tmp_path / "trace.csv"
        rows = ["arrived_at,num_prefill_tokens,num_decode_tokens"]
        path.write_text("\n".join([*rows, *(f"{a},{p},{d}" for a, p, d in requests)]) + "\n")
        cost = {"kind": "fixed", "step_ms": 1000}
        data = {"workload": {"path": str(path)}, "policy": policy, "cost": cost, **parts}
        log = DecisionLog()
        return simulate(RunSpec.from_dict(data), observers=[log]), log.lines

    return _run


def test_static_batch_from_a_trace_file(run):
    result, lines = run({"kind": "static", "max_batch_size": 3}, R1)
    assert lines == [
        "0.000000000 admit 0 admit 1 admit 2 | 0:4 1:2 2:3",
        "1.000000000 | 0:1 1:1 2:1",
        "2.000000000 | 1:1 2:1",
        "3.000000000 | 1:1",
        "5.000000000 admit 3 | 3:2",
        "6.000000000 | 3:1",
    ]
    assert result.requests["finish_s"].tolist() == [5, 5, 5, 7]
    assert result.requests["ttft_s"].tolist() == [5, 5, 5, 6]


def test_chunked_prefill_from_a_trace_file(run):
    result, lines = run({"kind": "vllm-v1", "max_num_batched_tokens": 8}, I4)
    assert lines == [
        "0.000000000 admit 0 admit 1 | 0:5 1:3",
        "1.000000000 | 0:1 1:7",
        "2.000000000 admit 2 | 0:1 1:1 2:3",
        "3.000000000 | 2:1",
    ]
    assert result.requests["finish_s"].tolist() == [3, 3, 5]
    assert result.requests["first_token_s"].tolist() == [1, 2, 3]
    assert result.requests["tpot_s"].tolist() == [1, 1, 1]


def test_preemption_from_a_trace_file(run):
    engine = {"num_blocks": 5, "block_size": 4}
    result, lines = run("vllm-v1", [(0, 6, 8), (0, 6, 8)], engine=engine)
    assert lines == [
        "0.000000000 admit 0 admit 1 | 0:6 1:6",
        "1.000000000 | 0:1 1:1",
        "3.000000000 preempt 1 | 0:1",
        "4.000000000 | 0:1",
        "8.000000000 admit 1 | 1:9",
        "9.000000000 | 1:1",
    ]
    assert result.requests["finish_s"].tolist() == [8, 13]
    assert result.requests["num_preemptions"].tolist() == [0, 1]


@pytest.mark.parametrize(
    ("policy", "requests"), [("static", R1), ("vllm-v1", I4), ("none", I4), ("window-pull", R1)]
)
def test_companion_totals_are_the_workload(run, policy, requests):
    result, _ = run(policy, requests)
    assert result.metrics["completed"] == len(requests)
    assert result.requests["output_tokens"].tolist() == [d for _, _, d in requests]
    stored = sum(p + d - 1 for _, p, d in requests)
    assert result.steps["useful_tokens"].sum() == stored
