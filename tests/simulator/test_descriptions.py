"""What the text below a field says: in the schema, in lists, and after inheritance."""

import pytest
from pydantic import BaseModel

from policies import POLICIES, ROUTERS
from policies.budgets import BUDGETS
from policies.orders import ORDERS
from policies.predictors import PREDICTORS
from policies.sarathi import Decreasing
from policies.triton import PriorityQueuePolicy, QueuePolicy
from simulator.cost.spec import COSTS
from simulator.descriptions import descriptions
from simulator.regress.suite import SuiteSpec
from simulator.spec import Goodput, RunSpec

MODELS = (*POLICIES, *ROUTERS, *BUDGETS, *ORDERS, *PREDICTORS, *COSTS, Decreasing, SuiteSpec)


@pytest.mark.parametrize("model", MODELS)
def test_every_parameter_is_described(model: type[BaseModel]) -> None:
    assert set(model.model_fields) - {"kind"} <= set(descriptions(model))


def test_every_property_in_the_schema_is_described() -> None:
    schema = RunSpec.model_json_schema()
    models = [schema, *schema["$defs"].values()]
    assert len(models) > 50
    for model in models:
        for name, field in model.get("properties", {}).items():
            assert name == "kind" or field.get("description"), (model["title"], name)


def test_an_inherited_field_keeps_its_description() -> None:
    inherited, own = descriptions(QueuePolicy), descriptions(PriorityQueuePolicy)
    assert inherited
    assert own == inherited | {"priority_level": "The level they hold for."}


def test_a_field_defined_anew_does_not_keep_the_old_text() -> None:
    class Late(Goodput):
        """Not at the top of a module, so that its own text is not found."""

        ttft_ms: float | None = None
        """Something else."""

    assert "ttft_ms" not in descriptions(Late)
    assert descriptions(Late)["tpot_ms"] == descriptions(Goodput)["tpot_ms"]
