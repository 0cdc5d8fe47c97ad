"""What a person writes to have steps timed like those in the log of an engine."""

from typing import Literal

import numpy as np
from pydantic import Field, field_validator

from simulator.cost.spec_base import BaseCostSpec
from simulator.cost.step_linear import StepLinearCost
from simulator.cost.step_profile import read_step_profile


class StepLinearSpec(BaseCostSpec):
    """A step takes a time linear in its tokens, pairs and rows, fitted to an engine's log.

    Examples
    --------
    >>> StepLinearSpec(slowness=1.1).profile
    'cpu'
    """

    kind: Literal["step-linear"] = "step-linear"
    profile: str = "cpu"
    """A shipped profile (cpu), or the path of one that `batchlab calibrate --steps` wrote."""
    slowness: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Factor on the time of every step: how much slower the machine runs than for the fit."""

    @field_validator("profile")
    @classmethod
    def _can_be_read(cls, name: str) -> str:
        read_step_profile(name)
        return name

    def build(self, rng: np.random.Generator) -> StepLinearCost:
        """Return the cost model; `rng` is not used."""
        return StepLinearCost(read_step_profile(self.profile), self.slowness)
