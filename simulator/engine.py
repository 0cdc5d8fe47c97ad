"""One replica: asks its policy, checks the answer, charges the machine, applies the step.

This is the plain stepper. It touches every request of every step and defines what a run means;
anything faster has to give the same times, to the last bit.
"""

from collections.abc import Generator, Sequence
from math import inf, isfinite

from simpy.events import Event, Process

from policies.base import Decision, Plan, Policy, Release, Trigger
from simulator.clock import (
    DECIDE,
    END_OF_TIME,
    STEP_DONE,
    TICKS_PER_SECOND,
    TIMER,
    At,
    Clock,
    Signal,
    up_to_grid,
)
from simulator.cost.base import CostModel, StepWork
from simulator.errors import PolicyStalled, RuleBroken, RunError
from simulator.kv_cache import BlockManager
from simulator.observer import Observer, StepRecord
from simulator.replica import Replica
from simulator.request import Outputs, Request
from simulator.rules import Listed, check_lists, expand, padded, step_work
from simulator.swap import SwapSpace


class Happened:
    """Triggers as plain bits: arithmetic on numbers is much faster than on flags."""

    START, STEP_DONE, ARRIVAL, TIMER, CANCEL = (trigger.value for trigger in Trigger)


_TRIGGERS = tuple(Trigger(bits) for bits in range(2 * Happened.CANCEL))
"""Triggers by their bits."""


_PLAN = (Plan, type(None))

_NO_CHANGE = Decision()[1:]
"""The lists of a decision that moves nobody."""


MAX_PLANLESS = 1000
"""Decisions in a row, at one moment, that move requests without planning a step."""


