"""Token budgets: how much work a step of continuous batching may take on."""

from abc import ABC, abstractmethod
from typing import Literal

from pydantic import BaseModel, ConfigDict

from policies.base import View


class Budget(ABC):
    """Gives the token budget of each step."""

    is_constant: bool = False
    """Whether it is the same in every step."""

    @abstractmethod
    def tokens(self, view: View) -> int:
        """Return the budget of the next step, decodes included."""


class ConstantBudget(Budget):
    """The same in every step."""

    is_constant = True

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens

    def tokens(self, view: View) -> int:
        """Return the budget."""
        return self._tokens


class BudgetSpec(BaseModel, ABC):
    """Parameters of a budget."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @abstractmethod
    def build(self, max_num_batched_tokens: int) -> Budget:
        """Return a fresh budget that never exceeds `max_num_batched_tokens`."""


class Fixed(BudgetSpec):
    """Always `max_num_batched_tokens`."""

    kind: Literal["fixed"] = "fixed"

    def build(self, max_num_batched_tokens: int) -> Budget:
        """Return a fresh budget."""
        return ConstantBudget(max_num_batched_tokens)


BUDGETS = (Fixed,)
"""The budgets."""

AnyBudget = Fixed
"""Any of them, told apart by `kind`."""
