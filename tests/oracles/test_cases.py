"""Every case of the table of `batchlab theory`: the formula lies within the simulated interval."""

import sys

import pytest

from simulator import RunSpec, simulate
from simulator.theory.case import Case
from simulator.theory.compare import CASES, compare

FAMILIES = (
    "M/M/1",
    "M/D/1",
    "M/G/1",
    "M/M/c",
    "priorities (Cobham)",
    "SJF",
    "SRPT",
    "processor sharing",
    "M/M^[1,b]/1",
    "unlimited batch (Inoue)",
    "capped batch",
    "threshold batch",
    "timer only",
    "static efficiency",
    "M/M/1 each",
    "closed network",
)


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=() if case.is_quick else pytest.mark.slow) for case in CASES],
    ids=lambda case: case.name,
)
def test_theory_lies_within_the_interval(case: Case) -> None:
    """By the rule of the command: what is outside has to be inside at a second, fresh look."""
    rows = compare(case)
    for row in rows:
        sys.stdout.write(f"{case.name}: {row}\n")
    assert [row for row in rows if not row["inside"]] == []


def test_every_family_has_a_case_that_always_runs() -> None:
    assert {case.family for case in CASES if case.is_quick} == set(FAMILIES)
    assert {case.family for case in CASES} == {*FAMILIES, "continuous batches"}


def test_no_two_cases_share_name_or_seed() -> None:
    assert len({case.name for case in CASES}) == len(CASES)
    assert len({case.spec().seed for case in CASES}) == len(CASES)
    assert all(case.spec(1).seed != case.spec().seed for case in CASES)


def test_every_router_is_compared() -> None:
    from policies import ROUTERS

    kinds = {router.model_fields["kind"].default for router in ROUTERS}
    assert {case.policy.removeprefix("none, router ") for case in CASES} >= kinds


def test_continuous_batches_waste_no_row_and_no_seat_while_anyone_waits() -> None:
    """The efficiency that static batches are compared with is 1."""
    workload = {"arrivals": 1e6, "prompt_tokens": 1, "num_requests": 200}
    spec = RunSpec(
        workload=workload | {"output_tokens": {"kind": "exponential", "mean": 25}},
        policy={"kind": "vllm-v1", "max_num_seqs": 8},
        cost={"kind": "fixed", "step_ms": 1000},
    )
    steps = simulate(spec).tables["steps"]
    assert (steps["useful_tokens"] == steps["charged_tokens"]).all()
    waits = steps["num_waiting"] > 0
    assert waits.sum() > 100
    assert (steps["num_running"][waits][1:] == 8).all()  # the first arrival starts alone
