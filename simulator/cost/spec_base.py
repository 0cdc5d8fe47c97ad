"""What every specification of a cost model has in common."""

from abc import ABC, abstractmethod

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from simulator.cost.base import CostModel
from simulator.cost.scaled import ScaledCost


class BaseCostSpec(BaseModel, ABC):
    """Parameters of a cost model: frozen, and unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    scale: float = Field(1.0, gt=0, allow_inf_nan=False)
    """Factor on the time of every step, such as 1.15: what if the model is 15 % too fast?"""

    @abstractmethod
    def build(self, rng: np.random.Generator) -> CostModel:
        """Return a fresh cost model, not scaled; `rng` is its private random stream."""

    def build_scaled(self, rng: np.random.Generator) -> CostModel:
        """Return a fresh cost model of which every step takes `scale` times as long.

        Parameters
        ----------
        rng : numpy.random.Generator
            Its private random stream.
        """
        cost = self.build(rng)
        return cost if self.scale == 1 else ScaledCost(cost, self.scale)
