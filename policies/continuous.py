"""The loop of continuous batching with a token budget; policies differ in a few small choices.

A step serves the running requests in order of admission, then admits waiting ones. What can be
exchanged: the order of the queue and the choice of a victim (`policies.orders`), the budget of the
step (`policies.budgets`), and whether decodes are served before prompts under way.

Source: vLLM 0.32 `v1/core/sched/scheduler.py`, checked against recorded decisions.
"""

from dataclasses import dataclass

from policies.base import (
    ALL_DECODES,
    ALL_RUNNING,
    AllRunning,
    Decision,
    KvOp,
    Limits,
    Mode,
    Plan,
    Policy,
    Release,
    RequestView,
    Scratch,
    Trigger,
    View,
    Work,
)
from policies.budgets import Budget
from policies.orders import Order


@dataclass(frozen=True, slots=True)
class Rules:
    """Numbers of the loop; their meaning is documented at `policies.vllm_v1.VllmV1`."""

    max_num_batched_tokens: int
    max_num_seqs: int
    max_num_active_seqs: int | None = None
    enable_chunked_prefill: bool = True
    long_prefill_token_threshold: int = 0
    long_prefill_token_threshold_adaptive: bool = False
    watermark: float = 0.0
    reserve_full_isl: bool = True
    decodes_first: bool = False


class _Step:
    """A step in the making; it has `left` tokens, of which a request gets at most `cap`."""

    __slots__ = ("admitted", "cap", "chunks", "left", "num_decodes", "preempted", "tokens")

    def __init__(self, left: int, cap: int) -> None:
        self.left = left
        self.cap = cap
        self.tokens: dict[int, int] = {}
        self.chunks: list[Work] = []
        self.admitted: list[int] = []
        self.preempted: list[RequestView] = []
        self.num_decodes: int | None = None
        """All decodes advance, and there are this many; None: `tokens` lists who advances."""


