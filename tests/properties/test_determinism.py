"""Equal inputs give equal outputs, whatever else runs, and unequal policies equal workloads."""

from typing import Any

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from policies import Machine, OneAtATime, PolicySpec, Static, VllmV1
from simulator import RunSpec, simulate
from tests.properties.runs import property_test, spec_of, specs, trace
from tests.strategies import Scenario, policies, scenarios

LENGTHS: list[Any] = [
    3,
    {"kind": "uniform", "low": 1, "high": 30},
    {"kind": "lognormal", "mean": 12, "cv": 1.5, "max": 40, "truncation": "clip"},
]
COSTS: list[Any] = [
    {"kind": "exponential", "mean_ms": 40},
    {"kind": "exponential", "mean_ms": 10, "per": "request"},
    {"kind": "empirical", "values_ms": [5, 90], "probs": [0.8, 0.2]},
    {"kind": "linear", "fixed_ms": 5, "per_decode_us": 300, "per_prefill_token_us": 900},
    {"kind": "table", "gpu": "l40s"},
]


@st.composite
def random_workloads(draw: st.DrawFn) -> dict[str, Any]:
    """Draw the laws of a workload, or a preset."""
    if draw(st.booleans()):
        return {"name": draw(st.sampled_from(["demo-chat", "azure-conv-2023"])), "num_requests": 9}
    rate = draw(st.sampled_from([0.5, 10.0]))
    arrivals = draw(st.sampled_from([{}, {"cv": 3}, {"kind": "deterministic"}]))
    return {
        "arrivals": {"request_rate": rate, **arrivals},
        "prompt_tokens": draw(st.sampled_from(LENGTHS)),
        "output_tokens": draw(st.sampled_from(LENGTHS)),
        "num_requests": draw(st.integers(1, 20)),
    }


@st.composite
def random_specs(draw: st.DrawFn) -> RunSpec:
    """Draw a run with random arrivals, lengths and step times."""
    return RunSpec(
        workload=draw(random_workloads()),
        policy=draw(policies()),
        cost=draw(st.sampled_from(COSTS)),
        seed=draw(st.integers(0, 5)),
    )


@settings(property_test, max_examples=20)
@given(st.lists(random_specs() | specs(), min_size=2, max_size=4), st.randoms())
def test_runs_are_the_same_in_any_order_in_one_process(chosen: list[RunSpec], order: Any) -> None:
    first = [trace(spec).state() for spec in chosen]
    again = list(range(len(chosen))) * 2
    order.shuffle(again)
    for number in again:
        assert trace(chosen[number]).state() == first[number]


@property_test
@given(random_specs(), policies(), st.sampled_from(COSTS), st.integers(0, 3))
def test_neither_policy_nor_machine_changes_the_workload(
    spec: RunSpec, policy: PolicySpec, cost: Any, replication: int
) -> None:
    tables = Machine(131_072, spec.engine.block_size)  # the limits of the costs of kind table
    assume(policy.refusal(tables) is None is spec.policy.refusal(tables))
    machine = RunSpec(cost=cost).cost
    other = spec.model_copy(update={"policy": policy, "cost": machine})
    one, two = (simulate(run, replication=replication) for run in (spec, other))
    for name in ("arrival_s", "prompt_tokens", "target_output_tokens", "max_tokens"):
        assert np.array_equal(one.tables["requests"][name], two.tables["requests"][name]), name


def with_blocks(scenario: Scenario, num_blocks: int | None) -> Scenario:
    return Scenario(scenario.rows, num_blocks, scenario.block_size, scenario.cost)


@property_test
@given(
    scenarios(max_requests=12),
    st.one_of(
        st.builds(
            VllmV1,
            max_num_batched_tokens=st.integers(1, 80),
            max_num_seqs=st.integers(1, 6),
            scheduler_reserve_full_isl=st.just(False),
        ),
        st.builds(Static, max_batch_size=st.integers(1, 5)),
        st.just(OneAtATime()),
    ),
    st.integers(1, 50),
)
def test_more_kv_changes_nothing_where_none_was_lacking(
    scenario: Scenario, policy: PolicySpec, more: int
) -> None:
    """A run that never used more than n blocks at once is the same with n blocks, or more.

    Under these policies, who is served depends on the blocks that he needs in the same step. (The
    full reservation of `vllm-v1` looks at later steps, so it can refuse with blocks to spare.)
    """
    free = trace(spec_of(with_blocks(scenario, None), policy))
    most = int(free.result.tables["steps"]["kv_blocks_used"].max())
    for blocks in (most, most + more):
        again = trace(spec_of(with_blocks(scenario, blocks), policy))
        assert again.lines == free.lines
        for name, columns in free.result.tables.items():
            for column, values in columns.items():
                found = again.result.tables[name][column]
                assert found.tobytes() == values.tobytes(), f"{name}.{column}"


@property_test
@given(scenarios(max_requests=12), st.integers(1, 80), st.integers(1, 6))
def test_a_larger_cache_never_leads_to_a_preemption_where_a_smaller_one_had_room(
    scenario: Scenario, budget: int, rows: int
) -> None:
    """With blocks for everybody's last token at once, nobody is ever preempted or held back."""
    policy = VllmV1(max_num_batched_tokens=budget, max_num_seqs=rows)
    sizes = [
        -(-(prompt + output - 1) // scenario.block_size) for _, prompt, output in scenario.rows
    ]
    enough = sum(sorted(sizes)[-rows:])
    free = trace(spec_of(with_blocks(scenario, None), policy))
    tight = trace(spec_of(with_blocks(scenario, enough), policy))
    assert tight.lines == free.lines
    assert not tight.result.tables["requests"]["num_preemptions"].any()
