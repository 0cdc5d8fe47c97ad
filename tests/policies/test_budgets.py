import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from policies import VllmV1
from policies.budgets import BUDGETS, AscendTable, ConstantBudget, Fixed, ModelPredictive
from policies.testing import ScriptedRequest, ScriptedView
from policies.vllm_v1 import PRESETS
from simulator.cost import LinearSpec
from simulator.testing import check_policy
from tests.properties.runs import spec_of, trace
from tests.strategies import Scenario, scenarios, workloads


def decodes(number: int, context: int = 8) -> list[ScriptedRequest]:
    return [ScriptedRequest(i, context, computed=context, generated=1) for i in range(number)]


def linear(decodes: int, context: int, chunks) -> float:
    """Seconds of a step: 10 ms, 1 ms a decode, 0.5 ms a prompt token."""
    return 0.010 + 0.001 * decodes + 0.0005 * sum(tokens for tokens, _ in chunks)


def predictive(view: ScriptedView, cap: int = 8192, **parameters) -> int:
    return ModelPredictive(**({"slo_fraction": 1} | parameters)).build(cap).tokens(view)


def test_fixed_is_the_maximum():
    budget = Fixed().build(77)
    assert (budget.tokens(ScriptedView()), budget.is_constant, budget.at_least(3)) == (77, True, 77)


def test_prediction_counts_decodes_and_the_chunk():
    view = ScriptedView(running=decodes(4), step_time=linear)
    # 10 + 4 + 0.5 x 32 = 30.
    assert predictive(view, tpot_slo_ms=30) == 4 + 32
    assert predictive(view, tpot_slo_ms=29.9) == 4 + 31
    assert predictive(view, tpot_slo_ms=60, slo_fraction=0.5) == 4 + 32


def test_hopeless_target_leaves_the_smallest_chunk():
    view = ScriptedView(running=decodes(4), step_time=linear)
    assert predictive(view, tpot_slo_ms=20, min_chunk=1) == 4 + 12
    assert predictive(view, tpot_slo_ms=20) == 4 + 16
    assert predictive(view, tpot_slo_ms=1) == 4 + 16
    assert predictive(view, tpot_slo_ms=1, min_chunk=3) == 4 + 3


def test_budget_never_exceeds_the_cap():
    view = ScriptedView(running=decodes(4), step_time=linear)
    assert predictive(view, 30, tpot_slo_ms=1000) == 30
    assert predictive(view, 10, tpot_slo_ms=1) == 10
    assert predictive(view, 3, tpot_slo_ms=1) == 3


def test_without_decodes_nothing_has_to_be_met():
    view = ScriptedView(running=[ScriptedRequest(0, 99, computed=9)], step_time=linear)
    assert predictive(view, 500, tpot_slo_ms=1) == 500


def test_chunk_is_predicted_behind_what_the_first_prompt_has_stored():
    pasts = []

    def step_time(decodes: int, context: int, chunks) -> float:
        pasts.append(chunks[0][1])
        return linear(decodes, context, chunks)

    running = [*decodes(2), ScriptedRequest(7, 99, computed=30), ScriptedRequest(8, 99, computed=5)]
    predictive(ScriptedView(running=running, step_time=step_time))
    assert set(pasts) == {30}


def test_search_takes_few_predictions():
    calls = []
    view = ScriptedView(running=decodes(4), step_time=lambda *step: calls.append(step) or 0.01)
    predictive(view, tpot_slo_ms=20)
    assert len(calls) <= 13


def test_machine_is_asked_only_where_prompts_wait():
    calls = []
    policy = VllmV1(budget="model-predictive").build()
    step_time = lambda *step: calls.append(step) or 0.01  # noqa: E731
    plan = policy.decide(ScriptedView(running=decodes(4), step_time=step_time)).plan
    assert plan.steady
    assert not calls
    policy.decide(ScriptedView(running=decodes(4), waiting=[5], step_time=step_time))
    assert calls


@pytest.mark.parametrize(
    ("spec", "decodes_first"),
    [
        (Fixed(), False),
        (ModelPredictive(), False),
        (AscendTable(), True),
        (AscendTable(slo_ms=0), True),
        (AscendTable(slo_ms=-1), False),
    ],
    ids=repr,
)
def test_budget_says_whether_decodes_come_first_unless_the_policy_does(spec, decodes_first):
    running = [ScriptedRequest(9, 99, computed=4), *decodes(2)]
    view = ScriptedView(running=running, step_time=lambda *step: 9.0)

    def plan(**parameters):
        return VllmV1(max_num_batched_tokens=4, budget=spec, **parameters).build().decide(view).plan

    assert spec.decodes_first is decodes_first
    # Four tokens: decodes first leave two for the prompt, which would take them all.
    left = {True: 2, False: 4}
    assert plan(decodes_first=True).chunks[0].tokens == 2
    assert plan(decodes_first=False).chunks[0].tokens == 4
    assert plan().chunks[0].tokens == left[decodes_first]


def test_name_alone_stands_for_the_defaults():
    for cls in BUDGETS:
        assert VllmV1(budget=cls.model_fields["kind"].default).budget == cls()


