"""A replica's requests: admitted, preempted, swapped, delivered, finished, aborted.

What can happen to a request on a replica, and what it means for the lists of record and the KV
ledger. When it happens is the matter of `simulator.engine`.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

from policies.base import KvOp, Mode, Plan, Policy, Release, Trigger
from simulator.clock import Clock, up_to_grid
from simulator.cost.base import CostModel
from simulator.errors import RuleBroken, RunError
from simulator.kv_cache import BlockManager
from simulator.observer import Observer, hooks
from simulator.prefix_cache import PrefixLedger
from simulator.queues import RunningList, WaitingQueue
from simulator.request import Outputs, Request, State
from simulator.rules import Listed
from simulator.swap import SwapSpace
from simulator.view import LedgerView, Oracle, ReplicaView

Answer = TypeVar("Answer")

_HIDDEN = ("output_tokens", "target_output_tokens")


def _hint(error: Exception) -> str:
    """Return what is wrong with a look at what a policy must not know."""
    if not isinstance(error, AttributeError) or error.name not in _HIDDEN:
        return ""
    return (
        f": {error.name} is hidden from policies; one that declares needs_oracle asks view.oracle"
    )


class Replica:
    """The requests on a replica and what can happen to them; `Engine` says when.

    Parameters
    ----------
    env : Clock
        Owns the clock.
    policy : Policy
        A fresh decision maker.
    cost : CostModel
        Gives the duration of a step in seconds.
    kv : BlockManager
        The KV ledger of this replica.
    output_tokens : Outputs
        True output length of each request; hidden from the policy.
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
    cached_ledger_type = PrefixLedger
    plans_ahead = False

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
        self.waiting = WaitingQueue()
        self.running = RunningList()
        self.swapped = WaitingQueue()
        self.kv = kv
        self.swap = SwapSpace() if swap is None else swap
        self._env = env
        self._policy = policy
        self._cost = cost
        self._output_tokens = output_tokens
        self._watchers = tuple(
            o for o in observers if type(o).on_decision is not Observer.on_decision
        )
        self._on_submit = hooks(observers, "on_submit")
        self._on_step = hooks(observers, "on_step")
        self._on_gaps = hooks(observers, "on_gaps")
        self._on_gap_run = hooks(observers, "on_gap_run", "on_gaps")
        self._on_leave = hooks(observers, "on_leave")
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
        self._copied_blocks = 0
        self._trigger = Trigger.START
        self._wants_finish = type(policy).on_finish is not Policy.on_finish

    def unfinished(self) -> list[Request]:
        """Return the requests that are still here."""
        return [*self._held, *self.running, *self.swapped, *self.waiting]

    def _where(self, what: str) -> str:
        name = type(self._policy).__name__.lstrip("_")
        swapped = f", {len(self.swapped)} swapped" if len(self.swapped) else ""
        return (
            f"{name} at {self._env.now:.6f} s ({self._trigger.name}, {len(self.waiting)} waiting, "
            f"{len(self.running)} running{swapped}): {what}"
        )

    def _ask(self, question: Callable[..., Answer], *args: object) -> Answer:
        """Call the policy; whatever it raises ends the run with the circumstances."""
        try:
            return question(*args)
        except RunError:
            raise
        except Exception as error:
            raise RunError(self._where(f"the policy raised {error!r}{_hint(error)}")) from error
        finally:
            if self.kv.caching:
                self.kv.rollback()

    def _decode_growth(self) -> int:
        """Return the blocks that one more token for every running decode needs."""
        return sum(self.kv.need(r, 1) for r in self.running if r.is_decode)

    def _context_tokens(self) -> int:
        """Return the tokens that all running decodes attend to in their next step."""
        return sum(r.known for r in self.running if r.is_decode)

    def _repeat(self, journal: Sequence[KvOp]) -> None:
        """Do to the ledger what the policy tried, in the same order."""
        for action, rid, tokens in journal:
            if action == "decodes":
                self._hold_decodes()
                continue
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

    def _hold_decodes(self) -> None:
        """Hold blocks for one more token of every running decode, in running order."""
        for request in self.running:
            if request.is_decode:
                self.kv.hold(request.id, request.computed + 1)

    def _preempt(self, rid: int, mode: Mode) -> None:
        request = self.running[rid]
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
            request = self.waiting.pop(rid, None)
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

    def _compute(self, listed: Listed) -> list[Request]:
        """Store the tokens of a step; return the requests that got a new one out of it."""
        sampled: list[Request] = []
        caching = self.kv.caching
        for request, tokens in listed:
            request.compute(tokens)
            if request.computed == request.known:
                request.generated += 1
                request.known += 1
                if caching:
                    self.kv.learn(request)
                sampled.append(request)
                self.running.caught_up(request)
            else:
                self.running.refresh(request)
        return sampled

    def _is_complete(self, request: Request) -> bool:
        return request.generated == self._output_tokens[request.id]

    def _deliver(self, requests: Sequence[Request], gaps: dict[float, int]) -> None:
        """Hand one new token of each request to its client; `gaps` holds those of others."""
        now = self._env.now
        for request in requests:
            last = request.last_token
            if last is None:
                request.first_token = now
            else:
                gaps[now - last] = gaps.get(now - last, 0) + 1
            request.last_token = now
        if gaps:
            self._tell_gaps(now, gaps)

    def _tell_gaps(self, now: float, gaps: dict[float, int]) -> None:
        for on_gaps in self._on_gaps:
            on_gaps(now, gaps)

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
        now = request.finish = self._env.now
        for on_leave in self._on_leave:
            on_leave(request, now)
        if self._wants_finish:
            self._ask(self._policy.on_finish, request, self._view)
