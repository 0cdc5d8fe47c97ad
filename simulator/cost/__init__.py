"""Cost models: how long one step of an engine takes.

`StepWork` says what a step holds and `CostModel` turns it into seconds. A `CostSpec` is what a
person writes; `TableSpec` times a real model on a real GPU, the others follow a formula.

Names are imported when they are first used, so that `import simulator.cost` stays cheap.

Examples
--------
>>> from simulator.cost import StepWork, table_cost
>>> cost = table_cost("h100", "llama-3.1-8b")
>>> round(cost.step_time(StepWork(1, 1024, (), 1, 1)) * 1e3, 1)
7.2
"""

from importlib import import_module
from typing import TYPE_CHECKING

from simulator.cost.base import CostModel, RunCostModel, StepWork

if TYPE_CHECKING:
    from simulator.cost.analytic import (
        EmpiricalCost,
        ExponentialCost,
        FixedCost,
        LinearBatchCost,
        LinearTokenCost,
    )
    from simulator.cost.assemble import table_cost
    from simulator.cost.breakdown import StepBreakdown
    from simulator.cost.describe import describe_step, parse_chunk, utilisation
    from simulator.cost.engine_profiles import ENGINE_PROFILES, EngineProfile
    from simulator.cost.gpus import GPUS, Gpu
    from simulator.cost.memory import KvCapacity, kv_capacity
    from simulator.cost.model_file import read_model_file
    from simulator.cost.models import MODELS, ModelArchitecture
    from simulator.cost.noise import NoisyCost
    from simulator.cost.profile import OperatorProfile, load_profile, read_profile
    from simulator.cost.scaled import ScaledCost
    from simulator.cost.spec import (
        COSTS,
        CostSpec,
        EmpiricalSpec,
        ExponentialSpec,
        FixedSpec,
        LinearBatchSpec,
        LinearSpec,
    )
    from simulator.cost.spec_base import BaseCostSpec
    from simulator.cost.step_linear import StepLinearCost
    from simulator.cost.step_profile import StepProfile, read_step_profile
    from simulator.cost.step_spec import StepLinearSpec
    from simulator.cost.table import TableCost
    from simulator.cost.table_spec import TableSpec
    from simulator.cost.traffic import StepColumns, step_flops_bytes, step_traffic

__all__ = [
    "COSTS",
    "ENGINE_PROFILES",
    "GPUS",
    "MODELS",
    "BaseCostSpec",
    "CostModel",
    "CostSpec",
    "EmpiricalCost",
    "EmpiricalSpec",
    "EngineProfile",
    "ExponentialCost",
    "ExponentialSpec",
    "FixedCost",
    "FixedSpec",
    "Gpu",
    "KvCapacity",
    "LinearBatchCost",
    "LinearBatchSpec",
    "LinearSpec",
    "LinearTokenCost",
    "ModelArchitecture",
    "NoisyCost",
    "OperatorProfile",
    "RunCostModel",
    "ScaledCost",
    "StepBreakdown",
    "StepColumns",
    "StepLinearCost",
    "StepLinearSpec",
    "StepProfile",
    "StepWork",
    "TableCost",
    "TableSpec",
    "describe_step",
    "kv_capacity",
    "load_profile",
    "parse_chunk",
    "read_model_file",
    "read_profile",
    "read_step_profile",
    "step_flops_bytes",
    "step_traffic",
    "table_cost",
    "utilisation",
]

_HOMES = {
    "analytic": "EmpiricalCost ExponentialCost FixedCost LinearBatchCost LinearTokenCost",
    "engine_profiles": "ENGINE_PROFILES EngineProfile",
    "gpus": "GPUS Gpu",
    "memory": "KvCapacity kv_capacity",
    "models": "MODELS ModelArchitecture",
    "profile": "OperatorProfile load_profile read_profile",
    "model_file": "read_model_file",
    "noise": "NoisyCost",
    "scaled": "ScaledCost",
    "spec": "COSTS CostSpec EmpiricalSpec ExponentialSpec FixedSpec LinearBatchSpec LinearSpec",
    "spec_base": "BaseCostSpec",
    "step_linear": "StepLinearCost",
    "step_profile": "StepProfile read_step_profile",
    "step_spec": "StepLinearSpec",
    "table_spec": "TableSpec",
    "assemble": "table_cost",
    "breakdown": "StepBreakdown",
    "describe": "describe_step parse_chunk utilisation",
    "table": "TableCost",
    "traffic": "StepColumns step_flops_bytes step_traffic",
}
_MODULE_OF = {name: module for module, names in _HOMES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Import a public name from its module."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value
