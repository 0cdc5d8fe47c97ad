"""What a person writes to choose a cost model; each kind builds one."""

from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from simulator.cost.analytic import (
    EmpiricalCost,
    ExponentialCost,
    FixedCost,
    LinearBatchCost,
    LinearTokenCost,
    check_distribution,
)
from simulator.cost.spec_base import BaseCostSpec
from simulator.cost.step_spec import StepLinearSpec
from simulator.cost.table_spec import TableSpec
from workloads.base import ByKind

__all__ = [
    "COSTS",
    "BaseCostSpec",
    "CostSpec",
    "EmpiricalSpec",
    "ExponentialSpec",
    "FixedSpec",
    "LinearBatchSpec",
    "LinearSpec",
    "StepLinearSpec",
    "TableSpec",
]


class FixedSpec(BaseCostSpec):
    """Every step takes the same time.

    Examples
    --------
    >>> from simulator.cost import StepWork
    >>> FixedSpec(step_ms=20).build(np.random.default_rng(0)).step_time(StepWork(num_rows=1))
    0.02
    """

    kind: Literal["fixed"] = "fixed"
    step_ms: float = Field(gt=0, allow_inf_nan=False)
    """Duration of a step, ms."""

    def build(self, rng: np.random.Generator) -> FixedCost:
        """Return the cost model; `rng` is not used."""
        return FixedCost(self.step_ms / 1e3)


class LinearBatchSpec(BaseCostSpec):
    """A step takes a fixed time plus a time per batch row.

    Examples
    --------
    >>> from simulator.cost import StepWork
    >>> spec = LinearBatchSpec(fixed_ms=1000, per_request_ms=500)
    >>> spec.build(np.random.default_rng(0)).step_time(StepWork(num_rows=2))
    2.0
    """

    kind: Literal["linear-batch"] = "linear-batch"
    fixed_ms: float = Field(ge=0, allow_inf_nan=False)
    """Time of an empty batch, ms."""
    per_request_ms: float = Field(ge=0, allow_inf_nan=False)
    """Time per batch row, ms."""

    @model_validator(mode="after")
    def _some_time(self) -> Self:
        if self.fixed_ms == self.per_request_ms == 0:
            raise ValueError("fixed_ms and per_request_ms are both 0: a step has to take time")
        return self

    def build(self, rng: np.random.Generator) -> LinearBatchCost:
        """Return the cost model; `rng` is not used."""
        return LinearBatchCost(self.per_request_ms / 1e3, self.fixed_ms / 1e3)


class LinearSpec(BaseCostSpec):
    """A step takes a fixed time plus a time per decode and per prompt token.

    Examples
    --------
    >>> from simulator.cost import StepWork
    >>> spec = LinearSpec(fixed_ms=1000, per_decode_us=0, per_prefill_token_us=250_000)
    >>> spec.build(np.random.default_rng(0)).step_time(StepWork(chunks=((4, 0),)))
    2.0
    """

    kind: Literal["linear"] = "linear"
    fixed_ms: float = Field(gt=0, allow_inf_nan=False)
    """Time of an empty step, ms."""
    per_decode_us: float = Field(ge=0, allow_inf_nan=False)
    """Time per decoding row, µs."""
    per_prefill_token_us: float = Field(ge=0, allow_inf_nan=False)
    """Time per prompt token, µs."""

    def build(self, rng: np.random.Generator) -> LinearTokenCost:
        """Return the cost model; `rng` is not used."""
        return LinearTokenCost(
            self.fixed_ms / 1e3, self.per_decode_us / 1e6, self.per_prefill_token_us / 1e6
        )


class ExponentialSpec(BaseCostSpec):
    """A step takes an exponentially distributed time.

    Examples
    --------
    >>> ExponentialSpec(mean_ms=10).per
    'batch'
    """

    kind: Literal["exponential"] = "exponential"
    mean_ms: float = Field(gt=0, allow_inf_nan=False)
    """Mean of one draw, ms."""
    per: Literal["batch", "request"] = "batch"
    """One draw for the batch, or the sum of one draw per batch row."""

    def build(self, rng: np.random.Generator) -> ExponentialCost:
        """Return the cost model; it draws from `rng`."""
        return ExponentialCost(self.mean_ms / 1e3, self.per, rng)


class EmpiricalSpec(BaseCostSpec):
    """A step takes one of several times with given probabilities.

    Examples
    --------
    >>> EmpiricalSpec(values_ms=(10, 20), probs=(0.9, 0.1)).values_ms
    (10.0, 20.0)
    """

    kind: Literal["empirical"] = "empirical"
    values_ms: tuple[Annotated[float, Field(gt=0, allow_inf_nan=False)], ...]
    """Durations, ms."""
    probs: tuple[Annotated[float, Field(ge=0, le=1)], ...]
    """Probability of each duration; they sum to 1."""

    @model_validator(mode="after")
    def _is_distribution(self) -> Self:
        check_distribution(self.values_ms, self.probs)
        return self

    def build(self, rng: np.random.Generator) -> EmpiricalCost:
        """Return the cost model; it draws from `rng`."""
        return EmpiricalCost([value / 1e3 for value in self.values_ms], self.probs, rng)


COSTS = (
    FixedSpec,
    LinearBatchSpec,
    LinearSpec,
    StepLinearSpec,
    ExponentialSpec,
    EmpiricalSpec,
    TableSpec,
)
"""The kinds of cost model."""

CostSpec = Annotated[
    FixedSpec
    | LinearBatchSpec
    | LinearSpec
    | StepLinearSpec
    | ExponentialSpec
    | EmpiricalSpec
    | TableSpec,
    ByKind(COSTS),
]
"""Any of them, told apart by `kind`."""
