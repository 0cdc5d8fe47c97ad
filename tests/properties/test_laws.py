"""Laws of queueing that hold on every run, not just in the mean; grid times make them exact."""

from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import event, given
from hypothesis import strategies as st

from policies import OneAtATime, PolicySpec, Release, Static, VllmV1
from simulator import RunSpec, simulate
from simulator.clock import up_to_grid
from simulator.cost import StepWork
from tests.properties.runs import property_test, spec_of, specs, trace
from tests.strategies import Scenario, policies, scenarios


def total(values: Any) -> Fraction:
    """Return the exact sum of floats."""
    return sum((Fraction(value) for value in values.tolist()), Fraction())


@property_test
@given(specs())
def test_littles_law_holds_in_the_system(spec: RunSpec) -> None:
    """On a run that starts and ends empty, ∫N dt = sum of the times in the system, exactly."""
    run = trace(spec)
    table = run.result.tables["requests"]
    assert Fraction(run.count.in_system) == total(table["finish_s"] - table["arrival_s"])


@property_test
@given(specs())
def test_littles_law_holds_in_the_queue(spec: RunSpec) -> None:
    run = trace(spec)
    table = run.result.tables["requests"]
    event(f"preempted: {bool(table['num_preemptions'].any())}")
    if table["num_preemptions"].any():
        return  # they wait more than once; the table knows the first time only
    done = table["state"] == "finished"
    assert Fraction(run.count.in_queue) == total(
        (table["first_scheduled_s"] - table["arrival_s"])[done]
    )
    metrics = run.result.metrics
    if metrics["duration_s"]:
        waiting = metrics["mean_num_waiting"] * metrics["duration_s"]
        assert np.isclose(waiting, run.count.in_queue, rtol=1e-12, atol=1e-12)


def greedy() -> st.SearchStrategy[PolicySpec]:
    """Draw policies under which everybody who runs is in every step."""
    rows = st.integers(1, 6)
    return st.one_of(
        st.just(OneAtATime()),
        st.builds(VllmV1, max_num_seqs=rows),
        st.builds(Static, max_batch_size=rows, release=st.just("per-request")),
    )


def without_limit(scenario: Scenario) -> Scenario:
    return Scenario(scenario.rows, None, scenario.block_size, scenario.cost)


@property_test
@given(scenarios().map(without_limit), greedy())
def test_littles_law_holds_in_the_batch(scenario: Scenario, policy: PolicySpec) -> None:
    result = simulate(spec_of(scenario, policy))
    table, steps = result.tables["requests"], result.tables["steps"]
    durations = steps["end_s"] - steps["start_s"]
    batch = steps["decode_rows"] + steps["prefill_chunks"]
    assert (batch == steps["num_running"]).all()
    inside = total(table["finish_s"] - table["first_scheduled_s"])
    assert total(batch * durations) == inside
    metrics = result.metrics
    running = metrics["mean_num_running"] * metrics["duration_s"]
    assert np.isclose(running, float(inside), rtol=1e-12)
    busy = metrics["busy_fraction"] * metrics["duration_s"]
    assert np.isclose(metrics["mean_batch_size"] * busy, float(inside), rtol=1e-12)


@property_test
@given(specs())
def test_the_utilisation_law_holds(spec: RunSpec) -> None:
    """Busy share = completions a second x busy time a completion; and it is what the steps say."""
    result = simulate(spec)
    steps, metrics = result.tables["steps"], result.metrics
    busy = total(steps["end_s"] - steps["start_s"])
    if not metrics["completed"]:
        assert busy == 0
        return
    share = metrics["request_throughput"] * float(busy / metrics["completed"])
    assert np.isclose(metrics["busy_fraction"], share, rtol=1e-12)
    assert metrics["busy_fraction"] <= 1 + 1e-12


