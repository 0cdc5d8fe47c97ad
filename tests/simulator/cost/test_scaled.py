"""`cost.scale`: every step takes so many times as long."""

import numpy as np
import pytest

from simulator import RunSpec, simulate
from simulator.cost import FixedSpec, ScaledCost, StepWork, TableCost, TableSpec
from simulator.errors import UserError
from simulator.report import machine

WORK = StepWork(32, 32 * 512, (), 32, 32)
WORKLOAD = {"name": "demo-chat", "num_requests": 60, "request_rate": 8}


def test_a_scale_of_one_is_the_model_itself() -> None:
    assert type(TableSpec().build_scaled(np.random.default_rng(0))) is TableCost


def test_every_step_takes_the_factor_longer() -> None:
    exact = TableSpec().cost()
    scaled = TableSpec(scale=1.15).build_scaled(np.random.default_rng(0))
    assert scaled.step_time(WORK) == exact.step_time(WORK) * 1.15
    assert isinstance(scaled, ScaledCost)
    run = scaled.decode_run(32, 32 * 512, 5)
    assert run.tolist() == (exact.decode_run(32, 32 * 512, 5) * 1.15).tolist()


def test_an_expectation_leaves_no_trace() -> None:
    huge = StepWork(100_000, 100_000, (), 100_000, 100_000)
    scaled = TableSpec(scale=2, noise_cv=0.1).build_scaled(np.random.default_rng(0))
    assert isinstance(scaled, ScaledCost)
    assert scaled.expected_time(WORK) == 2 * TableSpec().cost().step_time(WORK)
    plain = TableSpec(scale=2).build_scaled(np.random.default_rng(0))
    assert isinstance(plain, ScaledCost)
    assert plain.expected_time(huge) == plain.step_time(huge)
    assert plain.num_extrapolated == 1


@pytest.mark.parametrize("policy", ["vllm-v1", "static"])
def test_both_steppers_agree_on_scaled_steps(policy: str) -> None:
    spec = RunSpec.from_dict({"workload": WORKLOAD, "policy": policy, "cost": {"scale": 0.85}})
    assert simulate(spec).metrics == simulate(spec, stepper="reference").metrics


def test_slower_steps_make_slower_requests() -> None:
    def latency(scale: float) -> float:
        spec = RunSpec.from_dict({"workload": WORKLOAD, "cost": {"scale": scale}})
        return float(simulate(spec).metrics["mean_e2el_ms"] or 0)

    assert latency(0.85) < 0.9 * latency(1.0) < latency(1.0) < latency(1.15) / 1.1


def test_the_machine_is_named_with_its_scale() -> None:
    assert machine(RunSpec(cost=TableSpec(scale=1.15))).endswith("generic, times x 1.15)")
    assert machine(RunSpec(cost=FixedSpec(step_ms=5))) == "fixed cost (step_ms=5.0)"


def test_a_scale_of_nothing_is_refused() -> None:
    with pytest.raises(UserError, match=r"cost.scale"):
        RunSpec.from_dict({"cost": {"scale": 0}})
