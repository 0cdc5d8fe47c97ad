"""What the tests of the simulator share: given requests, scripted policies, odd machines.

All of them go through `simulate`, so a test sees what a user sees.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import numpy as np
from pydantic import ConfigDict

from policies.base import Decision, Limits, Policy, PolicySpec, Trigger, View
from simulator import Observer, Result, RunSpec, simulate
from simulator.cost import FixedSpec, StepWork
from simulator.request import Request
from workloads.spec import SyntheticWorkload
from workloads.streams import Streams
from workloads.trace import Trace

Row = tuple[float, int, int]
"""Arrival in seconds, prompt tokens, output tokens."""


class Given(SyntheticWorkload):
    """The requests of a test, row by row, instead of drawn ones."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    trace: Trace

    def _table(self, streams: Streams, max_model_len: int | None = None) -> Trace:
        return self.trace


def given(rows: Sequence[Row], **columns: Any) -> Given:
    """Return a workload of these rows; further columns as for `Trace`."""
    arrivals, prompts, outputs = zip(*rows, strict=True)
    caps = columns.pop("max_tokens", None)
    trace = Trace(arrivals, prompts, outputs, caps, columns)
    return Given(arrivals=1, prompt_tokens=1, output_tokens=1, trace=trace)


class Scripted(PolicySpec):
    """A policy whose every answer is a function of the test."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    decide: Callable[[View, Trigger], Decision]
    limits: Limits = Limits()
    needs_oracle: bool = False

    def build(self) -> Policy:
        return _Scripted(self)


class _Scripted(Policy):
    def __init__(self, spec: Scripted) -> None:
        self._answer = spec.decide
        self.limits = spec.limits
        self.needs_oracle = spec.needs_oracle

    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        return self._answer(view, trigger)


class Odd(FixedSpec):
    """A machine whose step times are a function of the test."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    step_ms: float = 1.0
    seconds: Callable[[StepWork], float]

    def build(self, rng: np.random.Generator) -> Any:
        return _Odd(self.seconds)


class _Odd:
    num_extrapolated: ClassVar[int] = 0

    def __init__(self, seconds: Callable[[StepWork], float]) -> None:
        self.step_time = seconds


SECOND = {"kind": "fixed", "step_ms": 1000}
"""Every step takes a second."""


def run(rows: Sequence[Row], policy: Any, cost: Any = None, **kwargs: Any) -> Result:
    """Simulate given rows under a policy; by default every step takes one second.

    Further arguments are sections of the specification, or `observers`.
    """
    observers = kwargs.pop("observers", ())
    columns = kwargs.pop("columns", {})
    spec = RunSpec(workload=given(rows, **columns), policy=policy, cost=cost or SECOND, **kwargs)
    return simulate(spec, observers=observers)


class Tokens(Observer):
    """Rebuilds when each token was delivered, from the requests alone.

    Attributes
    ----------
    times : dict
        Request number to the delivery times of its tokens.
    """

    def __init__(self) -> None:
        self.times: dict[int, list[float]] = {}
        self._alive: dict[int, Request] = {}

    def on_submit(self, request: Request, now: float) -> None:
        self.times[request.id] = []
        self._alive[request.id] = request

    def on_gaps(self, now: float, gaps: dict[float, int]) -> None:
        self._look([now])

    def on_gap_run(self, times: Sequence[float], gaps: Sequence[float], count: int) -> None:
        self._look(times)

    def on_leave(self, request: Request, now: float) -> None:
        self._look([now])
        del self._alive[request.id]

    def _look(self, moments: Sequence[float]) -> None:
        for request in self._alive.values():
            times = self.times[request.id]
            if not times and request.first_token is not None:
                times.append(request.first_token)
            missing = request.generated - len(times)
            if missing and request.last_token == moments[-1]:
                at_once = [moments[-1]] * missing
                times += moments[-missing:] if missing <= len(moments) else at_once


def column(result: Result, name: str, table: str = "requests") -> list[Any]:
    """Return a column of a table as plain values."""
    return result.tables[table][name].tolist()


def steps_of(result: Result) -> Iterator[tuple[float, float]]:
    """Yield start and end of every row of the steps table."""
    return zip(column(result, "start_s", "steps"), column(result, "end_s", "steps"), strict=True)
