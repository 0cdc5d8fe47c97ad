"""Advice: what is measured, how it is judged, and that its numbers are those of separate runs."""

from pathlib import Path
from typing import Any

import pytest

from simulator.advise import Comparison, Enquiry, Study, study
from simulator.advise.facts import Figure
from simulator.advise.search import (
    NONE,
    Family,
    Measured,
    Setting,
    families,
    mean_of,
    preferred,
    search,
)
from simulator.advise.text import advice_dict, advice_text, settings_table
from simulator.advise.workload import prepare
from simulator.errors import UserError
from simulator.experiments.sweep import run_sweep
from simulator.experiments.task import Row, Task
from simulator.metrics import Metrics
from simulator.run import simulate
from simulator.spec import RunSpec

COST = {"kind": "linear", "fixed_ms": 10, "per_decode_us": 20, "per_prefill_token_us": 40}
LENGTHS = {
    "prompt_tokens": {"mean": 200, "cv": 0.8},
    "output_tokens": {"mean": 20, "cv": 0.8},
    "num_requests": 40,
}
SPARSE = {"arrivals": {"kind": "poisson", "request_rate": 0.02}}
BURSTS = {"arrivals": {"kind": "gamma", "request_rate": 12.0, "burstiness": 0.2}}


def base(arrivals: dict[str, Any], **goodput: float) -> dict[str, Any]:
    data = {"workload": arrivals | LENGTHS, "cost": COST, "measure": {"goodput": goodput}}
    return prepare(RunSpec.from_dict(data).to_dict(), 0.9, is_sized=True).base


def run(stage: str, tasks: list[Task]) -> list[Row]:
    return run_sweep(tasks)


@pytest.fixture(scope="module")
def sparse() -> Study:
    return study(Enquiry(base(SPARSE, ttft_ms=200), seeds=3, search_seeds=1), run)


@pytest.fixture(scope="module")
def bursts() -> Study:
    return study(Enquiry(base(BURSTS, ttft_ms=200, tpot_ms=50), seeds=3, search_seeds=1), run)


def test_a_sparse_latency_critical_workload_is_told_not_to_batch(sparse: Study) -> None:
    assert sparse.nominal.verdict == "not worth it"
    assert sparse.nominal.met_without
    assert sparse.chosen == NONE
    assert sparse.spec.policy_kind == "none"
    assert {found.verdict for found in sparse.changed} == {"not worth it"}
    text = advice_text(sparse, "made up")
    assert "VERDICT: batching is not worth it; recommended: none [attainment without" in text
    assert "concurrency? -> sparse" in text
    assert "Best batching setting: batchlab run" in text


def test_waiting_for_company_costs_a_sparse_workload_the_whole_wait(sparse: Study) -> None:
    window = next(s for s in sparse.nominal.measured if dict(s)["kind"] == "window-pull")
    own = mean_of(sparse.nominal.measured[NONE], "p50_ttft_ms")
    waiting = mean_of(sparse.nominal.measured[window], "p50_ttft_ms")
    assert own is not None
    assert waiting == pytest.approx(own + float(str(dict(window)["max_wait_ms"])), rel=0.02)


def test_bursts_at_a_high_rate_are_told_to_batch(bursts: Study) -> None:
    assert bursts.nominal.verdict == "worth it"
    assert bursts.chosen == bursts.advised != NONE
    assert bursts.nominal.is_met
    assert dict(bursts.advised)["kind"] in ("vllm-v1", "sarathi")
    answer = advice_dict(bursts, "made up")
    assert answer["recommended"] == dict(bursts.advised)
    assert answer["findings"][3]["answer"] == "throughput"


def test_what_is_claimed_is_what_a_separate_run_gives(bursts: Study) -> None:
    spec = RunSpec.from_dict(advice_dict(bursts, "")["spec"])
    attained = [simulate(spec, replication=n).metrics["slo_attainment"] or 0 for n in range(3)]
    claimed = bursts.nominal.attained(bursts.advised)
    assert claimed.mean == pytest.approx(sum(attained) / 3)


@pytest.mark.parametrize("name", ["sparse", "bursts"])
def test_every_sentence_stands_beside_a_number(name: str, request: pytest.FixtureRequest) -> None:
    findings = advice_dict(request.getfixturevalue(name), "made up")["findings"]
    assert len(findings) == 10
    for finding in findings:
        assert finding["rule"]
        assert finding["statements"]
        for statement in finding["statements"]:
            assert statement["figures"], statement["text"]


def test_seeds_of_the_search_are_not_those_of_the_advice(bursts: Study) -> None:
    winner = bursts.advised
    assert bursts.searched[winner][0] not in bursts.nominal.measured[winner]


