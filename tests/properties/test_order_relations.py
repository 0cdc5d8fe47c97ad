"""Policies that have to be the same server in the limit, and one that can be worked out by hand."""

from typing import Any

import numpy as np
from hypothesis import event, given
from hypothesis import strategies as st

from simulator import simulate
from simulator.clock import up_to_grid
from simulator.cost import StepWork
from tests.properties.runs import property_test, spec_of
from tests.strategies import Scenario, scenarios

STREAM = {"max_batch_size": 1, "release": "per-request"}
SINGLE_SERVERS: dict[str, dict[str, Any]] = {
    "none": {"kind": "none"},
    "static": {"kind": "static", **STREAM},
    "window-pull": {"kind": "window-pull", "max_wait_ms": 0, **STREAM},
    "window-pull, waiting": {"kind": "window-pull", "max_wait_ms": 500, **STREAM},
    "window-enqueue": {
        "kind": "window-enqueue",
        "max_wait_ms": 0,
        "max_enqueued_batches": 1000,
        **STREAM,
    },
    "vllm-v1": {"kind": "vllm-v1", "max_num_seqs": 1},
}
COLUMNS = ("first_scheduled_s", "first_token_s", "last_token_s", "finish_s", "output_tokens")


def times(scenario: Scenario, policy: dict[str, Any]) -> dict[str, list[Any]]:
    table = simulate(spec_of(scenario, policy)).tables["requests"]
    return {name: table[name].tolist() for name in COLUMNS}


def roomy(scenario: Scenario) -> Scenario:
    return Scenario(scenario.rows, None, scenario.block_size, scenario.cost)


@property_test
@given(scenarios(max_requests=10).map(roomy))
def test_batches_of_one_are_the_first_come_first_served_server(scenario: Scenario) -> None:
    expected = times(scenario, SINGLE_SERVERS["none"])
    for name, policy in SINGLE_SERVERS.items():
        assert times(scenario, policy) == expected, name


@property_test
@given(scenarios(max_requests=10).map(roomy))
def test_the_first_come_first_served_server_follows_lindleys_recursion(scenario: Scenario) -> None:
    cost = scenario.cost.build(np.random.default_rng())
    free = 0.0
    starts, firsts, ends = [], [], []
    for arrival, prompt, output in scenario.rows:
        starts.append(max(free, arrival))
        free = starts[-1] + up_to_grid(cost.step_time(StepWork(0, 0, ((prompt, 0),), 1, 1)))
        firsts.append(free)
        for token in range(1, output):
            free += up_to_grid(cost.step_time(StepWork(1, prompt + token, (), 1, 1)))
        ends.append(free)
    found = times(scenario, SINGLE_SERVERS["none"])
    assert found["first_scheduled_s"] == starts
    assert found["first_token_s"] == firsts
    assert found["finish_s"] == ends


@property_test
@given(scenarios(max_requests=10).map(roomy), st.integers(1, 6), st.booleans())
def test_windows_of_no_length_are_static_batches(
    scenario: Scenario, rows: int, drop_finished: bool
) -> None:
    shared = {"max_batch_size": rows, "drop_finished": drop_finished}
    expected = times(scenario, {"kind": "static", **shared})
    pull = {"kind": "window-pull", "max_wait_ms": 0, **shared}
    assert times(scenario, pull) == expected


@property_test
@given(scenarios(max_requests=10).map(roomy), st.integers(1, 6))
def test_how_tokens_are_delivered_changes_nothing_but_their_delivery(
    scenario: Scenario, rows: int
) -> None:
    shared = {"kind": "static", "max_batch_size": rows}
    batched = times(scenario, shared | {"release": "per-batch"})
    streamed = times(scenario, shared | {"release": "per-request"})
    assert batched["first_scheduled_s"] == streamed["first_scheduled_s"]
    assert batched["output_tokens"] == streamed["output_tokens"]
    for late, early in zip(batched["finish_s"], streamed["finish_s"], strict=True):
        assert late >= early
    assert batched["first_token_s"] == batched["finish_s"]
    event(f"somebody waits for others: {batched['finish_s'] != streamed['finish_s']}")
