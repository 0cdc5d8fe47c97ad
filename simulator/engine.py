"""One replica: asks its policy, checks the answer, charges the machine, applies the step.

This is the plain stepper. It touches every request of every step and defines what a run means;
anything faster has to give the same times, to the last bit.
"""

from collections.abc import Callable, Generator, Sequence
from math import inf, isfinite
from typing import TypeVar

from simpy.core import Environment
from simpy.events import Event, Process

from policies.base import Decision, KvOp, Mode, Plan, Policy, Release, Trigger
from simulator.clock import (
    DECIDE,
    END_OF_TIME,
    STEP_DONE,
    TICKS_PER_SECOND,
    TIMER,
    At,
    Signal,
    up_to_grid,
)
from simulator.cost.base import CostModel, StepWork
from simulator.errors import PolicyStalled, RuleBroken, RunError
from simulator.kv_cache import BlockManager
from simulator.observer import Observer, StepRecord
from simulator.queues import RunningList, WaitingQueue
from simulator.request import Request, State
from simulator.rules import Listed, check_lists, expand, padded, step_work
from simulator.swap import SwapSpace
from simulator.view import LedgerView, Oracle, ReplicaView

Answer = TypeVar("Answer")


class Happened:
    """Triggers as plain bits: arithmetic on numbers is much faster than on flags."""

    START, STEP_DONE, ARRIVAL, TIMER, CANCEL = (trigger.value for trigger in Trigger)


_TRIGGERS = tuple(Trigger(bits) for bits in range(2 * Happened.CANCEL))
"""Triggers by their bits."""


MAX_PLANLESS = 1000
"""Decisions in a row, at one moment, that move requests without planning a step."""


