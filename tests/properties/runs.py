"""What the property tests share: drawn runs, and what has to be watched while they run."""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import assume, settings
from hypothesis import strategies as st

from policies.base import (
    Decision,
    Machine,
    Mode,
    Policy,
    PolicySpec,
    RequestView,
    Trigger,
    View,
)
from simulator import DecisionLog, Observer, Result, RunSpec, simulate
from simulator.request import Request
from tests.simulator.harness import given as given_rows
from tests.strategies import Scenario, policies, scenarios

property_test = settings(max_examples=60, deadline=None, derandomize=True)
"""How often a property is tried; the same examples every time."""


def spec_of(scenario: Scenario, policy: Any, **sections: Any) -> RunSpec:
    """Return the run of a policy in a scenario; pass over steps smaller than a block."""
    if isinstance(policy, PolicySpec) and scenario.num_blocks is not None:
        assume(policy.refusal(Machine(block_size=scenario.block_size)) is None)
    cache = {"block_size": scenario.block_size, "num_blocks": scenario.num_blocks}
    parts = {"cost": scenario.cost, "engine": cache} | sections
    return RunSpec(workload=given_rows(scenario.rows), policy=policy, **parts)


def specs(chosen: st.SearchStrategy[PolicySpec] | None = None) -> st.SearchStrategy[RunSpec]:
    """Draw a run of any built-in policy, or of those given."""
    return st.builds(spec_of, scenarios(), policies() if chosen is None else chosen)


class Count(Observer):
    """Counts who is in the system and in the queue while the run goes on.

    Attributes
    ----------
    in_system, in_queue : float
        Integrals of the two numbers over time, in request seconds.
    """

    def __init__(self) -> None:
        self.in_system = self.in_queue = 0.0
        self.arrived = self.left = 0
        self._last = 0.0
        self._queue = 0

    def _pass(self, now: float) -> None:
        assert now >= self._last, "time runs backwards"
        self.in_system += (self.arrived - self.left) * (now - self._last)
        self.in_queue += self._queue * (now - self._last)
        self._last = now

    def on_submit(self, request: Request, now: float) -> None:
        self._pass(now)
        self.arrived += 1
        self._queue += request.state.value == "waiting"

    def on_decision(
        self, now: float, trigger: Trigger, decision: Decision, work: list[tuple[int, int]]
    ) -> None:
        self._pass(now)
        back = sum(mode is Mode.RECOMPUTE for _, mode in decision.preempt)
        self._queue += back - len(decision.admit) - len(decision.reject)

    def on_leave(self, request: Request, now: float) -> None:
        self._pass(now)
        self.left += 1


class Watched(PolicySpec):
    """Another policy, and a notebook of what it sees; the decisions are the other's."""

    inner: PolicySpec

    def build(self) -> Policy:
        _Watched.last = _Watched(self.inner.build())
        return _Watched.last


class _Watched(Policy):
    last: "_Watched"
    """The one of the last run."""

    def __init__(self, inner: Policy) -> None:
        self._inner = inner
        self.limits = inner.limits
        self.needs_oracle = inner.needs_oracle
        self.view: View | None = None

    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        self.view = view
        held = [view.kv.held(request) for request in view.running]
        assert min(held, default=1) > 0
        assert sum(held) + view.kv.free <= view.kv.total
        return self._inner.decide(view, trigger)

    def on_submit(self, request: RequestView, view: View) -> str | None:
        return self._inner.on_submit(request, view)

    def on_finish(self, request: RequestView, view: View) -> None:
        self._inner.on_finish(request, view)


def view_of_last_run() -> View:
    """Return what the watched policy of the last run saw last; it still shows the ledger."""
    view = _Watched.last.view
    assert view is not None
    return view


@dataclass
class Traced:
    """A run with its decision log and counts."""

    result: Result
    lines: list[str]
    count: Count = field(repr=False)

    def state(self) -> tuple[object, ...]:
        """Return everything two equal runs have in common, to the last bit."""
        tables = [
            (table, name, values.tobytes())
            for table, columns in self.result.tables.items()
            for name, values in columns.items()
        ]
        return self.lines, tables, self.result.metrics, self.result.trace.content_hash()


def trace(spec: RunSpec, **kwargs: Any) -> Traced:
    """Run a specification and keep what is needed to compare it."""
    log, count = DecisionLog(), Count()
    return Traced(simulate(spec, observers=(log, count), **kwargs), log.lines, count)
