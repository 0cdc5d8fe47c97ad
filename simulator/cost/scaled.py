"""A cost model whose steps all take a fixed factor longer."""

from collections.abc import Callable, Iterator
from copy import copy, deepcopy
from functools import cached_property
from typing import cast

import numpy as np
from numpy.typing import NDArray

from simulator.cost.base import CostModel, RunCostModel, StepWork


class ScaledCost:
    """A cost model whose step times are multiplied with a constant.

    Parameters
    ----------
    cost : CostModel
        The model.
    scale : float
        The factor, greater than 0.

    Examples
    --------
    >>> from simulator.cost import FixedCost
    >>> round(ScaledCost(FixedCost(0.02), 1.15).step_time(StepWork(num_rows=1)), 4)
    0.023
    """

    def __init__(self, cost: CostModel, scale: float) -> None:
        self.model = cost
        self.scale = scale

    @property
    def supports_runs(self) -> bool:
        """Tell whether whole runs of decode steps can be timed at once."""
        return getattr(self.model, "supports_runs", False)

    @property
    def num_extrapolated(self) -> int:
        """Steps so far outside the range of the model."""
        return self.model.num_extrapolated

    def step_time(self, work: StepWork) -> float:
        """Return the duration of the step, seconds."""
        return self.model.step_time(work) * self.scale

    def expected_time(self, work: StepWork) -> float:
        """Return the mean duration of such a step, seconds, without a trace in the model."""
        return self._expected(work) * self.scale

    @cached_property
    def _expected(self) -> Callable[[StepWork], float]:
        found = getattr(self.model, "expected_time", None)
        apart = copy(self.model) if self.supports_runs else deepcopy(self.model)
        return cast("Callable[[StepWork], float]", found or apart.step_time)

    def decode_times(self, num_decodes: int, context_tokens: int) -> Iterator[float]:
        """Yield the durations of consecutive decode steps, seconds (see `RunCostModel`)."""
        for seconds in self._runs.decode_times(num_decodes, context_tokens):
            yield seconds * self.scale

    def decode_run(
        self, num_decodes: int, context_tokens: int, num_steps: int
    ) -> NDArray[np.float64]:
        """Return the durations of consecutive decode steps, seconds (see `RunCostModel`)."""
        return self._runs.decode_run(num_decodes, context_tokens, num_steps) * self.scale

    def take_back(self, num_decodes: int, context_tokens: int, num_steps: int) -> None:
        """Remove steps from the count of extrapolated ones."""
        self._runs.take_back(num_decodes, context_tokens, num_steps)

    @property
    def _runs(self) -> RunCostModel:
        return cast("RunCostModel", self.model)
