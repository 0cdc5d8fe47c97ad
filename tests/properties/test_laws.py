"""Laws of queueing that hold on every run, not just in the mean; grid times make them exact."""

from fractions import Fraction
from typing import Any

import numpy as np
from hypothesis import event, given
from hypothesis import strategies as st

from policies import OneAtATime, PolicySpec, Static, VllmV1
from simulator import RunSpec, simulate
from tests.properties.runs import property_test, spec_of, specs, trace
from tests.strategies import Scenario, scenarios


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
