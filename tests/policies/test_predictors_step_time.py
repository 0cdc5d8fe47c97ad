"""`View.step_time`: a policy may ask how long a step takes, and the run does not notice."""

import numpy as np
import pytest

from policies.base import ALL_RUNNING, Decision, Plan, Trigger, View, Work
from simulator.cost import ExponentialSpec, StepWork, TableSpec, table_cost
from simulator.cost.analytic import LinearTokenCost
from simulator.view import step_timer
from tests.simulator.harness import Odd, Scripted, column, run


def test_it_is_what_the_machine_takes():
    seen: list[float] = []

    def decide(view: View, trigger: Trigger) -> Decision:
        joining = tuple(Work(r.id, r.remaining) for r in view.waiting)
        if not joining and not len(view.running):
            return Decision()
        chunks = [(work.tokens, 0) for work in joining]
        seen.append(view.step_time(view.running.num_decodes, view.context_tokens, chunks))
        return Decision(Plan(ALL_RUNNING, joining), admit=tuple(r.id for r in view.waiting))

    result = run([(0, 100, 3), (0.001, 700, 4)], Scripted(decide=decide), TableSpec())
    starts, ends = (column(result, name, "steps") for name in ("start_s", "end_s"))
    took = [end - start for start, end in zip(starts, ends, strict=True)]
    assert seen[: len(took) - 1] == pytest.approx(took[:-1], rel=1e-6)


def test_steps_that_are_only_predicted_are_not_counted_as_extrapolated():
    cost = table_cost("h100", "llama-3.1-8b")
    far = StepWork(1, 10**6, (), 1, 1)
    assert step_timer(cost)(far) > 0
    assert cost.num_extrapolated == 0
    assert step_timer(cost)(far) == cost.step_time(far)
    assert cost.num_extrapolated == 1


def test_predictions_draw_nothing_from_the_stream_of_the_run():
    def durations(ask: bool) -> list[float]:
        cost = ExponentialSpec(mean_ms=10).build(np.random.default_rng(1))
        timer = step_timer(cost)
        work = StepWork(1, 8, (), 1, 1)
        drawn = []
        for _ in range(5):
            if ask:
                timer(work)
            drawn.append(cost.step_time(work))
        return drawn

    assert durations(ask=True) == durations(ask=False)


def test_a_model_may_say_what_it_expects():
    class Random(LinearTokenCost):
        supports_runs = False

        def expected_time(self, work: StepWork) -> float:
            return 7.0

    assert step_timer(Random(1.0, 0.0, 0.0))(StepWork(num_rows=1)) == 7.0


def test_a_model_of_your_own_needs_nothing_more():
    seen: list[float] = []

    def decide(view: View, trigger: Trigger) -> Decision:
        seen.append(view.step_time(2, 10, ((5, 0),)))
        return Decision(reject=tuple((r.id, "full") for r in view.waiting))

    def seconds(work: StepWork) -> float:
        return work.num_tokens + work.num_sampled / 8

    run([(0, 1, 1)], Scripted(decide=decide), Odd(seconds=seconds))
    assert seen[0] == 7 + 3 / 8