class Continuous(Policy):
    """A decision maker that runs the loop.

    Parameters
    ----------
    rules : Rules
        Numbers of the loop.
    limits : Limits
        What the policy promises to the engine.
    order : Order
        Fresh order of the queue.
    budget : Budget
        Token budget of each step.
    """

    def __init__(self, rules: Rules, limits: Limits, order: Order, budget: Budget) -> None:
        self.limits = limits
        self.needs_oracle = order.needs_oracle
        self._rules = rules
        self._order = order
        self._budget = budget
        self._seats = min(rules.max_num_seqs, rules.max_num_active_seqs or rules.max_num_seqs)
        self._is_steady = budget.is_constant and order.is_steady
        self._turns: dict[int, int] = {}
        """When each prompt was done, counted; kept where decodes go first, in this order."""
        self._num_turns = 0

    def on_submit(self, request: RequestView, view: View) -> str | None:
        """Put the request in order; refuse a prompt that no step can take whole."""
        limit = self._rules.max_num_batched_tokens
        if not self._rules.enable_chunked_prefill and request.prompt_tokens > limit:
            return (
                f"prompt of {request.prompt_tokens} tokens exceeds max_num_batched_tokens {limit} "
                "and chunked prefill is off"
            )
        self._order.add(request, view)
        return None

    def on_finish(self, request: RequestView, view: View) -> None:
        """Forget a request that left."""
        self._order.forget(request)
        self._turns.pop(request.id, None)

    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        """Return the next step: running requests first, then admissions."""
        is_settled = not len(view.waiting) and self._is_settled(view)
        if is_settled and self._decodes_find_blocks(view):
            return ALL_DECODES if len(view.running) else Decision()
        rules = self._rules
        most = rules.max_num_batched_tokens
        budget = most if is_settled else self._budget.tokens(view)
        step = _Step(budget, self._cap(view) if rules.long_prefill_token_threshold else most)
        kv = view.kv.scratch()
        if self._order.preemptive:
            self._make_way(view, step, kv)
        displaced = len(step.preempted)
        if displaced or not self._serve_ample(view, step, kv):
            self._serve(view, step, kv)
        if len(step.preempted) == displaced:
            self._admit(view, step, kv)
        for request in step.preempted:
            self._turns.pop(request.id, None)
            self._order.add(request, view)
        return self._decision(view, step, kv.journal, is_settled or self._is_steady)

    def _is_settled(self, view: View) -> bool:
        """Whether only decodes run, and no budget could leave one of them out."""
        number = len(view.running)
        return view.running.num_decodes == number and self._budget.at_least(number) >= number

    def _decodes_find_blocks(self, view: View) -> bool:
        """Whether every decode finds its block, without looking at them; False if unsure."""
        if view.plans_ahead:
            return False
        free = view.kv.free
        # A decode needs at most one block more, so this is enough while blocks abound.
        return view.running.num_decodes <= free or view.kv.decode_growth <= free

    def _make_way(self, view: View, step: _Step, kv: Scratch) -> None:
        """Preempt the running requests whose seats more urgent ones shall have."""
        self._order.begin(view)
        for request in self._order.displaced(list(view.running), self._seats):
            kv.release(request)
            step.preempted.append(request)

    def _cap(self, view: View) -> int:
        """Return the most tokens one request may get in this step."""
        rules = self._rules
        present = len(view.running) + len(view.waiting)
        if present < 2:
            return rules.max_num_batched_tokens
        cap = rules.long_prefill_token_threshold
        if rules.long_prefill_token_threshold_adaptive:
            cap = max(cap, rules.max_num_batched_tokens // present)
        return cap

    def _wish(self, request: RequestView, step: _Step, view: View) -> int:
        """Return the tokens a running request would get, whatever the blocks."""
        if request.promised and request.generated + request.promised >= request.max_tokens:
            return 0  # its last token is on its way
        tokens = min(request.remaining, step.cap, step.left)
        if view.max_model_len is not None:
            tokens = min(tokens, view.max_model_len - request.computed - 1)
        return tokens

    def _serve_ample(self, view: View, step: _Step, kv: Scratch) -> bool:
        """Serve all running requests where nothing is short, without looking at the decodes.

        Return False, having done nothing, where budget or blocks may be short.
        """
        running = view.running
        num_decodes = running.num_decodes
        if view.plans_ahead or num_decodes > step.left:
            return False
        served: list[tuple[RequestView, int]] = []
        growth, left = 0, step.left - num_decodes
        for request in running.partials:
            tokens = self._wish(request, step, view)
            if self._rules.decodes_first and request.computed >= request.prompt_tokens:
                return False  # it stands among the decodes
            matters = view.kv.caching or (tokens > left and not self._rules.decodes_first)
            if matters and running.decodes_before(request) < num_decodes:
                return False  # it takes some of the budget, or its blocks, before decodes
            tokens = min(tokens, left)
            if tokens > 0:
                left -= tokens
                growth += view.kv.need(request, tokens)
                served.append((request, tokens))
        # A decode needs at most one block more, so the first test is enough while blocks abound.
        if num_decodes + growth > kv.free and view.kv.decode_growth + growth > kv.free:
            return False
        if view.kv.caching:
            kv.hold_decodes(running)
        for request, tokens in served:
            kv.hold(request, request.computed + tokens)
            step.chunks.append(Work(request.id, tokens))
            if self._rules.decodes_first:
                self._note_turn(request, request.computed, tokens)
        step.left, step.num_decodes = left, num_decodes
        return True

    def _serve(self, view: View, step: _Step, kv: Scratch) -> None:
        """Serve the running requests one by one, preempting until the next one fits."""
        running = list(view.running)
        for request in step.preempted:
            running.remove(request)
        if self._rules.decodes_first:
            running.sort(key=self._turn)
        index = 0
        while index < len(running) and step.left > 0:
            request = running[index]
            tokens = self._wish(request, step, view)
            if tokens <= 0 and self._rules.decodes_first:
                return
            if tokens > 0:
                before = len(step.preempted)
                if not self._make_room(request, tokens, running, step, kv):
                    return
                if len(step.preempted) > before:
                    index = running.index(request)
                step.tokens[request.id] = tokens
                step.left -= tokens
                if self._rules.decodes_first:
                    self._note_turn(request, request.computed, tokens)
            index += 1

    def _turn(self, request: RequestView) -> tuple[bool, int]:
        """Return what is compared where decodes go first: prompts under way come last."""
        is_prompt = request.computed < request.prompt_tokens
        return is_prompt, 0 if is_prompt else self._turns.get(request.id, 0)

    def _make_room(
        self,
        request: RequestView,
        tokens: int,
        running: list[RequestView],
        step: _Step,
        kv: Scratch,
    ) -> bool:
        """Hold the blocks for more tokens; False if the request itself had to go."""
        while not kv.hold(request, request.computed + tokens):
            victim = self._order.victim(running)
            running.remove(victim)
            kv.release(victim)
            step.preempted.append(victim)
            step.left += step.tokens.pop(victim.id, 0)
            if victim is request:
                return False
        return True

    def _admit(self, view: View, step: _Step, kv: Scratch) -> None:
        """Admit waiting requests until the first that does not fit."""
        rules, order, seats, left = self._rules, self._order, self._seats, step.left
        num_running = len(view.running) - len(step.preempted)
        if left <= 0 or num_running >= seats or not len(view.waiting):
            return
        # The decodes of an ample step hold their blocks only when the engine runs it, unless it
        # matters which blocks these are.
        is_spared = step.num_decodes is not None and not view.kv.caching
        spare = view.kv.decode_growth if is_spared else 0
        order.begin(view)
        while left > 0 and num_running < seats:
            request = order.head
            if request is None:
                break
            past, hit_blocks, idle_blocks = kv.hit(request)
            known = request.known
            tokens = min(known - past, step.cap)
            if tokens > left and not rules.enable_chunked_prefill:
                break
            tokens = min(tokens, left)
            lasting = known if rules.reserve_full_isl else past + tokens
            need = view.kv.blocks_for(lasting) - hit_blocks + idle_blocks + spare
            if num_running and rules.watermark:
                need += int(rules.watermark * (view.kv.total + 1))
            if need > kv.free:
                break
            kv.take(request)
            kv.hold(request, past + tokens)
            order.take()
            step.admitted.append(request.id)
            step.chunks.append(Work(request.id, tokens))
            left -= tokens
            num_running += 1
            if rules.decodes_first:
                self._note_turn(request, past, tokens)
        step.left = left

    def _note_turn(self, request: RequestView, past: int, tokens: int) -> None:
        """Note the request if this step completes its prompt; decodes go in this order."""
        if past < request.prompt_tokens <= past + tokens:
            self._num_turns += 1
            self._turns[request.id] = self._num_turns

    def _decision(
        self, view: View, step: _Step, journal: tuple[KvOp, ...], is_steady: bool
    ) -> Decision:
        """Put a step into words."""
        preempt: tuple[tuple[int, Mode], ...] = ()
        if step.preempted:
            preempt = tuple([(r.id, Mode.RECOMPUTE) for r in step.preempted])
        decodes: AllRunning | tuple[int, ...] = ALL_RUNNING
        chunks, any_decode = step.chunks, step.num_decodes
        if any_decode is None:
            decodes, chunks = self._listed(view, step)
            any_decode = len(step.tokens)
        if not any_decode and not chunks:
            return Decision(preempt=preempt, kv=journal)
        if step.num_decodes is not None and not step.admitted:
            journal = ()  # it is what the engine does by itself
        steady = is_steady and not preempt and (not chunks or self._goes_on(step))
        until_arrival = not preempt and self._will_settle(view, step)
        plan = Plan(decodes, tuple(chunks), None, Release.PER_REQUEST, steady, until_arrival)
        return Decision(plan, tuple(step.admitted), (), preempt, kv=journal)

    def _will_settle(self, view: View, step: _Step) -> bool:
        """Whether nobody waits after this step, and no budget could leave a decode out then."""
        admitted = len(step.admitted)
        if admitted < len(view.waiting):
            return False
        number = len(view.running) + admitted
        return self._budget.at_least(number) >= number

    def _goes_on(self, step: _Step) -> bool:
        """Whether the next piece of the only prompt under way will be as long as this one.

        Who could not be admitted now cannot be then, when more blocks are held.
        """
        is_ample = step.num_decodes is not None and not step.admitted
        return is_ample and len(step.chunks) == 1 and not self._rules.decodes_first

    def _listed(self, view: View, step: _Step) -> tuple[AllRunning | tuple[int, ...], list[Work]]:
        """Return decodes and chunks of a step; decodes are listed only if some are left out."""
        gone = {r.id for r in step.preempted}
        staying = [r for r in view.running if r.id not in gone]
        alone = [r.id for r in staying if r.is_decode and r.id in step.tokens]
        pieces = [
            Work(r.id, step.tokens[r.id])
            for r in staying
            if not r.is_decode and r.id in step.tokens
        ]
        chunks = pieces + step.chunks
        if len(alone) < sum(r.is_decode for r in staying):
            return tuple(alone), chunks
        return ALL_RUNNING, chunks
