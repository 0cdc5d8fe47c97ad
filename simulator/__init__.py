"""Discrete-event simulation of batching policies of LLM inference servers.

Names are loaded when first used, so that `import simulator` stays fast.

Examples
--------
>>> from simulator import RunSpec, simulate
>>> result = simulate(RunSpec(workload={"name": "demo-chat", "num_requests": 40}))
>>> result.metrics["completed"]
40
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from simulator.errors import PolicyStalled, RuleBroken, RunError, UserError
    from simulator.observer import Observer
    from simulator.recorder import DecisionLog
    from simulator.result import Result
    from simulator.run import simulate
    from simulator.spec import RunSpec

_HOMES = {
    "DecisionLog": "simulator.recorder",
    "Observer": "simulator.observer",
    "PolicyStalled": "simulator.errors",
    "Result": "simulator.result",
    "RuleBroken": "simulator.errors",
    "RunError": "simulator.errors",
    "RunSpec": "simulator.spec",
    "UserError": "simulator.errors",
    "simulate": "simulator.run",
}

__all__ = [
    "DecisionLog",
    "Observer",
    "PolicyStalled",
    "Result",
    "RuleBroken",
    "RunError",
    "RunSpec",
    "UserError",
    "simulate",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
