"""The search on a server whose metrics are known, and once on a simulated queue."""

import numpy as np
import pytest

from simulator.capacity import Question, find_capacity, measure_curve
from simulator.capacity.report import capacity_table, curve_table
from simulator.capacity.slo import parse_objective
from simulator.errors import RunError, UserError
from simulator.experiments.sweep import run_sweep
from simulator.experiments.task import Row, Task
from simulator.plots.capacity import goodput_curves
from simulator.spec import RunSpec

BASE = RunSpec().to_dict()
SLO = (parse_objective("mean_ttft_ms<=15"),)


def latency(rate: float, service_ms: float) -> float:
    """Mean time in an M/D/1 queue, ms; without limit when it is overloaded."""
    load = rate * service_ms / 1e3
    return service_ms * (1 + load / (2 * (1 - load))) if load < 1 else 1e6


class Server:
    """Answers with the formula and noise that seeds share across rates and policies."""

    def __init__(self, noise: float = 0.02) -> None:
        self.noise, self.tasks = noise, []

    def __call__(self, tasks: list[Task]) -> list[Row]:
        self.tasks += tasks
        return [{"metrics": self.metrics(task)} for task in tasks]

    def metrics(self, task: Task) -> dict[str, float]:
        noise = np.random.default_rng(task.replication).normal(1, self.noise)
        rate = task.spec.workload.request_rate
        service = {"vllm-v1": 10.0, "none": 5.0}[task.spec.policy_kind]
        mean = latency(rate / task.spec.engine.num_replicas, service) * noise
        return {"mean_ttft_ms": mean, "request_goodput": rate * 0.9, "realised_rate": rate,
                "request_throughput": rate, "slo_attainment": 0.9}  # fmt: skip


def test_the_capacity_of_a_known_queue_is_found_for_each_policy() -> None:
    """15 ms = 10 (1 + u / 2 (1 - u)) at load u = 1/2, 50 per s; 5 ms: at u = 0.8, 160 per s."""
    question = Question("rate", SLO, 1.0, 0.01, 1000.0)
    variants = [{"policy": "vllm-v1"}, {"policy": "none"}]
    server, told = Server(), []
    answers = find_capacity(BASE, variants, question, server, lambda *probe: told.append(probe))
    for answer, truth in zip(answers, (50.0, 160.0), strict=True):
        assert answer.status == "found"
        meets, misses = answer.resolved("meets"), answer.resolved("misses")
        assert meets <= truth <= misses
        assert answer.bracket.good == pytest.approx(truth, rel=0.05)
        assert misses / meets < 1.15
    replications = {task.replication for task in server.tasks}
    assert replications == set(range(20))  # the same seeds everywhere, doubled where it is close
    assert len(told) == sum(len(answer.probes) for answer in answers)


def test_without_noise_the_first_seeds_are_enough() -> None:
    server = Server(noise=0.0)
    question = Question("rate", SLO, 30.0, 10.0, 100.0, tolerance=0.01, seeds=3)
    (answer,) = find_capacity(BASE, [{}], question, server)
    assert answer.bracket.good <= 50.0 < answer.bracket.bad <= 1.01 * answer.bracket.good
    assert {task.replication for task in server.tasks} == {0, 1, 2}


def test_the_fewest_replicas_are_found() -> None:
    base = RunSpec(workload={"name": "azure-conv-2023", "request_rate": 240}).to_dict()
    question = Question("replicas", SLO, 1, 1, 64)
    (answer,) = find_capacity(base, [{}], question, Server(noise=0.001))
    assert (answer.bracket.good, answer.bracket.bad) == (5, 4)  # 48 per s each; 4: 60 each


def test_a_limit_outside_the_range_stops_the_search() -> None:
    strict = (parse_objective("mean_ttft_ms<=1"),)
    (answer,) = find_capacity(BASE, [{}], Question("rate", strict, 1, 0.1, 10), Server())
    assert (answer.status, answer.best) == ("never met", None)
    assert len(answer.probes) == 5
    (answer,) = find_capacity(BASE, [{}], Question("rate", SLO, 1, 0.1, 4), Server())
    assert (answer.status, answer.bracket.good) == ("always met", 4)
    question = Question("rate", strict, 1, 0.1, 10)
    assert list(capacity_table([answer], question)["status"]) == ["always met"]


