"""Policies that have to be the same server in the limit, and one that can be worked out by hand."""

from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import event, given
from hypothesis import strategies as st

from policies import POLICIES
from simulator import RunSpec, simulate
from simulator.clock import up_to_grid
from simulator.cost import FixedSpec, StepWork
from tests.properties.runs import property_test, spec_of
from tests.strategies import TICK, Scenario, orcas, scenarios, statics

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
    "window-freeze": {"kind": "window-freeze", "max_wait_ms": 0, **STREAM},
    "triton": {"kind": "triton", **STREAM},
    "clipper-aimd": {"kind": "clipper-aimd", **STREAM},
    "orca": {"kind": "orca", "max_bs": 1},
    "vllm-v0": {"kind": "vllm-v0", "max_num_seqs": 1},
    "vllm-v1": {"kind": "vllm-v1", "max_num_seqs": 1},
    "sarathi": {"kind": "sarathi", "max_num_seqs": 1},
    "priority": {"kind": "vllm-v1", "max_num_seqs": 1, "order": "priority"},  # all equal
    "edf": {"kind": "vllm-v1", "max_num_seqs": 1, "order": "edf"},  # no deadlines
    "predicted alike": {
        "kind": "vllm-v1",
        "max_num_seqs": 1,
        "order": {"kind": "sjf", "predictor": "constant", "work": "output-tokens"},
    },
}
COLUMNS = ("first_scheduled_s", "first_token_s", "last_token_s", "finish_s", "output_tokens")


def times(scenario: Scenario, policy: dict[str, Any]) -> dict[str, list[Any]]:
    table = simulate(spec_of(scenario, policy)).tables["requests"]
    return {name: table[name].tolist() for name in COLUMNS}


def roomy(scenario: Scenario) -> Scenario:
    return Scenario(scenario.rows, None, scenario.block_size, scenario.cost)


@property_test
@given(
    scenarios(max_requests=10).map(roomy),
    st.lists(st.sampled_from(sorted(SINGLE_SERVERS)), min_size=5, max_size=5, unique=True),
)
def test_batches_of_one_are_the_first_come_first_served_server(
    scenario: Scenario, names: list[str]
) -> None:
    expected = times(scenario, SINGLE_SERVERS["none"])
    for name in names:
        assert times(scenario, SINGLE_SERVERS[name]) == expected, name


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


def test_every_policy_is_a_single_server_in_the_limit() -> None:
    kinds = {policy["kind"] for policy in SINGLE_SERVERS.values()}
    assert kinds == {policy.model_fields["kind"].default for policy in POLICIES}


@property_test
@given(scenarios(), st.one_of(statics(), orcas()))
def test_who_reserves_for_the_whole_life_is_never_preempted(
    scenario: Scenario, policy: Any
) -> None:
    table = simulate(spec_of(scenario, policy)).tables["requests"]
    event(f"scarce: {scenario.num_blocks is not None}")
    assert not table["num_preemptions"].any()


def in_unit_steps(scenario: Scenario) -> Scenario:
    """Return the scenario on a machine whose steps all take a tick, with prompts of one token."""
    rows = tuple((arrival, 1, output) for arrival, _, output in scenario.rows)
    return Scenario(rows, None, scenario.block_size, FixedSpec(step_ms=1e3 * TICK))


SEAT = {"kind": "vllm-v1", "max_num_seqs": 1}
RIVALS: list[dict[str, Any]] = [
    *SINGLE_SERVERS.values(),
    SEAT | {"order": "sjf"},
    SEAT | {"order": {"kind": "sjf", "predictor": "noisy-oracle"}},
    SEAT | {"order": {"kind": "srpt", "predictor": {"kind": "noisy-oracle", "sigma": 2}}},
    SEAT | {"order": {"kind": "edf", "ttft_slo_ms": 20, "tpot_slo_ms": 9, "preemptive": True}},
]


@property_test
@given(scenarios(max_requests=10).map(in_unit_steps), st.sampled_from(RIVALS))
def test_nobody_with_one_seat_has_a_lower_mean_flow_time_than_the_shortest_remainder(
    scenario: Scenario, rival: dict[str, Any]
) -> None:
    """On every sequence of arrivals, where a preemption costs nothing (Schrage 1968)."""
    best, other = (
        sum(map(Fraction, times(scenario, policy)["finish_s"]))
        for policy in (SEAT | {"order": "srpt"}, rival)
    )
    event(f"strictly: {best < other}")
    assert best <= other


@property_test
@given(scenarios(max_requests=10).map(roomy))
def test_orders_that_do_not_preempt_keep_the_work_that_waits(scenario: Scenario) -> None:
    """The sum of service x wait is the same in any order, with one seat: the conservation law."""
    sums = set()
    for order in ("fcfs", "priority", "sjf", {"kind": "edf", "ttft_slo_ms": 50}):
        table = simulate(spec_of(scenario, SEAT | {"order": order})).tables["requests"]
        service = table["finish_s"] - table["first_scheduled_s"]
        wait = table["first_scheduled_s"] - table["arrival_s"]
        sums.add(
            sum(
                Fraction(s) * Fraction(w)
                for s, w in zip(service.tolist(), wait.tolist(), strict=True)
            )
        )
    assert len(sums) == 1


def mean_of(name: str, policy: dict[str, Any], rate: float, **engine: Any) -> float:
    """Return a metric of 300 short requests, mean over three seeds."""
    workload = {"arrivals": rate, "prompt_tokens": 8, "output_tokens": {"mean": 12, "cv": 1}}
    cost = {"kind": "linear", "fixed_ms": 10, "per_decode_us": 100, "per_prefill_token_us": 100}
    spec = RunSpec(
        workload=workload | {"num_requests": 300},
        policy=policy,
        cost=cost,
        engine=engine,
        measure={"horizon_s": 250 / rate},
    )
    return float(np.mean([simulate(spec, replication=i).metrics[name] for i in range(3)]))


def test_longer_windows_make_larger_batches_in_the_mean() -> None:
    for kind in ("window-pull", "window-enqueue", "window-freeze"):
        policies = [
            {"kind": kind, "max_batch_size": 64, "max_wait_ms": wait} for wait in (0, 300, 1500)
        ]
        sizes = [mean_of("mean_batch_size", policy, 20) for policy in policies]
        assert sizes == sorted(sizes), kind
        assert sizes[0] < sizes[-1]


def test_more_blocks_finish_no_fewer_tokens_in_the_mean() -> None:
    found = [
        mean_of("output_throughput", {"kind": "vllm-v1"}, 100, num_blocks=number, block_size=4)
        for number in (40, 80, 1000)
    ]
    assert found == sorted(found)
    assert found[0] < found[-1]
