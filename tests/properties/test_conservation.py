"""Nothing gets lost, nothing happens before its cause, and the machine works or rests."""

from itertools import pairwise

import numpy as np
from hypothesis import event, given

from simulator import RunSpec, simulate
from tests.properties.runs import Watched, property_test, specs, trace, view_of_last_run
from tests.strategies import orcas, sarathis, statics, vllm_v0s, vllm_v1s


@property_test
@given(specs())
def test_every_request_finishes_or_is_rejected_with_a_reason(spec: RunSpec) -> None:
    run = trace(spec)
    table = run.result.tables["requests"]
    assert table["request_id"].tolist() == list(range(len(run.result.trace)))
    event(f"rejected: {bool((table['state'] == 'rejected').any())}")
    for state, reason in zip(table["state"], table["reject_reason"], strict=True):
        assert (state == "finished" and not reason) or (state == "rejected" and reason)
    assert run.count.arrived == run.count.left == len(run.result.trace)


@property_test
@given(specs())
def test_every_token_is_computed_once_and_those_computed_again_are_counted(spec: RunSpec) -> None:
    result = simulate(spec)
    table, steps, gaps = (result.tables[name] for name in ("requests", "steps", "gaps"))
    done = table["state"] == "finished"
    event(f"preempted: {bool(table['num_preemptions'].any())}")
    assert (table["output_tokens"] == np.where(done, table["target_output_tokens"], 0)).all()
    stored = (table["prompt_tokens"] + table["output_tokens"] - 1)[done].sum()
    assert steps["useful_tokens"].sum() == stored + table["recomputed_tokens"].sum()
    assert gaps["count"].sum() + done.sum() == table["output_tokens"].sum()
    assert (steps["charged_tokens"] >= steps["useful_tokens"]).all()
    assert ((table["recomputed_tokens"] > 0) <= (table["num_preemptions"] > 0)).all()


@property_test
@given(specs())
def test_blocks_are_held_by_who_runs_and_all_come_back(spec: RunSpec) -> None:
    watched = spec.model_copy(update={"policy": Watched(inner=spec.policy)})
    result = simulate(watched)
    ledger = view_of_last_run().kv
    assert ledger.free == ledger.total
    if result.num_blocks is not None:
        steps = result.tables["steps"]
        assert ledger.total == result.num_blocks
        assert (steps["kv_blocks_used"] <= result.num_blocks).all()
        assert (steps["kv_blocks_used"] > 0).all()


@property_test
@given(specs())
def test_causes_come_before_effects(spec: RunSpec) -> None:
    table = simulate(spec).tables["requests"]
    done = table["state"] == "finished"
    names = ("arrival_s", "first_scheduled_s", "first_token_s", "last_token_s", "finish_s")
    times = [table[name][done] for name in names]
    for name, earlier, later in zip(names, times, times[1:], strict=False):
        assert (earlier <= later).all(), name
    assert (times[1] < times[2]).all()  # a step takes time
    assert (times[3] == times[4]).all()
    assert (np.diff(table["arrival_s"]) >= 0).all()
    single = table["output_tokens"][done] == 1
    assert (times[2] == times[3])[single].all()


@property_test
@given(specs(statics() | orcas() | vllm_v0s() | vllm_v1s() | sarathis()))
def test_the_machine_never_rests_while_somebody_waits(spec: RunSpec) -> None:
    """Work conservation: these policies have no timer, so only an arrival ends a rest."""
    result = simulate(spec)
    steps, table = result.tables["steps"], result.tables["requests"]
    arrivals = set(table["arrival_s"][table["state"] == "finished"].tolist())
    spans = list(zip(steps["start_s"].tolist(), steps["end_s"].tolist(), strict=True))
    for (_, end), (start, _) in pairwise(spans):
        assert end <= start
        assert end == start or start in arrivals
    event(f"rests: {any(end < start for (_, end), (start, _) in pairwise(spans))}")
    assert not spans or spans[0][0] in arrivals