def test_the_number_of_runs_is_that_of_the_runs_made() -> None:
    made = []

    def counted(stage: str, tasks: list[Task]) -> list[Row]:
        made.extend(tasks)
        return [{"metrics": metrics(0.5)} for _ in tasks]

    found = study(Enquiry(base(SPARSE, ttft_ms=200), seeds=2, search_seeds=1), counted)
    assert found.num_runs == len(made) + 2  # no batching itself


def test_the_table_has_a_row_for_every_stage_and_setting(bursts: Study) -> None:
    table = settings_table(bursts)
    per_stage = table.groupby("stage").size()
    assert per_stage["search"] == len(bursts.searched)
    conditions = ["as it is", "load -30%", "load +30%", "step times -15%", "step times +15%"]
    assert list(per_stage.drop("search").loc[conditions]) == [len(bursts.nominal.measured)] * 5


def test_longer_steps_and_more_load_make_it_worse(bursts: Study) -> None:
    attained = {c.condition: c.attained(NONE).mean or 0 for c in bursts.changed}
    assert attained["load -30%"] > attained["load +30%"]
    assert attained["step times -15%"] > attained["step times +15%"]


def metrics(attained: float, latency: float | None = 100.0) -> Metrics:
    return {"slo_attainment": attained, "mean_e2el_ms": latency}


def setting(number: int) -> Setting:
    return (("kind", "static"), ("max_batch_size", number))


@pytest.mark.parametrize(
    ("without", "batched", "verdict"),
    [
        ([0.95, 0.96, 0.95], [1.0, 1.0, 1.0], "not worth it"),  # met without
        ([0.50, 0.51, 0.50], [0.9, 0.91, 0.9], "worth it"),
        ([0.50, 0.51, 0.50], [0.505, 0.515, 0.505], "not worth it"),  # gains too little
        ([0.50, 0.70, 0.60], [0.75, 0.70, 0.62], "not resolved"),
    ],
)
def test_the_verdict_follows_from_intervals(
    without: list[float], batched: list[float], verdict: str
) -> None:
    one = setting(4)
    measured = {NONE: [metrics(a) for a in without], one: [metrics(a) for a in batched]}
    assert Comparison("", measured, one, 0.9).verdict == verdict


def test_equal_settings_are_told_apart_by_response_time_then_by_order() -> None:
    measured = {
        setting(1): [metrics(0.90, 50)],
        setting(2): [metrics(0.996, 200)],
        setting(3): [metrics(0.998, 101)],
        setting(4): [metrics(1.0, 100)],
    }
    assert preferred(measured) == setting(3)


def test_the_search_walks_towards_the_best_and_stops() -> None:
    seen: list[Setting] = []

    def measure(settings: Any) -> Measured:
        seen.extend(settings)
        return {
            s: [metrics(1 - abs(float(str(dict(s)["max_batch_size"])) - 64) / 100)]
            for s in settings
        }

    best, _ = search([Family("static", {"max_batch_size": (16, 4)})], measure)
    assert dict(best["static"])["max_batch_size"] == 64
    assert len(seen) == len(set(seen))
    assert [dict(s)["max_batch_size"] for s in seen] == [16, 4, 8, 32, 64]


def test_tokens_are_streamed_where_an_objective_looks_at_them() -> None:
    assert families(True)[0].fixed == {"release": "per-request"}
    assert families(False)[0].fixed == {"release": "per-batch"}


def test_a_trace_differs_from_seed_to_seed_and_is_bounded(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    rows = [f"{i * 0.5 + i % 7 * 0.01:.3f},{10 + i % 50},{5 + i % 9}" for i in range(1000)]
    file.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]) + "\n")
    data = {"workload": {"path": str(file)}, "measure": {"goodput": {"ttft_ms": 100}}}
    found = prepare(RunSpec.from_dict(data).to_dict(), 0.95, is_sized=False)
    assert "every seed draws its windows" in found.about
    spec = RunSpec.from_dict(found.base)
    assert 95 in spec.measure.percentiles
    first, second = (simulate(spec, replication=n) for n in (0, 1))
    assert len(first.trace) == len(second.trace) == 600
    assert first.trace.content_hash() != second.trace.content_hash()


def test_a_figure_without_a_value_says_so() -> None:
    assert str(Figure("MFU", None)) == "MFU n/a"


def test_a_workload_whose_load_cannot_be_changed_is_refused() -> None:
    data = {
        "workload": LENGTHS | {"kind": "closed", "num_users": 3, "think_s": 1.0},
        "measure": {"goodput": {"ttft_ms": 100}},
        "cost": COST,
    }
    with pytest.raises(UserError, match="its load cannot be changed"):
        study(Enquiry(RunSpec.from_dict(data).to_dict()), run)
