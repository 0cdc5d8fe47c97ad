"""R4, Clipper's AIMD: latency 2 + 1.5 b, objective 20, somebody always waits; seconds for ms."""

import pytest

from policies import ClipperAimd
from simulator import DecisionLog, RunSpec, simulate

SIZES = [1, 5, 9, 13, 11, 15, 13, 11, 15]
COST = {"kind": "linear-batch", "fixed_ms": 2000, "per_request_ms": 1500}


@pytest.fixture(params=["reference", "fast"])
def run(request, tmp_path):
    path = tmp_path / "trace.csv"
    rows = ["arrived_at,num_prefill_tokens,num_decode_tokens", *["0,1,1"] * sum(SIZES)]
    path.write_text("\n".join(rows) + "\n")
    policy = ClipperAimd(slo_ms=20_000, additive_increase=4)
    spec = RunSpec(workload={"path": str(path)}, policy=policy, cost=COST)
    log = DecisionLog()
    return simulate(spec, observers=[log], stepper=request.param), log.lines


def test_batches_grow_until_one_is_too_slow_and_shrink_then(run):
    result, _ = run
    assert result.tables["steps"]["prefill_chunks"].tolist() == SIZES


def test_latencies_are_those_of_the_example(run):
    result, _ = run
    steps = result.tables["steps"]
    latencies = (steps["end_s"] - steps["start_s"]).tolist()
    assert latencies == [3.5, 9.5, 15.5, 21.5, 18.5, 24.5, 21.5, 18.5, 24.5]
    assert steps["end_s"].tolist() == [3.5, 13, 28.5, 50, 68.5, 93, 114.5, 133, 157.5]


def test_companion_each_size_follows_from_the_batch_before(run):
    result, _ = run
    size = 1
    for found in result.tables["steps"]["prefill_chunks"].tolist():
        assert found == size
        size = size + 4 if 2 + 1.5 * size <= 20 else max(1, 9 * size // 10)


def test_companion_everybody_is_served_once_in_order(run):
    result, lines = run
    requests = result.tables["requests"]
    assert set(requests["state"]) == {"finished"}
    assert (requests["finish_s"][1:] >= requests["finish_s"][:-1]).all()
    assert sum(line.count("admit") for line in lines) == sum(SIZES)
    assert result.tables["steps"]["useful_tokens"].sum() == sum(SIZES)