class Engine:
    """A replica and its SimPy process.

    Parameters
    ----------
    env : simpy.Environment
        Owns the clock.
    policy : Policy
        A fresh decision maker.
    cost : CostModel
        Gives the duration of a step in seconds.
    kv : BlockManager
        The KV ledger of this replica.
    output_tokens : dict
        Request number to its true output length; hidden from the policy.
    max_model_len : int, optional
        Largest number of prompt and output tokens of a request.
    observers : sequence of Observer
        Told what happens.
    swap : SwapSpace, optional
        Host memory for the blocks of swapped requests. None: as much as anyone wants, and copies
        take no time.
    """

    request_type = Request
    ledger_type = BlockManager
    plans_ahead = False

    def __init__(
        self,
        env: Environment,
        policy: Policy,
        cost: CostModel,
        kv: BlockManager,
        output_tokens: dict[int, int],
        max_model_len: int | None = None,
        observers: Sequence[Observer] = (),
        swap: SwapSpace | None = None,
    ) -> None:
        self.waiting = WaitingQueue()
        self.running = RunningList()
        self.swapped = WaitingQueue()
        self.kv = kv
        self.swap = SwapSpace() if swap is None else swap
        self._env = env
        self._policy = policy
        self._cost = cost
        self._output_tokens = output_tokens
        self._observers = tuple(observers)
        self._watchers = tuple(
            o for o in self._observers if type(o).on_decision is not Observer.on_decision
        )
        oracle = Oracle(output_tokens) if policy.needs_oracle else None
        self._view = ReplicaView(
            env,
            self.waiting,
            self.running,
            self.swapped,
            LedgerView(kv, self.swap, self._decode_growth),
            self._context_tokens,
            cost,
            max_model_len,
            oracle,
            self.plans_ahead,
        )
        self._held: list[Request] = []
        self._num_admissions = 0
        self._planless, self._planless_time = 0, -inf
        self._copied_blocks = 0
        self._cancelled: list[int] = []
        self._happened = Happened.START
        self._trigger = Trigger.START
        self._wants_finish = type(policy).on_finish is not Policy.on_finish
        self._wants_submit = type(policy).on_submit is not Policy.on_submit
        self._asleep: Signal | None = None
        self._timer: At | None = None

    def start(self) -> Process:
        """Start the process that runs the replica."""
        return self._env.process(self._run())

    def submit(self, request: Request) -> None:
        """Take an arriving request; called at its arrival time."""
        reason = None
        self.kv.register(request, request.segments)
        if self._wants_submit:
            reason = self._ask(self._policy.on_submit, request, self._view)
        if reason is None:
            self.waiting.append(request)
            self._notice(Happened.ARRIVAL)
        else:
            self._turn_away(request, reason)
        for observer in self._observers:
            observer.on_submit(request, self._env.now)

    def cancel(self, rid: int) -> None:
        """Let a request go whose client went away, before the next decision."""
        self._cancelled.append(rid)
        self._notice(Happened.CANCEL)

    def unfinished(self) -> list[Request]:
        """Return the requests that are still here."""
        return [*self._held, *self.running, *self.swapped, *self.waiting]

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
            yield At(self._env, self._begin(work, decision) - self._env.now, STEP_DONE)
            self._end(work, decision.plan)
            self._happened |= Happened.STEP_DONE
            if self._env.peek() <= self._env.now:  # other events of this moment come first
                yield At(self._env, 0.0, DECIDE)

    def _check_type(self, decision: object) -> None:
        if not isinstance(decision, Decision) or not isinstance(decision.plan, Plan | None):
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
        for rid in self._cancelled:
            self._abort(rid)
        self._cancelled.clear()
        decision = self._ask(self._policy.decide, self._view, trigger)
        self._check_type(decision)
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

    def _ask(self, question: Callable[..., Answer], *args: object) -> Answer:
        """Call the policy; whatever it raises ends the run with the circumstances."""
        try:
            return question(*args)
        except RunError:
            raise
        except Exception as error:
            raise RunError(self._where(f"the policy raised {error!r}")) from error
        finally:
            self.kv.rollback()

    def _where(self, what: str) -> str:
        name = type(self._policy).__name__.lstrip("_")
        swapped = f", {len(self.swapped)} swapped" if len(self.swapped) else ""
        return (
            f"{name} at {self._env.now:.6f} s ({self._trigger.name}, {len(self.waiting)} waiting, "
            f"{len(self.running)} running{swapped}): {what}"
        )

    def _apply(self, decision: Decision, trigger: Trigger) -> Listed:
        """Check a decision and carry it out, up to the step itself."""
        self._copied_blocks = 0
        try:
            check_lists(decision, self.waiting, self.running, self.swapped)
            for rid, reason in decision.reject:
                self._turn_away(self._take(rid), reason)
            self._repeat(decision.kv)
            for rid, mode in decision.preempt:
                self._preempt(rid, mode)
            for rid in decision.swap_in:
                self._swap_in(rid)
            reserve = dict(decision.reserve)
            for rid in decision.admit:
                self._admit(self._take(rid), reserve.get(rid, 0))
            limit = self._policy.limits.max_num_seqs
            if limit is not None and len(self.running) > limit:
                raise RuleBroken(f"{len(self.running)} requests run, max_num_seqs is {limit}")
            work = [] if decision.plan is None else self._take_on(decision.plan)
            if self._watchers:
                self._tell_decision(decision, trigger)
            return work
        except RuleBroken as error:
            raise RuleBroken(self._where(str(error))) from None

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

    def _decode_growth(self) -> int:
        """Return the blocks that one more token for every running decode needs."""
        return sum(self.kv.need(r, 1) for r in self.running if r.is_decode)

    def _context_tokens(self) -> int:
        """Return the tokens that all running decodes attend to in their next step."""
        return sum(r.known for r in self.running if r.is_decode)

    def _repeat(self, journal: Sequence[KvOp]) -> None:
        """Do to the ledger what the policy tried, in the same order."""
        for action, rid, tokens in journal:
            request = self.running.get(rid) or self.waiting.get(rid)
            if request is None:
                raise RuleBroken(f"request {rid} is in the journal but not here")
            if action == "hold":
                self.kv.hold(rid, tokens)
            elif action == "release":
                self.kv.release(rid)
            else:
                request.computed = self.kv.take(request)
                request.cached_tokens += request.computed

    def _take(self, rid: int) -> Request:
        request = self.waiting.pop(rid)
        assert request is not None, "checked by check_lists"
        return request

    def _preempt(self, rid: int, mode: Mode) -> None:
        request = self.running.get(rid)
        assert request is not None, "checked by check_lists"
        self._stop(request)
        if mode is Mode.SWAP:
            self._swap_out(request)
        else:
            request.drop()
            self.waiting.push_front(request)

    def _swap_out(self, request: Request) -> None:
        """Copy the stored tokens of a preempted request to host memory."""
        blocks = self.kv.blocks_for(request.computed)
        self.swap.store(request.id, blocks)
        self._copied_blocks += blocks
        request.suspend()
        self.swapped.push_front(request)

    def _swap_in(self, rid: int) -> None:
        """Copy the stored tokens of a request back and let it run again."""
        request = self.swapped.pop(rid)
        assert request is not None, "checked by check_lists"
        self._copied_blocks += self.swap.fetch(rid)
        self.kv.hold(rid, request.computed)
        self._admit(request, 0)

    def _copy_time(self) -> float:
        """Return how long the copies of the last decision take, seconds on the grid."""
        return up_to_grid(self._copied_blocks * self.swap.block_time)

    def _stop(self, request: Request) -> None:
        """Take a request out of the running list; it keeps no blocks."""
        self.running.remove(request)
        if self.kv.held(request):
            self.kv.release(request.id)

    def _abort(self, rid: int) -> None:
        request = self.running.get(rid)
        if request is not None:
            self._stop(request)
        elif rid in self.swapped:
            request = self.swapped.pop(rid)
            self.swap.drop(rid)
        else:
            request = self.waiting.pop(rid)
        if request is not None:  # else it has left by itself
            request.state = State.ABORTED
            self._leave(request)
        if self._held and not len(self.running):  # the others of its batch are done
            self._release_batch()

    def _admit(self, request: Request, reserve: int) -> None:
        request.state = State.RUNNING
        request.order = self._num_admissions = self._num_admissions + 1
        self.running.append(request)
        if reserve:
            self.kv.hold(request.id, reserve)

    def _turn_away(self, request: Request, reason: str) -> None:
        request.state = State.REJECTED
        request.reject_reason = reason
        self._leave(request)

    def _begin(self, listed: Listed, decision: Decision) -> float:
        """Start the step; return when it ends."""
        assert decision.plan is not None
        now = self._env.now
        work = step_work(listed)
        charged, end = self._charge(work, decision.plan, now + self._copy_time())
        for request, _ in listed:
            if request.first_scheduled is None:
                request.first_scheduled = now
        self._tell_step(work, charged, now, end)
        return end

    def _charge(self, work: StepWork, plan: Plan, start: float) -> tuple[StepWork, float]:
        """Return what the machine is charged for, and when it is done."""
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
        used = self.kv.used
        record = StepRecord(
            start=start,
            end=end,
            num_steps=1,
            first_step=end - start,
            last_step=end - start,
            num_decodes=work.num_decodes,
            num_chunks=len(work.chunks),
            chunk_tokens=sum(tokens for tokens, _ in work.chunks),
            context_tokens=work.context_tokens,
            charged_tokens=charged.num_tokens,
            kv_used=used,
            kv_block_ticks=used * int((end - start) * TICKS_PER_SECOND),
            num_waiting=len(self.waiting),
            num_running=len(self.running),
        )
        for observer in self._observers:
            observer.on_step(record)

    def _end(self, listed: Listed, plan: Plan) -> None:
        """Apply a finished step: store tokens, deliver the new ones, let finished requests go."""
        delivered = self._compute(listed)
        if plan.release is Release.PER_REQUEST:
            self._deliver(delivered, {})
        self._retire([r for r in delivered if self._is_complete(r)], plan)

    def _compute(self, listed: Listed) -> list[Request]:
        """Store the tokens of a step; return the requests that got a new one out of it."""
        sampled: list[Request] = []
        for request, tokens in listed:
            request.compute(tokens)
            if request.computed == request.known:
                request.generated += 1
                request.known += 1
                self.kv.learn(request)
                sampled.append(request)
        self.running.refresh()
        return sampled

    def _is_complete(self, request: Request) -> bool:
        return request.generated == self._output_tokens[request.id]

    def _deliver(self, requests: Sequence[Request], gaps: dict[float, int]) -> None:
        """Hand one new token of each request to its client; `gaps` holds those of others."""
        now = self._env.now
        for request in requests:
            if request.last_token is None:
                request.first_token = now
            else:
                gap = now - request.last_token
                gaps[gap] = gaps.get(gap, 0) + 1
            request.last_token = now
        if gaps:
            self._tell_gaps(now, gaps)

    def _tell_gaps(self, now: float, gaps: dict[float, int]) -> None:
        for observer in self._observers:
            observer.on_gaps(now, gaps)

    def _retire(self, complete: Sequence[Request], plan: Plan) -> None:
        """Let requests go that have all their tokens, or hold them until their batch is done."""
        for request in complete:
            if request.state is State.WAITING:  # preempted with its last token in flight
                self.waiting.pop(request.id)
            else:
                self.running.remove(request)
            if plan.release is Release.PER_BATCH:
                request.state = State.HELD
                self._held.append(request)
            else:
                self._finish(request)
        if self._held and not len(self.running):
            self._release_batch()

    def _release_batch(self) -> None:
        """Hand all tokens of a finished batch to the clients at once."""
        now = self._env.now
        batch, self._held = self._held, []
        at_once = sum(request.generated - 1 for request in batch)
        if at_once:
            self._tell_gaps(now, {0.0: at_once})
        for request in batch:
            request.first_token = request.last_token = now
            self._finish(request)

    def _finish(self, request: Request) -> None:
        request.state = State.FINISHED
        if self.kv.held(request):
            self.kv.release(request.id)
        self._leave(request)

    def _leave(self, request: Request) -> None:
        request.finish = self._env.now
        for observer in self._observers:
            observer.on_leave(request, self._env.now)
        if self._wants_finish:
            self._ask(self._policy.on_finish, request, self._view)