@property_test
@given(scenarios())
def test_one_at_a_time_the_busy_time_is_the_sum_of_the_services(scenario: Scenario) -> None:
    result = simulate(spec_of(without_limit(scenario), OneAtATime()))
    table, steps = result.tables["requests"], result.tables["steps"]
    services = table["finish_s"] - table["first_scheduled_s"]
    assert total(steps["end_s"] - steps["start_s"]) == total(services)


@property_test
@given(specs())
def test_the_first_token_and_the_gaps_make_the_latency(spec: RunSpec) -> None:
    tables = simulate(spec).tables
    table, gaps = tables["requests"], tables["gaps"]
    done = table["state"] == "finished"
    spread = (table["last_token_s"] - table["first_token_s"])[done]
    assert total(gaps["gap_s"] * gaps["count"]) == total(spread)


PATIENT = {"window-pull", "window-enqueue", "window-freeze", "triton", "clipper-aimd"}
"""Policies that may let a request wait for company."""


@property_test
@given(scenarios(max_requests=1), policies())
def test_a_request_alone_takes_its_own_steps_and_no_other_time(
    scenario: Scenario, policy: PolicySpec
) -> None:
    spec = spec_of(scenario, policy)
    tables = simulate(spec).tables
    table, steps = tables["requests"], tables["steps"]
    if table["state"][0] == "rejected":
        return
    busy = total(steps["end_s"] - steps["start_s"])
    assert Fraction(table["finish_s"][0]) - Fraction(table["first_scheduled_s"][0]) == busy
    if spec.policy_kind not in PATIENT:
        assert table["first_scheduled_s"][0] == table["arrival_s"][0]
    prompts = steps["decode_rows"] == 0
    streamed = getattr(policy, "release", Release.PER_REQUEST) is Release.PER_REQUEST
    if streamed:
        prefill = total((steps["end_s"] - steps["start_s"])[prompts])
        ttft = Fraction(table["first_token_s"][0]) - Fraction(table["first_scheduled_s"][0])
        assert ttft == prefill
        ((_, prompt, output),) = scenario.rows
        cost = scenario.cost.build(np.random.default_rng())
        gap = up_to_grid(cost.step_time(StepWork(1, prompt + 1, (), 1, 1)))
        gaps = tables["gaps"]
        assert gaps["count"].sum() == output - 1
        assert set(gaps["gap_s"].tolist()) <= {gap}


@property_test
@given(st.integers(1, 4), st.integers(1, 5), st.sampled_from([0.0, 0.25, 2.0]), st.integers(1, 3))
def test_a_closed_system_keeps_its_clients(
    users: int, turns: int, think_s: float, seats: int
) -> None:
    """Each client is always in the system or thinking: N = X (R + Z), before any limit."""
    workload = {
        "kind": "closed",
        "num_users": users,
        "think_s": think_s,
        "prompt_tokens": 3,
        "output_tokens": {"kind": "uniform", "low": 1, "high": 9},
        "num_requests": users * turns,
    }
    policy = {"kind": "vllm-v1", "max_num_seqs": seats}
    cost = {"kind": "fixed", "step_ms": 31.25}
    result = simulate(RunSpec(workload=workload, policy=policy, cost=cost))
    table, user = result.tables["requests"], result.trace.columns["conversation"]
    spans = Fraction()
    for number in range(users):
        mine = user == number
        spans += Fraction(table["finish_s"][mine].max()) - Fraction(table["arrival_s"][mine].min())
    responses = total(table["finish_s"] - table["arrival_s"])
    assert spans == responses + users * (turns - 1) * Fraction(think_s)
    # X <= min(1 / S, N / (S + Z)), with `seats` servers whose fastest service is one step.
    makespan = float(table["finish_s"].max() - table["arrival_s"].min())
    service = table["output_tokens"] * 0.03125
    assert makespan >= service.sum() / seats - 1e-9
    assert spans >= total(service) + users * (turns - 1) * Fraction(think_s)
