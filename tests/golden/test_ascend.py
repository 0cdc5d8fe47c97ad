"""D1, the dynamic batch of vllm-ascend: table, step and trace of the design page."""

from pathlib import Path

import pytest

from policies import Decision, VllmV1, Work
from policies.ascend_table import LookupTable, read_table
from policies.budgets import AscendTable
from policies.testing import ScriptedRequest, ScriptedView
from simulator import DecisionLog, RunSpec, simulate

TABLE = {
    (128, 2): {256: 22, 512: 34, 1024: 58},
    (128, 4): {256: 25, 512: 38, 1024: 62},
    (512, 2): {256: 27, 512: 40, 1024: 66},
    (512, 4): {256: 36, 512: 52, 1024: 80},
}


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Return the table of the example as a file."""
    rows = [
        f"{ctx},{number},{size},{cost}"
        for (ctx, number), costs in TABLE.items()
        for size, cost in costs.items()
    ]
    file = tmp_path / "profile_table.csv"
    file.write_text("\n".join(["ctx_len,d_num,chunk_size,cost", *rows]) + "\n")
    return str(file)


@pytest.mark.parametrize(
    ("slo", "largest"),
    [
        (50, {(128, 2): 512, (128, 4): 512, (512, 2): 512, (512, 4): 256}),
        (35, {(128, 2): 512, (128, 4): 256, (512, 2): 256}),
        (20, {}),
    ],
)
def test_largest_steps_within_the_objective(path: str, slo: float, largest: dict) -> None:
    assert LookupTable(read_table(path), slo).largest == largest


def step(path: str, contexts: tuple[int, ...] = (100, 300, 500), **switches: object) -> Decision:
    """Return the example's step: decodes, a prompt with 700 tokens left, a waiting one of 400."""
    budget = AscendTable(path=path, **switches)
    policy = VllmV1(max_num_batched_tokens=1024, budget=budget).build()
    waiting = ScriptedRequest(9, 400)
    prompt = ScriptedRequest(0, 1000, computed=300)
    decodes = [
        ScriptedRequest(i, n - 1, computed=n - 1, generated=1) for i, n in enumerate(contexts, 1)
    ]
    view = ScriptedView(waiting=[waiting], running=[prompt, *decodes])
    policy.on_submit(waiting, view)
    return policy.decide(view)


def test_step_within_50_ms_leaves_253_tokens_for_the_prompt(path: str) -> None:
    decision = step(path, slo_ms=50)
    assert decision.plan.chunks == (Work(0, 253),)
    assert decision.admit == ()


def test_miss_raises_the_budget_in_the_source(path: str) -> None:
    decision = step(path, slo_ms=35, on_miss="default")
    assert decision.plan.chunks == (Work(0, 700), Work(9, 321))


def test_miss_takes_the_smallest_step_by_default(path: str) -> None:
    decision = step(path, slo_ms=35)
    assert decision.plan.chunks == (Work(0, 253),)


def test_more_decodes_than_the_table_knows_are_a_miss(path: str) -> None:
    decision = step(path, (100,) * 5, slo_ms=50, on_miss="default")
    assert decision.plan.chunks == (Work(0, 700), Work(9, 319))
    assert step(path, (100,) * 5, slo_ms=50).plan.chunks == (Work(0, 251),)


def test_without_decodes_the_budget_is_the_full_one(path: str) -> None:
    decision = step(path, (), slo_ms=50)
    assert decision.plan.chunks == (Work(0, 700), Work(9, 324))


def trace(tmp_path: Path, slo_ms: float, policy: dict | None = None, scale: float = 1.0):
    """Run the example's trace with a ms as `scale` seconds; return metrics and decisions."""
    file = tmp_path / "trace.csv"
    file.write_text(f"arrived_at,num_prefill_tokens,num_decode_tokens\n0,8,5\n{5 * scale},40,2\n")
    ms = 1e3 * scale
    budget = {
        "kind": "ascend-table",
        "slo_ms": slo_ms if slo_ms <= 0 else slo_ms * ms,
        "ctx_lens": [64],
        "d_nums": [1, 2, 4],
        "chunk_sizes": [8, 16, 32, 64],
    }
    cost = {
        "kind": "linear",
        "fixed_ms": 10 * ms,
        "per_decode_us": 1e3 * ms,
        "per_prefill_token_us": 500 * ms,
    }
    default = {"kind": "vllm-v1", "max_num_batched_tokens": 64, "budget": budget}
    data = {"workload": {"path": str(file)}, "cost": cost, "policy": policy or default}
    log = DecisionLog()
    result = simulate(RunSpec.from_dict(data), observers=[log])
    return result, log.lines


REFINED = ["0 | 0:8", "14 | 0:1 1:15", "32.5 | 0:1 1:15", "51 | 0:1 1:10", "67 | 0:1 1:1"]
BASELINE = ["0 | 0:8", "14 | 0:1 1:40", "45 | 0:1 1:1", "57 | 0:1"]


@pytest.mark.parametrize(
    ("slo_ms", "lines", "gaps", "ttft"),
    [
        (20, REFINED, [18.5, 18.5, 16, 12], 62),
        (0, BASELINE, [31, 12, 11, 11], 40),
    ],
)
def test_objective_of_20_ms_trades_first_tokens_for_even_gaps(
    tmp_path: Path, slo_ms: float, lines: list[str], gaps: list[float], ttft: float
) -> None:
    result, log = trace(tmp_path, slo_ms)
    # A decision that repeats the one before adds no line.
    shown = [f"{float(line.split()[0]):g} | {line.split('| ')[1]}" for line in log]
    assert shown == lines
    requests, steps = result.tables["requests"], result.tables["steps"]
    of_both = result.tables["gaps"]
    assert sorted(set(of_both["gap_s"].tolist())) == sorted(set(gaps))
    assert of_both["count"].sum() == len(gaps) + 1  # B's second token shares a gap with A's
    assert requests["first_token_s"][1] - requests["arrival_s"][1] == ttft
    assert steps["end_s"].max() == 79


def test_real_milliseconds_give_the_same_steps(tmp_path: Path) -> None:
    for slo_ms in (20, 0):
        _, seconds = trace(tmp_path, slo_ms)
        _, milliseconds = trace(tmp_path, slo_ms, scale=1e-3)
        assert [s.split(" ", 1)[1] for s in seconds] == [m.split(" ", 1)[1] for m in milliseconds]


def test_companion_off_is_the_stock_scheduler(tmp_path: Path) -> None:
    stock = {"kind": "vllm-v1", "max_num_batched_tokens": 64}
    assert trace(tmp_path, -1)[1] == trace(tmp_path, 0, stock)[1]


def test_companion_baseline_is_the_stock_scheduler_with_decodes_first(tmp_path: Path) -> None:
    stock = {"kind": "vllm-v1", "max_num_batched_tokens": 64, "decodes_first": True}
    baseline = trace(tmp_path, 0)[1]
    assert baseline == trace(tmp_path, 0, stock)[1]
    # 10.6 (e): an objective that every step meets, and a table that reaches the cap.
    assert baseline == trace(tmp_path, 10_000)[1]
