"""What every specification of a cost model has in common."""

from abc import ABC, abstractmethod

import numpy as np
from pydantic import BaseModel, ConfigDict

from simulator.cost.base import CostModel


class BaseCostSpec(BaseModel, ABC):
    """Parameters of a cost model: frozen, and unknown keys are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    @abstractmethod
    def build(self, rng: np.random.Generator) -> CostModel:
        """Return a fresh cost model; `rng` is its private random stream."""
