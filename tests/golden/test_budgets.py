"""D5, the model-predictive budget: the largest step that the cost model says meets the target."""

import pytest

from policies import VllmV1
from policies.budgets import ModelPredictive
from policies.testing import ScriptedRequest, ScriptedView
from simulator import DecisionLog, RunSpec, simulate


def test_ten_decodes_within_30_ms_leave_a_budget_of_1250_tokens():
    def step_time(decodes, context, chunks):
        return (5 + 0.02 * (decodes + sum(tokens for tokens, _ in chunks))) / 1e3

    running = [ScriptedRequest(i, 50, computed=50, generated=1) for i in range(10)]
    view = ScriptedView(running=running, step_time=step_time)
    budget = ModelPredictive(tpot_slo_ms=30, slo_fraction=1).build(8192)
    assert budget.tokens(view) == 1250
    assert ModelPredictive(tpot_slo_ms=30, slo_fraction=1).build(1000).tokens(view) == 1000


@pytest.mark.parametrize("kind", ["vllm-v1", "sarathi"])
def test_gaps_stay_within_the_target_and_prompts_use_it_up(tmp_path, kind):
    # Steps of 10 + decodes + 0.5 x prompt tokens; target 20. One decode leaves 18 prompt tokens.
    file = tmp_path / "trace.csv"
    file.write_text("arrived_at,num_prefill_tokens,num_decode_tokens\n0,8,5\n5,40,2\n")
    limit = {"vllm-v1": "max_num_batched_tokens", "sarathi": "chunk_size"}[kind]
    policy = {
        "kind": kind,
        limit: 64,
        "budget": {"kind": "model-predictive", "tpot_slo_ms": 20_000, "slo_fraction": 1},
    }
    cost = {
        "kind": "linear",
        "fixed_ms": 10_000,
        "per_decode_us": 1e6,
        "per_prefill_token_us": 5e5,
    }
    log = DecisionLog()
    data = {"workload": {"path": str(file)}, "cost": cost, "policy": policy}
    result = simulate(RunSpec.from_dict(data), observers=[log])
    work = [line.split("| ")[1] for line in log.lines]
    assert work == ["0:8", "0:1 1:18", "0:1 1:18", "0:1 1:4", "0:1 1:1"]
    gaps = result.tables["gaps"]
    assert sorted(gaps["gap_s"].tolist(), reverse=True) == [20, 20, 13, 12]
    assert int(gaps["count"].sum()) == 5


def test_companion_target_that_every_step_meets_is_a_fixed_budget(replay):
    requests = [(0, 5, 3), (0, 10, 2), (1.5, 3, 3)]
    fixed = replay(VllmV1(max_num_batched_tokens=8), requests)
    budget = ModelPredictive(tpot_slo_ms=5000)
    predicted = replay(VllmV1(max_num_batched_tokens=8, budget=budget), requests)
    assert predicted.lines == fixed.lines
    predicted.check_invariants()
