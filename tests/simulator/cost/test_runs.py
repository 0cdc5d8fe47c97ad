from itertools import pairwise

import numpy as np
import pytest

from simulator.cost import (
    MODELS,
    EmpiricalSpec,
    ExponentialSpec,
    FixedCost,
    LinearBatchCost,
    LinearTokenCost,
    RunCostModel,
    StepWork,
    TableCost,
    load_profile,
    table_cost,
)
from simulator.cost.compiled import compile_tables
from simulator.cost.engine_profiles import EngineProfile

FORMULAS = (
    FixedCost(0.02),
    LinearBatchCost(alpha_s=0.1, tau0_s=0.03),
    LinearTokenCost(0.1, per_decode_s=0.01, per_prefill_token_s=0.3),
)
OVERLAPPING = EngineProfile("x", host_ms=5.0, host_ms_per_sequence=0.03, overlap=True)


def one_by_one(cost: RunCostModel, decodes: int, context: int, steps: int) -> np.ndarray:
    times = [
        cost.step_time(StepWork(decodes, context + step * decodes, (), decodes, decodes))
        for step in range(steps)
    ]
    return np.array(times)


def assert_same_bits(run: np.ndarray, steps: np.ndarray) -> None:
    assert run.dtype == np.float64
    assert run.tobytes() == steps.tobytes()


def table_models() -> list[TableCost]:
    tables = compile_tables(load_profile("h100"), MODELS["llama-3.1-8b"], 1)
    return [
        table_cost("h100", "llama-3.1-8b"),
        table_cost("a100", "llama-3.1-70b", 4),
        table_cost("b200", "qwen2.5-7b", engine_profile="ideal"),
        table_cost("l40s", "qwen3-14b", 2),
        TableCost(tables, OVERLAPPING, tp=1, kappa_mixed=1.0),
    ]


@pytest.mark.parametrize("index", range(5))
def test_a_run_gives_the_bits_of_its_steps(index: int) -> None:
    vector, scalar = table_models()[index], table_models()[index]
    rng = np.random.default_rng(index)
    for _ in range(150):
        decodes = int(2 ** rng.uniform(0, 13))
        mean = 2 ** rng.uniform(0, 18.5)
        context = max(decodes, int(decodes * mean) + int(rng.integers(0, decodes)))
        steps = int(rng.choice([0, 1, 2, 7, 60, 400]))
        run = vector.decode_run(decodes, context, steps)
        assert_same_bits(run, one_by_one(scalar, decodes, context, steps))
        assert vector.num_extrapolated == scalar.num_extrapolated
    assert scalar.num_extrapolated > 0


@pytest.mark.parametrize("decodes", [1, 3, 64, 513])
def test_a_run_that_crosses_every_boundary_of_the_pieces(decodes: int) -> None:
    vector, scalar = (table_cost("h100", "llama-3.1-8b") for _ in range(2))
    tables = compile_tables(load_profile("h100"), MODELS["llama-3.1-8b"], 1)
    starts = tables.decode_row(decodes).starts[1:]
    for start in starts:
        context = max(decodes, int(start * decodes) - 3 * decodes + 1)
        run = vector.decode_run(decodes, context, 7)
        assert_same_bits(run, one_by_one(scalar, decodes, context, 7))
    first, last = int(starts[0] * decodes), round(starts[12])
    assert_same_bits(
        vector.decode_run(decodes, first, last), one_by_one(scalar, decodes, first, last)
    )
    assert vector.num_extrapolated == scalar.num_extrapolated


def test_a_run_that_leaves_the_calibrated_range_counts_the_steps_outside() -> None:
    vector, scalar = (table_cost("h100", "llama-3.1-8b") for _ in range(2))
    longest = compile_tables(load_profile("h100"), MODELS["llama-3.1-8b"], 1).decode_row(2)
    context = 2 * round(longest.max_context) - 20
    vector.decode_run(2, context, 50)
    one_by_one(scalar, 2, context, 50)
    assert vector.num_extrapolated == scalar.num_extrapolated == 39


@pytest.mark.parametrize(("decodes", "context"), [(2, 65_500), (5000, 5000 * 300)])
def test_what_was_not_carried_out_can_be_taken_back(decodes: int, context: int) -> None:
    vector, scalar = (table_cost("h100", "llama-3.1-8b") for _ in range(2))
    for done in (0, 1, 30, 50):
        vector.decode_run(decodes, context, 50)
        vector.take_back(decodes, context + done * decodes, 50 - done)
        one_by_one(scalar, decodes, context, done)
        assert vector.num_extrapolated == scalar.num_extrapolated


@pytest.mark.parametrize("cost", FORMULAS, ids=lambda cost: type(cost).__name__)
def test_runs_of_a_formula(cost: RunCostModel) -> None:
    assert cost.supports_runs
    assert_same_bits(cost.decode_run(7, 100, 5), one_by_one(cost, 7, 100, 5))
    cost.take_back(7, 100, 5)
    assert cost.num_extrapolated == 0


def test_random_models_do_not_offer_runs() -> None:
    rng = np.random.default_rng(0)
    assert not ExponentialSpec(mean_ms=1).build(rng).supports_runs
    assert not EmpiricalSpec(values_ms=(1,), probs=(1,)).build(rng).supports_runs


def test_a_run_never_gets_faster() -> None:
    times = table_cost("h100", "llama-3.1-8b").decode_run(40, 40 * 300, 3000)
    assert all(later >= sooner for sooner, later in pairwise(times))


def test_a_run_without_decodes_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        table_cost("h100", "llama-3.1-8b").decode_run(0, 0, 3)
