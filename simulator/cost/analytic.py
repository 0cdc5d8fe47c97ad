"""Cost models with a formula: exact, for tests against theory and for simple machines.

The laws are those of the queueing literature on batch service: a fixed time, a time linear in the
batch size (Inoue 2021, "Queueing analysis of GPU-based inference servers with dynamic batching"),
a time linear in tokens, and random times.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate, repeat
from math import isfinite
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from simulator.cost.base import StepWork
from simulator.errors import UserError


class _EvenRuns:
    """Runs of a model whose step time does not depend on the context."""

    def step_time(self, work: StepWork) -> float:
        """Return the duration of the step, seconds."""
        raise NotImplementedError

    def decode_times(self, num_decodes: int, context_tokens: int) -> Iterator[float]:
        """Yield the duration of equal steps, seconds (see `RunCostModel`)."""
        work = StepWork(num_decodes, context_tokens, (), num_decodes, num_decodes)
        return repeat(self.step_time(work))

    def decode_run(
        self, num_decodes: int, context_tokens: int, num_steps: int
    ) -> NDArray[np.float64]:
        """Return the durations of `num_steps` equal steps, seconds (see `RunCostModel`)."""
        work = StepWork(num_decodes, context_tokens, (), num_decodes, num_decodes)
        return np.full(num_steps, self.step_time(work))

    def take_back(self, num_decodes: int, context_tokens: int, num_steps: int) -> None:
        """Do nothing: a formula is never extrapolated."""


class FixedCost(_EvenRuns):
    """Every step takes the same time.

    Parameters
    ----------
    step_s : float
        Duration of a step, seconds, greater than 0.

    Examples
    --------
    >>> FixedCost(0.5).step_time(StepWork(num_decodes=3, num_rows=3))
    0.5
    """

    num_extrapolated = 0
    supports_runs = True

    def __init__(self, step_s: float) -> None:
        self._step = _positive("step_s", step_s)

    def step_time(self, work: StepWork) -> float:
        """Return the duration of the step, seconds."""
        return self._step


class LinearBatchCost(_EvenRuns):
    """A step takes `tau0 + alpha * rows`.

    Parameters
    ----------
    alpha_s : float
        Time per batch row, seconds, at least 0.
    tau0_s : float
        Time of an empty batch, seconds, at least 0.

    Examples
    --------
    >>> LinearBatchCost(alpha_s=0.25, tau0_s=1.0).step_time(StepWork(num_rows=4))
    2.0
    """

    num_extrapolated = 0
    supports_runs = True

    def __init__(self, alpha_s: float, tau0_s: float) -> None:
        self._alpha = _not_negative("alpha_s", alpha_s)
        self._tau0 = _not_negative("tau0_s", tau0_s)

    def step_time(self, work: StepWork) -> float:
        """Return the duration of the step, seconds."""
        return self._tau0 + self._alpha * work.num_rows


class LinearTokenCost(_EvenRuns):
    """A step takes `t0 + per_decode * decodes + per_prefill_token * prompt tokens`.

    Parameters
    ----------
    t0_s : float
        Time of an empty step, seconds, at least 0.
    per_decode_s : float
        Time per decoding row, seconds, at least 0.
    per_prefill_token_s : float
        Time per prompt token, seconds, at least 0.

    Examples
    --------
    >>> LinearTokenCost(1.0, 0.5, 0.25).step_time(StepWork(num_decodes=2, chunks=((4, 0),)))
    3.0
    """

    num_extrapolated = 0
    supports_runs = True

    def __init__(self, t0_s: float, per_decode_s: float, per_prefill_token_s: float) -> None:
        self._t0 = _not_negative("t0_s", t0_s)
        self._per_decode = _not_negative("per_decode_s", per_decode_s)
        self._per_prefill_token = _not_negative("per_prefill_token_s", per_prefill_token_s)

    def step_time(self, work: StepWork) -> float:
        """Return the duration of the step, seconds."""
        tokens = 0
        for chunk, _past in work.chunks:
            tokens += chunk
        return self._t0 + self._per_decode * work.num_decodes + self._per_prefill_token * tokens


class ExponentialCost:
    """A step takes an exponentially distributed time.

    Parameters
    ----------
    mean_s : float
        Mean of one draw, seconds, greater than 0.
    per : {"batch", "request"}
        One draw for the whole batch, or one draw per batch row with the rows served one after
        the other (the sum of the draws).
    rng : numpy.random.Generator
        Stream that is used for nothing else.

    Examples
    --------
    >>> cost = ExponentialCost(2.0, "batch", np.random.default_rng(1))
    >>> cost.step_time(StepWork(num_rows=1)) > 0
    True
    """

    num_extrapolated = 0
    supports_runs = False

    def __init__(
        self, mean_s: float, per: Literal["batch", "request"], rng: np.random.Generator
    ) -> None:
        if per not in ("batch", "request"):
            raise UserError(f"per {per!r}: expected batch or request")
        self._mean = _positive("mean_s", mean_s)
        self._per_request = per == "request"
        self._draw = rng.standard_exponential

    def step_time(self, work: StepWork) -> float:
        """Return the duration of the step, seconds."""
        if not self._per_request:
            return self._mean * self._draw()
        total = 0.0
        for _ in range(work.num_rows):
            total += self._draw()
        return self._mean * total

    def expected_time(self, work: StepWork) -> float:
        """Return the mean duration of such a step, seconds; nothing is drawn."""
        return self._mean * (work.num_rows if self._per_request else 1)


class EmpiricalCost:
    """A step takes one of a list of times, drawn with given probabilities.

    Parameters
    ----------
    values_s : sequence of float
        Durations, seconds, each greater than 0; at least one.
    probs : sequence of float
        Probability of each duration, at least 0, sum 1 within 1e-9.
    rng : numpy.random.Generator
        Stream that is used for nothing else.

    Examples
    --------
    >>> EmpiricalCost([0.5], [1.0], np.random.default_rng(1)).step_time(StepWork(num_rows=1))
    0.5
    """

    num_extrapolated = 0
    supports_runs = False

    def __init__(
        self, values_s: Sequence[float], probs: Sequence[float], rng: np.random.Generator
    ) -> None:
        check_distribution(values_s, probs)
        self._values = [_positive("values_s", value) for value in values_s]
        self._bounds = list(accumulate(probs))[:-1]
        self._mean = sum(value * chance for value, chance in zip(values_s, probs, strict=True))
        self._draw = rng.random

    def step_time(self, work: StepWork) -> float:
        """Return the duration of the step, seconds."""
        return self._values[bisect_right(self._bounds, self._draw())]

    def expected_time(self, work: StepWork) -> float:
        """Return the mean duration of a step, seconds; nothing is drawn."""
        return self._mean


def check_distribution(values: Sequence[float], probs: Sequence[float]) -> None:
    """Refuse values and probabilities that do not make a distribution.

    Parameters
    ----------
    values, probs : sequence of float
        Values and their probabilities.

    Raises
    ------
    UserError
        If lengths differ or are 0, a probability is negative, or they do not sum to 1.

    Examples
    --------
    >>> check_distribution([1.0, 2.0], [0.5, 0.25])
    Traceback (most recent call last):
    simulator.errors.UserError: probs sum to 0.75: expected 1
    """
    if not values or len(values) != len(probs):
        raise UserError(
            f"{len(values)} values and {len(probs)} probs: expected as many, at least 1"
        )
    if min(probs) < 0:
        raise UserError(f"probs hold {min(probs)}: expected at least 0")
    if abs(sum(probs) - 1.0) > 1e-9:
        raise UserError(f"probs sum to {sum(probs):g}: expected 1")


def _positive(name: str, value: float) -> float:
    """Return the value, or refuse one that is not a finite number above 0."""
    if not (isfinite(value) and value > 0):
        raise UserError(f"{name} {value}: expected a finite number above 0")
    return float(value)


def _not_negative(name: str, value: float) -> float:
    """Return the value, or refuse one that is not a finite number of at least 0."""
    if not (isfinite(value) and value >= 0):
        raise UserError(f"{name} {value}: expected a finite number of at least 0")
    return float(value)
