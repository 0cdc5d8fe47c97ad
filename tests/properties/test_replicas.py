"""Several replicas: nothing gets lost between them, and each is a machine of its own."""

from itertools import pairwise
from typing import Any

import numpy as np
from hypothesis import event, given
from hypothesis import strategies as st

from policies import PolicySpec
from tests.properties.runs import Traced, property_test, spec_of, trace
from tests.strategies import Scenario, policies, scenarios

ROUTERS: list[dict[str, Any]] = [
    {"kind": "round-robin"},
    {"kind": "random"},
    {"kind": "least-outstanding"},
    {"kind": "least-outstanding", "count": "tokens"},
    {"kind": "power-of-two", "refresh_interval_ms": 50.0},
]


def cluster(scenario: Scenario, policy: PolicySpec, number: int, router: dict[str, Any]) -> Traced:
    engine = {
        "block_size": scenario.block_size,
        "num_blocks": scenario.num_blocks,
        "num_replicas": number,
        "router": router,
    }
    return trace(spec_of(scenario, policy, engine=engine))


@property_test
@given(scenarios(), policies(), st.integers(2, 3), st.sampled_from(ROUTERS))
def test_nothing_gets_lost_between_replicas(
    scenario: Scenario, policy: PolicySpec, number: int, router: dict[str, Any]
) -> None:
    run = cluster(scenario, policy, number, router)
    table, steps = run.result.tables["requests"], run.result.tables["steps"]
    done = table["state"] == "finished"
    event(f"replicas in use: {len(set(table['replica'].tolist()))}")
    assert table["request_id"].tolist() == list(range(len(scenario.rows)))
    assert (done | (table["state"] == "rejected")).all()
    assert set(table["replica"].tolist()) <= set(range(number))
    assert run.count.in_system == (table["finish_s"] - table["arrival_s"]).sum()
    for replica in range(number):
        mine, rows = table["replica"] == replica, steps["replica"] == replica
        stored = (table["prompt_tokens"] + table["output_tokens"] - 1)[mine & done].sum()
        again = table["recomputed_tokens"][mine].sum()
        assert steps["useful_tokens"][rows].sum() == stored + again
        spans = list(zip(steps["start_s"][rows], steps["end_s"][rows], strict=True))
        assert all(end <= start for (_, end), (start, _) in pairwise(spans))


@property_test
@given(scenarios(), policies(), st.sampled_from(ROUTERS))
def test_a_router_of_one_replica_changes_nothing(
    scenario: Scenario, policy: PolicySpec, router: dict[str, Any]
) -> None:
    assert cluster(scenario, policy, 1, router).state() == trace(spec_of(scenario, policy)).state()


@property_test
@given(scenarios(), policies(), st.integers(2, 3))
def test_replicas_in_turn_are_as_many_runs_of_every_nth_request(
    scenario: Scenario, policy: PolicySpec, number: int
) -> None:
    """With deterministic steps, a replica does what it would do alone with its share."""
    table = cluster(scenario, policy, number, ROUTERS[0]).result.tables["requests"]
    for replica in range(number):
        rows = scenario.rows[replica::number]
        if not rows:
            continue
        share = Scenario(rows, scenario.num_blocks, scenario.block_size, scenario.cost)
        alone = trace(spec_of(share, policy)).result.tables["requests"]
        for name in ("first_scheduled_s", "first_token_s", "finish_s", "num_preemptions", "state"):
            assert np.array_equal(
                table[name][replica::number], alone[name], equal_nan=name.endswith("_s")
            )
