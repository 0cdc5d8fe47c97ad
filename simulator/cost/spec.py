"""What a person writes to choose a cost model; each kind builds one."""

from abc import ABC, abstractmethod
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from simulator.cost.analytic import (
    EmpiricalCost,
    ExponentialCost,
    FixedCost,
    LinearBatchCost,
    LinearTokenCost,
    check_distribution,
)
from simulator.cost.base import CostModel
from simulator.cost.engine_profiles import find_engine_profile
from simulator.cost.gpus import find_gpu
from simulator.cost.memory import KvCapacity, kv_capacity
from simulator.cost.models import check_tp, find_model
from simulator.cost.table import TableCost, table_cost


class BaseCostSpec(BaseModel, ABC):
    """Parameters of a cost model: frozen, and unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @abstractmethod
    def build(self, rng: np.random.Generator) -> CostModel:
        """Return a fresh cost model; `rng` is its private random stream."""


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


class TableSpec(BaseCostSpec):
    """Step times of a model on a GPU, from measured kernels.

    Examples
    --------
    >>> spec = TableSpec(gpu="h100", model="llama-3.1-8b")
    >>> spec.build(np.random.default_rng(0)).calibration["num_decodes"]
    (1.0, 2048.0)
    """

    kind: Literal["table"] = "table"
    gpu: str = "h100"
    """GPU type: a key of `GPUS`."""
    model: str = "llama-3.1-8b"
    """Model: a key of `MODELS`."""
    tp: int = 1
    """GPUs that share every layer: 1, 2, 4 or 8."""
    dtype: Literal["bfloat16"] = "bfloat16"
    """Number format of weights and KV cache."""
    engine_profile: str = "generic"
    """What the engine adds: a key of `ENGINE_PROFILES`."""
    kappa_mixed: float | None = Field(None, ge=0, allow_inf_nan=False)
    """Factor on decode attention in a step with prompt chunks; by default that of the GPU."""
    memory_utilisation: float = Field(0.9, gt=0, le=1)
    """Fraction of the GPU memory that the engine may use."""

    @field_validator("gpu")
    @classmethod
    def _known_gpu(cls, key: str) -> str:
        return find_gpu(key).key

    @field_validator("model")
    @classmethod
    def _known_model(cls, key: str) -> str:
        return find_model(key).key

    @field_validator("engine_profile")
    @classmethod
    def _known_engine_profile(cls, name: str) -> str:
        return find_engine_profile(name).name

    @model_validator(mode="after")
    def _tp_divides(self) -> Self:
        check_tp(find_model(self.model), self.tp)
        return self

    def build(self, rng: np.random.Generator) -> TableCost:
        """Return the cost model; `rng` is not used."""
        return table_cost(
            self.gpu,
            self.model,
            self.tp,
            engine_profile=self.engine_profile,
            kappa_mixed=self.kappa_mixed,
        )

    def kv_capacity(
        self, *, block_size: int = 16, max_num_batched_tokens: int = 8192
    ) -> KvCapacity:
        """Return the KV cache of one engine on this hardware.

        Parameters
        ----------
        block_size : int
            Tokens per block, at least 1.
        max_num_batched_tokens : int
            Token budget of a step, at least 1.

        Returns
        -------
        KvCapacity
            Blocks and the budget they come from.

        Raises
        ------
        UserError
            If the model does not fit.

        Examples
        --------
        >>> TableSpec().kv_capacity().num_blocks
        27276
        """
        return kv_capacity(
            find_gpu(self.gpu),
            find_model(self.model),
            self.tp,
            memory_utilisation=self.memory_utilisation,
            block_size=block_size,
            max_num_batched_tokens=max_num_batched_tokens,
        )


COSTS = (FixedSpec, LinearBatchSpec, LinearSpec, ExponentialSpec, EmpiricalSpec, TableSpec)
"""The kinds of cost model."""

CostSpec = Annotated[
    FixedSpec | LinearBatchSpec | LinearSpec | ExponentialSpec | EmpiricalSpec | TableSpec,
    Field(discriminator="kind"),
]
"""Any of them, told apart by `kind`."""