@pytest.mark.parametrize(
    "budget",
    [
        "unlimited",
        {"kind": "model-predictive", "tpot_slo_ms": 0},
        {"kind": "model-predictive", "slo_fraction": 1.1},
        {"kind": "model-predictive", "min_chunk": 0},
        {"kind": "ascend-table", "slo_ms": -0.5},
        {"kind": "ascend-table", "slo_ms": -2},
        {"kind": "ascend-table", "on_miss": "max"},
        {"kind": "ascend-table", "d_nums": []},
        {"kind": "ascend-table", "ctx_lens": [4, 2]},
        {"kind": "ascend-table", "chunk_sizes": [0, 2]},
        {"kind": "ascend-table", "d_nums": [9], "chunk_sizes": [8]},
        {"kind": "fixed", "tokens": 5},
    ],
    ids=repr,
)
def test_nonsense_parameters_are_refused(budget):
    with pytest.raises(ValidationError):
        VllmV1(budget=budget)


def test_budget_that_cuts_prompts_contradicts_chunked_prefill_off():
    for budget in ("model-predictive", "ascend-table"):
        with pytest.raises(ValidationError, match=f"budget {budget} cuts prompts, but enable_chu"):
            VllmV1(budget=budget, enable_chunked_prefill=False)


@pytest.mark.parametrize("name", PRESETS)
def test_preset_pins_every_parameter(name):
    pinned = PRESETS[name]
    assert set(pinned) == set(VllmV1.model_fields) - {"kind", "preset"}
    spec = VllmV1(preset=name)
    assert spec == VllmV1(preset=name, **pinned)
    assert spec.model_dump(exclude={"preset"}) == VllmV1(**pinned).model_dump(exclude={"preset"})
    assert VllmV1.model_validate(spec.model_dump(mode="json")) == spec
    assert spec.build().limits.max_num_seqs == pinned["max_num_seqs"]


def test_presets_are_what_the_versions_had():
    assert VllmV1(preset="vllm-v1-2026").max_num_batched_tokens == 8192
    assert VllmV1(preset="vllm-v1-2026-small-gpu").max_num_seqs == 256
    ascend = VllmV1(preset="vllm-ascend-0.13")
    assert ascend.budget == AscendTable(on_miss="default", lookup_order="cpython_set")
    assert ascend.decodes_first


def test_given_parameters_stand_above_the_preset():
    spec = VllmV1(preset="vllm-v1-2026", max_num_seqs=5)
    assert (spec.max_num_seqs, spec.max_num_batched_tokens) == (5, 8192)
    with pytest.raises(ValidationError):
        VllmV1(preset="vllm-v1-1999")


FIXED_MS, DECODE_MS, PROMPT_MS = 2, 1, 0.5


@settings(max_examples=60, deadline=None, derandomize=True)
@given(workloads(), st.integers(3, 20), st.integers(1, 6), st.booleans())
def test_predicted_steps_meet_the_target_unless_the_floor_forbids(rows, slo_ms, floor, first):
    cost = LinearSpec(
        fixed_ms=FIXED_MS, per_decode_us=DECODE_MS * 1e3, per_prefill_token_us=PROMPT_MS * 1e3
    )
    budget = ModelPredictive(tpot_slo_ms=slo_ms, slo_fraction=1, min_chunk=floor)
    policy = VllmV1(budget=budget, decodes_first=first)
    result = trace(spec_of(Scenario(tuple(rows), None, 16, cost), policy)).result
    steps = result.tables["steps"]
    mixed = (steps["decode_rows"] > 0) & (steps["prefill_tokens"] > 0)
    within = steps["last_step_s"] <= slo_ms / 1e3 + 1e-8
    at_floor = steps["prefill_tokens"] <= floor
    assert np.all(within | at_floor | ~mixed)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(scenarios(), st.integers(8, 40), st.integers(1, 8))
def test_loose_table_that_reaches_the_cap_is_decodes_first_alone(
    scenario: Scenario, cap: int, seats: int
):
    # 10.6 (e): an objective of 0, a huge one, and the order without a budget are the same.
    common = {"max_num_batched_tokens": cap, "max_num_seqs": seats}
    grid = {"ctx_lens": [16, 64], "d_nums": [1, 2, 4, 8], "chunk_sizes": [8, 64]}
    policies = [
        VllmV1(decodes_first=True, **common),
        VllmV1(budget={"kind": "ascend-table", "slo_ms": 0}, **common),
        VllmV1(budget={"kind": "ascend-table", "slo_ms": 1e9, **grid}, **common),
    ]
    lines = [trace(spec_of(scenario, policy)).lines for policy in policies]
    assert lines[0] == lines[1] == lines[2]


def test_constant_budget_is_what_it_was_given():
    assert ConstantBudget(5).tokens(ScriptedView()) == 5


SMALL = {
    "kind": "ascend-table",
    "slo_ms": 8,
    "ctx_lens": [4, 16],
    "d_nums": [1, 2, 4],
    "chunk_sizes": [2, 8, 16],
}


@pytest.mark.parametrize(
    "parameters",
    [
        {"decodes_first": True, "max_num_batched_tokens": 3, "scheduler_reserve_full_isl": False},
        {"budget": SMALL, "max_num_batched_tokens": 30},
        {
            "budget": SMALL | {"on_miss": "default", "lookup_order": "cpython_set"},
            "scheduler_reserve_full_isl": False,
            "order": {"kind": "edf", "ttft_slo_ms": 20},
        },
        {
            "budget": {"kind": "model-predictive", "tpot_slo_ms": 8, "min_chunk": 1},
            "max_num_batched_tokens": 12,
        },
        {"preset": "vllm-ascend-0.13", "max_num_batched_tokens": 16},
    ],
    ids=repr,
)
def test_budgets_keep_the_contract(parameters):
    check_policy(VllmV1(**parameters), num_traces=10)
