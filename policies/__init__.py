"""Batching and scheduling policies: what an inference server runs next.

`POLICIES` is the one table of built-in policies; everything that lists them derives from it.
"""

from policies.base import (
    ALL_RUNNING,
    Decision,
    Limits,
    Mode,
    Plan,
    Policy,
    PolicySpec,
    Release,
    RequestView,
    Shape,
    Trigger,
    View,
    Work,
)
from policies.routers import ROUTERS, Router, RouterSpec
from policies.static import Static
from policies.vllm_v1 import OneAtATime, VllmV1
from policies.window import WindowEnqueue, WindowPull

POLICIES: tuple[type[PolicySpec], ...] = (OneAtATime, Static, WindowPull, WindowEnqueue, VllmV1)
"""The built-in policies, from the simplest on."""

__all__ = [
    "ALL_RUNNING",
    "POLICIES",
    "ROUTERS",
    "Decision",
    "Limits",
    "Mode",
    "OneAtATime",
    "Plan",
    "Policy",
    "PolicySpec",
    "Release",
    "RequestView",
    "Router",
    "RouterSpec",
    "Shape",
    "Static",
    "Trigger",
    "View",
    "VllmV1",
    "WindowEnqueue",
    "WindowPull",
    "Work",
]