def test_all_verdicts_of_a_search_hold_together() -> None:
    """The level of one is what is left over, shared by probes, looks and objectives."""
    one = Question("rate", SLO, 1.0, 0.5, 2.0, tolerance=0.5, seeds=5, max_seeds=5)
    # start, one step to either end, one halving: 3 verdicts
    assert one.verdict_confidence == pytest.approx(1 - 0.05 / 3)
    two = Question("rate", SLO * 2, 1.0, 0.5, 2.0, tolerance=0.5, seeds=5, max_seeds=20)
    assert two.verdict_confidence == pytest.approx(1 - 0.05 / 3 / 3 / 2)


def test_a_wrong_bracket_is_as_rare_as_stated() -> None:
    """In 100 searches with fresh noise, at most 5 % miss the truth (here: far fewer)."""

    class Fresh(Server):
        def __init__(self, search: int) -> None:
            super().__init__(0.05)
            self.search = search

        def metrics(self, task: Task) -> dict[str, float]:
            rng = np.random.default_rng([self.search, task.replication])
            rate = task.spec.workload.request_rate
            return {"mean_ttft_ms": latency(rate, 10.0) * rng.normal(1, self.noise)}

    question = Question("rate", SLO, 40.0, 20.0, 90.0, tolerance=0.05, max_seeds=10)
    wrong = 0
    for search in range(100):
        (answer,) = find_capacity(BASE, [{}], question, Fresh(search))
        meets, misses = answer.resolved("meets") or 0, answer.resolved("misses") or np.inf
        wrong += not meets <= 50 <= misses
    assert wrong <= 5


def test_the_table_of_probes_has_the_extra_rates_and_can_be_drawn() -> None:
    question = Question("rate", SLO, 30.0, 10.0, 200.0)
    variants = [{"policy": "vllm-v1"}, {"policy": "none"}]
    answers = find_capacity(BASE, variants, question, Server())
    measure_curve(BASE, answers, variants, question, [12.0, 30.0], Server())
    curve = curve_table(answers, question)
    for _, rows in curve.groupby("policy"):
        assert list(rows["request_rate"]) == sorted(set(rows["request_rate"]))
        assert {12.0, 30.0} <= set(rows["request_rate"])
    ax = goodput_curves(curve, limits=capacity_table(answers, question))
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["all requests", "vllm-v1", "none"]
    assert ax.get_xlabel() == "Offered load (requests/s)"
    without = curve.assign(request_goodput=np.nan)
    assert goodput_curves(without).get_ylabel() == "Throughput (requests/s)"


def test_a_run_that_fails_ends_the_search() -> None:
    def failing(tasks: list[Task]) -> list[Row]:
        return [{"error": "RuleBroken: no"} for _ in tasks]

    with pytest.raises(RunError, match="request_rate=1, replication 0: RuleBroken: no"):
        find_capacity(BASE, [{}], Question("rate", SLO, 1, 0.1, 4), failing)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"low": 2.0}, "--low 2, --start 1, --high 10: expected 0 < low <= start <= high"),
        ({"tolerance": 0.0}, "--tolerance 0: expected a number in 0.001..1"),
        ({"seeds": 1}, "--seeds 1, --max-seeds 20: expected 2 <= seeds <= max-seeds"),
        ({"confidence": 95}, "--confidence 95: expected a number between 0 and 1"),
    ],
)
def test_a_wrong_question_is_refused(change: dict[str, float], message: str) -> None:
    right = {"find": "rate", "objectives": SLO, "start": 1.0, "low": 0.1, "high": 10.0}
    with pytest.raises(UserError) as error:
        Question(**(right | change))
    assert str(error.value) == message


@pytest.mark.slow
def test_the_capacity_of_a_simulated_single_server_is_that_of_theory() -> None:
    """One request at a time, 10 ms each: an M/D/1 queue; mean time 15 ms at 50 per s."""
    base = RunSpec(
        workload={"arrivals": 1, "prompt_tokens": 1, "output_tokens": 1, "num_requests": 3000},
        policy="none",
        cost={"kind": "fixed", "step_ms": 10},
    ).to_dict()
    question = Question("rate", SLO, 45.0, 35.0, 60.0)
    (answer,) = find_capacity(base, [{}], question, lambda tasks: run_sweep(tasks))
    assert answer.resolved("meets") <= 50 <= answer.resolved("misses")
    assert answer.bracket.good == pytest.approx(50, rel=0.03)
