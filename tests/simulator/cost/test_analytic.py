import math

import numpy as np
import pytest

from simulator.cost import (
    EmpiricalCost,
    ExponentialCost,
    FixedCost,
    LinearBatchCost,
    LinearTokenCost,
    StepWork,
)
from simulator.errors import UserError

WORK = StepWork(num_decodes=3, context_tokens=30, chunks=((8, 0), (4, 16)), num_rows=5)
NUM_DRAWS = 40_000


def draws(cost: ExponentialCost | EmpiricalCost, work: StepWork) -> np.ndarray:
    return np.array([cost.step_time(work) for _ in range(NUM_DRAWS)])


def test_fixed() -> None:
    assert FixedCost(0.25).step_time(WORK) == 0.25


def test_linear_in_the_batch() -> None:
    assert LinearBatchCost(alpha_s=0.5, tau0_s=0.125).step_time(WORK) == 0.125 + 0.5 * 5


def test_linear_in_the_tokens() -> None:
    cost = LinearTokenCost(0.5, per_decode_s=0.25, per_prefill_token_s=0.125)
    assert cost.step_time(WORK) == 0.5 + 0.25 * 3 + 0.125 * 12


def test_exponential_per_batch_has_mean_and_deviation_of_an_exponential() -> None:
    times = draws(ExponentialCost(0.02, "batch", np.random.default_rng(7)), WORK)
    bound = 4 / math.sqrt(NUM_DRAWS)
    assert times.mean() == pytest.approx(0.02, rel=bound)
    # var(CV estimate) of an exponential is about 1 / n
    assert times.std() / times.mean() == pytest.approx(1, rel=bound)


def test_exponential_per_request_is_a_sum_of_draws() -> None:
    times = draws(ExponentialCost(0.02, "request", np.random.default_rng(7)), WORK)
    bound = 4 / math.sqrt(NUM_DRAWS)
    assert times.mean() == pytest.approx(5 * 0.02, rel=bound / math.sqrt(5))
    assert times.std() / times.mean() == pytest.approx(1 / math.sqrt(5), rel=bound)


def test_empirical_frequencies() -> None:
    cost = EmpiricalCost([1.0, 2.0, 4.0], [0.5, 0.0, 0.5], np.random.default_rng(7))
    times = draws(cost, WORK)
    assert set(times) == {1.0, 4.0}
    assert (times == 1.0).mean() == pytest.approx(0.5, abs=4 * 0.5 / math.sqrt(NUM_DRAWS))


def test_equal_seeds_give_equal_times() -> None:
    pair = [ExponentialCost(1.0, "batch", np.random.default_rng(3)) for _ in range(2)]
    assert [pair[0].step_time(WORK) for _ in range(9)] == [
        pair[1].step_time(WORK) for _ in range(9)
    ]


def test_formulas_never_extrapolate() -> None:
    assert FixedCost(1.0).num_extrapolated == 0


@pytest.mark.parametrize(
    ("values", "probs", "message"),
    [
        ([], [], "expected as many, at least 1"),
        ([1.0], [0.5, 0.5], "expected as many"),
        ([1.0, 2.0], [1.5, -0.5], "at least 0"),
        ([1.0, 2.0], [0.5, 0.4], "probs sum to 0.9: expected 1"),
        ([1.0, 0.0], [0.5, 0.5], "values_s 0.0: expected a finite number above 0"),
    ],
)
def test_what_is_not_a_distribution_is_refused(
    values: list[float], probs: list[float], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        EmpiricalCost(values, probs, np.random.default_rng(0))


@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_a_step_has_to_take_a_finite_time(value: float) -> None:
    with pytest.raises(UserError, match="step_s"):
        FixedCost(value)
    with pytest.raises(UserError, match="mean_s"):
        ExponentialCost(value, "batch", np.random.default_rng(0))


def test_a_negative_slope_is_refused() -> None:
    with pytest.raises(UserError, match="alpha_s -1"):
        LinearBatchCost(-1.0, 1.0)


def test_an_unknown_kind_of_draw_is_refused() -> None:
    with pytest.raises(UserError, match="expected batch or request"):
        ExponentialCost(1.0, "step", np.random.default_rng(0))  # type: ignore[arg-type]