class Engine(Replica):
    """A replica and its SimPy process; parameters as for `Replica`."""

    def __init__(
        self,
        env: Clock,
        policy: Policy,
        cost: CostModel,
        kv: BlockManager,
        output_tokens: Outputs,
        max_model_len: int | None = None,
        observers: Sequence[Observer] = (),
        swap: SwapSpace | None = None,
    ) -> None:
        super().__init__(env, policy, cost, kv, output_tokens, max_model_len, observers, swap)
        self._planless, self._planless_time = 0, -inf
        self._release: Release | None = None
        self._cancelled: list[int] = []
        self._happened = Happened.START
        self._wants_submit = type(policy).on_submit is not Policy.on_submit
        self._asleep: Signal | None = None
        self._timer: At | None = None

    def start(self) -> Process:
        """Start the process that runs the replica."""
        return self._env.process(self._run())

    def submit(self, request: Request) -> None:
        """Take an arriving request; called at its arrival time."""
        reason = None
        if self.kv.caching:
            self.kv.register(request, request.segments)
        if self._wants_submit:
            reason = self._ask(self._policy.on_submit, request, self._view)
        if reason is None:
            self.waiting.append(request)
            self._notice(Happened.ARRIVAL)
        else:
            self._turn_away(request, reason)
        for on_submit in self._on_submit:
            on_submit(request, self._env.now)

    def cancel(self, rid: int) -> None:
        """Let a request go whose client went away, before the next decision."""
        self._cancelled.append(rid)
        self._notice(Happened.CANCEL)

    def check_done(self) -> None:
        """Check that nothing was left behind when no event is due any more.

        Raises
        ------
        PolicyStalled
            If requests wait or run and the policy did not ask to be woken.
        """
        asleep = self._asleep is not None and self._timer is None
        if asleep and self.unfinished():
            raise PolicyStalled(self._where("the policy plans nothing and no event is due"))

    def _run(self) -> Generator[Event, None, None]:
        yield At(self._env, 0.0, DECIDE)
        while True:
            if not self._happened:
                yield self._sleep()
            decision, work = self._decide()
            if decision.plan is None:
                if self._copied_blocks:
                    yield At(self._env, self._copy_time(), STEP_DONE)
                self._rest(decision)
                continue
            yield from self._step(decision, work)

    def _step(self, decision: Decision, work: Listed) -> Generator[Event, None, None]:
        """Go through a step, up to where the policy is asked again."""
        assert decision.plan is not None
        yield At(self._env, self._begin(work, decision) - self._env.now, STEP_DONE)
        self._end(work, decision.plan)
        self._happened |= Happened.STEP_DONE
        if self._env.peek() <= self._env.now:  # other events of this moment come first
            yield At(self._env, 0.0, DECIDE)

    def _check_type(self, decision: object) -> None:
        if not isinstance(decision, Decision) or not isinstance(decision.plan, _PLAN):
            raise RuleBroken(self._where(f"decide returned {decision!r}, not a Decision"))

    def _sleep(self) -> Signal:
        """Return what `_notice` fires."""
        self._asleep = Signal(self._env)
        return self._asleep

    def _decide(self) -> tuple[Decision, Listed]:
        """Ask the policy and carry out its decision, up to the step itself."""
        for observer in self._watchers:
            observer.before_decision(self._env.now)
        trigger = self._trigger = _TRIGGERS[self._happened]
        self._happened, self._timer = 0, None
        if self._cancelled:
            for rid in self._cancelled:
                self._abort(rid)
            self._cancelled.clear()
        decision = self._ask(self._policy.decide, self._view, trigger)
        self._check_type(decision)
        if not len(self.running) and not self._held:
            self._release = None
        return decision, self._apply(decision, trigger)

    def _notice(self, what: int) -> None:
        """Remember an event, and wake the process up once all events of this moment are in."""
        self._happened |= what
        if self._asleep is not None:
            self._asleep.fire(DECIDE)
            self._asleep = None

    def _rest(self, decision: Decision) -> None:
        """Go without a plan: decide again if the lists changed, else wait for an event."""
        now = self._env.now
        if decision.admit or decision.preempt or decision.swap_in:
            self._happened |= Happened.START
            self._planless = self._planless + 1 if now == self._planless_time else 1
            self._planless_time = now
            if self._planless > MAX_PLANLESS:
                raise PolicyStalled(self._where("the policy moves requests and never plans a step"))
        elif decision.wake_at is not None:
            if not (isfinite(decision.wake_at) and decision.wake_at > now):
                raise RuleBroken(self._where(f"wake_at {decision.wake_at} is not in the future"))
            if decision.wake_at > END_OF_TIME:
                return
            self._timer = At(self._env, up_to_grid(decision.wake_at) - now, TIMER)
            self._timer.callbacks.append(self._ring)

    def _ring(self, timer: Event) -> None:
        if timer is self._timer:
            self._notice(Happened.TIMER)

    def _apply(self, decision: Decision, trigger: Trigger) -> Listed:
        """Check a decision and carry it out, up to the step itself."""
        self._copied_blocks = 0
        work: Listed = []
        try:
            if decision[1:] != _NO_CHANGE:
                self._move(decision)
            if decision.plan is not None:
                if decision.plan.release is not self._release:
                    self._check_release(decision.plan)
                work = self._take_on(decision.plan)
            if self._watchers:
                self._tell_decision(decision, trigger)
            return work
        except RuleBroken as error:
            raise RuleBroken(self._where(str(error))) from None

    def _move(self, decision: Decision) -> None:
        """Check the lists of a decision and move the requests that they name."""
        check_lists(decision, self.waiting, self.running, self.swapped)
        for rid, reason in decision.reject:
            self._turn_away(self.waiting.pop(rid), reason)
        if decision.kv:
            self._repeat(decision.kv)
        for rid, mode in decision.preempt:
            self._preempt(rid, mode)
        for rid in decision.swap_in:
            self._swap_in(rid)
        reserve = dict(decision.reserve)
        for rid in decision.admit:
            self._admit(self.waiting.pop(rid), reserve.get(rid, 0))
        limit = self._policy.limits.max_num_seqs
        if limit is not None and len(self.running) > limit:
            raise RuleBroken(f"{len(self.running)} requests run, max_num_seqs is {limit}")

    def _check_release(self, plan: Plan) -> None:
        """Hold a batch to the way in which its tokens are delivered."""
        if self._release is None:
            self._release = plan.release
        else:
            raise RuleBroken("the release of the tokens changes while requests run")

    def _tell_decision(self, decision: Decision, trigger: Trigger) -> None:
        work: Listed = []
        if decision.plan is not None:
            work = expand(decision.plan, self.running, self._policy.limits)
        listed = [(request.id, tokens) for request, tokens in work]
        for observer in self._watchers:
            observer.on_decision(self._env.now, trigger, decision, listed)

    def _take_on(self, plan: Plan) -> Listed:
        """Spell out a plan and take the blocks it needs."""
        work = expand(plan, self.running, self._policy.limits)
        for request, tokens in work:
            self.kv.hold(request.id, request.computed + tokens)
        return work

    def _begin(self, listed: Listed, decision: Decision) -> float:
        """Start the step; return when it ends."""
        assert decision.plan is not None
        now = self._env.now
        work = step_work(listed)
        charged, end = self._charge(work, decision.plan, now)
        for request, _ in listed:
            if request.first_scheduled is None:
                request.first_scheduled = now
        self._tell_step(work, charged, now, end)
        return end

    def _charge(self, work: StepWork, plan: Plan, start: float) -> tuple[StepWork, float]:
        """Return what the machine is charged for, and when it is done, copies included."""
        if self._copied_blocks:
            start += self._copy_time()
        try:
            charged = padded(work, plan.shape)
        except RuleBroken as error:
            raise RuleBroken(self._where(str(error))) from None
        return charged, start + self._duration(charged)

    def _duration(self, charged: StepWork) -> float:
        """Return how long a step takes, in seconds on the grid."""
        duration = self._cost.step_time(charged)
        if not 0 < duration < inf:
            raise RunError(self._where(f"the cost model gives a step of {duration} s"))
        return up_to_grid(duration)

    def _tell_step(self, work: StepWork, charged: StepWork, start: float, end: float) -> None:
        used, chunks = self.kv.used, work.chunks
        chunk_tokens = chunk_context = 0
        pairs = 0.0
        for tokens, past in chunks:
            chunk_tokens += tokens
            chunk_context += tokens + past
            pairs += tokens * (past + (tokens + 1) / 2)
        charged_tokens = work.num_decodes + chunk_tokens
        record = StepRecord(
            start,
            end,
            1,
            end - start,
            end - start,
            work.num_decodes,
            len(chunks),
            chunk_tokens,
            pairs,
            chunk_context,
            work.context_tokens,
            charged_tokens if charged is work else charged.num_tokens,
            used,
            used * int((end - start) * TICKS_PER_SECOND),
            len(self.waiting),
            len(self.running),
        )
        for on_step in self._on_step:
            on_step(record)

    def _end(self, listed: Listed, plan: Plan) -> None:
        """Apply a finished step: store tokens, deliver the new ones, let finished requests go."""
        delivered = self._compute(listed)
        if plan.release is Release.PER_REQUEST:
            self._deliver(delivered, {})
        self._retire([r for r in delivered if self._is_complete(r)], plan)
