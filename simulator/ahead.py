"""A replica that plans one step ahead: asynchronous scheduling.

While a step runs, the next one is planned already, before the tokens of the running one are known.
A request that samples in a step in flight counts the promised token as known. Its tokens, and its
end, come to light one step later than they would otherwise.

Source: vLLM 0.32 `v1/core/sched/async_scheduler.py`, checked against recorded decisions.
"""

from collections import deque
from collections.abc import Generator
from dataclasses import dataclass

from simpy.events import Event

from policies.base import Plan, Release
from simulator.clock import DECIDE, STEP_DONE, At
from simulator.cost.base import StepWork
from simulator.engine import Engine, Happened
from simulator.errors import RuleBroken
from simulator.request import Request, State
from simulator.rules import Listed, step_work


@dataclass(slots=True)
class _InFlight:
    """A step that is planned, and perhaps running, but not done."""

    plan: Plan
    work: StepWork
    sampled: list[Request]


class AheadEngine(Engine):
    """A replica with a pipeline of two steps; built like `Engine`."""

    plans_ahead = True

    def _run(self) -> Generator[Event, None, None]:
        flight: deque[_InFlight] = deque()
        yield At(self._env, 0.0, DECIDE)
        while True:
            if not self._happened and not flight:
                yield self._sleep()
            decision, listed = self._decide()
            if decision.plan is not None:
                flight.append(self._launch(listed, decision.plan))
                if len(flight) == 1:
                    continue  # fill the pipeline
            elif not flight:
                self._rest(decision)
                continue
            step = flight.popleft()
            now = self._env.now
            charged, end = self._charge(step.work, step.plan, now)
            self._tell_step(step.work, charged, now, end)
            yield At(self._env, end - now, STEP_DONE)
            self._update(step)
            self._happened |= Happened.STEP_DONE
            if self._env.peek() <= self._env.now:
                yield At(self._env, 0.0, DECIDE)

    def _swap_out(self, request: Request) -> None:
        """Refuse: the tokens of a step in flight could not be copied."""
        raise RuleBroken(f"request {request.id} is swapped out by a replica that plans ahead")

    def _launch(self, listed: Listed, plan: Plan) -> _InFlight:
        """Put a step in the pipeline: its tokens count as computed, its samples as promised."""
        now = self._env.now
        work = step_work(listed)
        sampled: list[Request] = []
        for request, tokens in listed:
            if request.first_scheduled is None:
                request.first_scheduled = now
            request.compute(tokens)
            if request.computed == request.known:
                request.promised += 1
                request.known += 1
                sampled.append(request)
            self.running.refresh(request)
        return _InFlight(plan, work, sampled)

    def _update(self, step: _InFlight) -> None:
        """Take in the tokens of a finished step."""
        here = [r for r in step.sampled if r.state in (State.RUNNING, State.WAITING)]
        for request in here:
            request.promised -= 1
            request.generated += 1
            self.kv.learn(request)
        if step.plan.release is Release.PER_REQUEST:
            self._deliver(here, {})
        self._retire([r for r in here if self._is_complete(r)], step.plan)
