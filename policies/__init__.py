"""Batching and scheduling policies: what an inference server runs next.

`POLICIES` is the one table of built-in policies; everything that lists them derives from it.
"""

from policies.base import (
    ALL_RUNNING,
    Decision,
    Limits,
    Machine,
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
from policies.clipper import ClipperAimd
from policies.orca import Orca
from policies.routers import ROUTERS, Router, RouterSpec
from policies.sarathi import Sarathi
from policies.static import Static
from policies.triton import Triton
from policies.vllm_v0 import VllmV0
from policies.vllm_v1 import OneAtATime, VllmV1
from policies.window import WindowEnqueue, WindowFreeze, WindowPull

POLICIES: tuple[type[PolicySpec], ...] = (
    OneAtATime,
    Static,
    WindowPull,
    WindowEnqueue,
    WindowFreeze,
    Triton,
    ClipperAimd,
    Orca,
    VllmV0,
    VllmV1,
    Sarathi,
)
"""The built-in policies, from the simplest on."""

__all__ = [
    "ALL_RUNNING",
    "POLICIES",
    "ROUTERS",
    "ClipperAimd",
    "Decision",
    "Limits",
    "Machine",
    "Mode",
    "OneAtATime",
    "Orca",
    "Plan",
    "Policy",
    "PolicySpec",
    "Release",
    "RequestView",
    "Router",
    "RouterSpec",
    "Sarathi",
    "Shape",
    "Static",
    "Trigger",
    "Triton",
    "View",
    "VllmV0",
    "VllmV1",
    "WindowEnqueue",
    "WindowFreeze",
    "WindowPull",
    "Work",
]
