"""Prove that a policy keeps the contract: one of ours, or one of your own."""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import zip_longest
from operator import attrgetter
from typing import NoReturn

import numpy as np
from pydantic import ValidationError

from policies.base import (
    ALL_RUNNING,
    Decision,
    Plan,
    Policy,
    PolicySpec,
    RequestView,
    Trigger,
    View,
)
from simulator.clock import ARRIVAL, At, Clock
from simulator.cost.analytic import FixedCost, LinearTokenCost
from simulator.engine import Engine
from simulator.errors import RuleBroken
from simulator.fastforward import FastEngine
from simulator.kv_cache import BlockManager
from simulator.recorder import DecisionLog, TableRecorder
from simulator.request import Request
from workloads.request import RequestSpec
from workloads.streams import Streams

Rows = list[RequestSpec]
Work = list[tuple[int, int]]

MAX_DECISIONS = 10_000
"""Decisions after which a run of a handful of requests counts as going round in circles."""

_TICK = 2**-8  # seconds; arrivals and fixed steps are multiples of it, so that events coincide
_VISIBLE = tuple(name for name in vars(RequestView) if not name.startswith("_"))
_look = attrgetter(*_VISIBLE)


def check_policy(spec: PolicySpec, *, num_traces: int = 20, seed: int = 0) -> None:
    """Prove on small random workloads that a policy keeps the contract.

    The workloads mix short and long, simultaneous and spread, ample and scarce KV caches. The
    engine checks every decision. Beyond that:

    * Every request finishes or is rejected with a reason; no KV block and no token gets lost.
    * Equal runs are equal: no state outlives a run; chance, clock, `id()` and sets decide nothing.
    * Hidden output lengths decide nothing, unless the policy declares `needs_oracle`.
    * The policy changes nothing that it sees, and what it foretells of its plans comes true.
    * The specification is frozen, pickles, round-trips, and refuses unknown parameters.

    Parameters
    ----------
    spec : PolicySpec
        The policy with its parameters. Its class stands at the top level of a module.
    num_traces : int
        Number of workloads, at least 1. Each takes a few hundredths of a second.
    seed : int
        Seed of the workloads, at least 0.

    Raises
    ------
    AssertionError
        One sentence: the rule that is broken, how, and in which workload.

    Examples
    --------
    >>> from policies import Static
    >>> check_policy(Static(max_batch_size=4), num_traces=5)
    """
    if num_traces < 1:
        raise ValueError(f"num_traces {num_traces}: expected at least 1")
    _check_spec(spec)
    for number in range(num_traces):
        _Trial(spec, f"workload {number} of seed {seed}", Streams(seed)("policy", number)).check()


def _refuse(spec: PolicySpec, rule: str, detail: object, where: str = "") -> NoReturn:
    raise AssertionError(" ".join(f"{type(spec).__name__}: {rule}: {detail}{where}".split()))


def _check_spec(spec: PolicySpec) -> None:
    cls, data = type(spec), spec.model_dump()
    try:
        copies = [pickle.loads(pickle.dumps(spec)), cls.model_validate(data)]
        copies.append(cls.model_validate(spec.model_dump(mode="json")))
        built: list[object] = [spec.build(), spec.build()]
    except Exception as error:
        _refuse(spec, "the specification has to survive pickle, model_dump, build", repr(error))
    if any(copy != spec for copy in copies):
        _refuse(spec, "pickle and model_dump have to give an equal specification", copies)
    for name in data:
        with suppress(ValidationError):
            setattr(spec, name, data[name])
            _refuse(spec, "the specification has to be frozen", f"{name} can be set")
    with suppress(ValidationError):
        cls.model_validate(data | {"no_such_parameter": 1})
        _refuse(spec, "unknown parameters have to be refused", "no_such_parameter was accepted")
    if built[0] is built[1] or not isinstance(built[0], Policy):
        _refuse(spec, "build() has to return a new Policy each time", built)


class _Trial:
    """One random workload and the replica that serves it."""

    def __init__(self, spec: PolicySpec, name: str, rng: np.random.Generator) -> None:
        self._spec = spec
        self._refuse = partial(_refuse, spec, where=f" ({name})")
        self._rows = _draw_rows(rng)
        self._altered = _alter(self._rows, rng)
        longest = max(row.prompt_tokens + row.max_tokens for row in self._rows)
        self._block_size = int(rng.choice([1, 2, 4, 16]))
        scarce = -(-longest // self._block_size) + int(rng.integers(4))
        self._num_blocks = scarce if rng.random() < 0.5 else None
        self._max_model_len = longest if rng.random() < 0.5 else None
        self._cost = (FixedCost(2 * _TICK), LinearTokenCost(_TICK, 1e-3, 1e-4))[rng.integers(2)]

    def check(self) -> None:
        """Run the workload in several ways and compare."""
        parameters = self._spec.model_dump()
        run = self._run(self._rows)
        self._run(self._rows, until=run.end / 2)  # the work it leaves must not matter
        self._check_equal(run, self._run(self._rows, flip=True))
        self._check_equal(run, self._run(self._rows, FastEngine))
        for rows in [] if self._spec.build().needs_oracle else self._altered:
            self._check_blind(run, self._run(rows), rows)
        if self._spec.model_dump() != parameters:
            self._refuse("a run must not change the specification", self._spec)

    def _run(
        self, rows: Rows, kind: type[Engine] = Engine, flip: bool = False, until: float = 0.0
    ) -> "_Record":
        policy = self._spec.build()
        # Named like the policy, because the engine's messages name the class.
        guard: Policy = type(type(policy).__name__, (_Guard,), {})(policy)
        outputs = {row.id: row.output_tokens for row in rows}
        requests = _place(rows, kind.request_type, flip)
        record, recorder, env = _Record(requests, outputs), TableRecorder(outputs), Clock()
        kv = kind.ledger_type(self._num_blocks, self._block_size)
        engine = kind(env, guard, self._cost, kv, outputs, self._max_model_len, (recorder, record))
        engine.start()
        for request in requests:
            At(env, request.arrival, ARRIVAL).callbacks.append(partial(_submit, engine, request))
        try:
            env.run(until or None)
            if not until:
                engine.check_done()
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            self._refuse("the engine has to accept every decision", what)
        record.end, tables = env.now, recorder.tables(engine.unfinished())
        record.columns = {f"{t} {c}": col.tobytes() for t in tables for c, col in tables[t].items()}
        if not until:
            self._check_end(requests, kv, int(tables["steps"]["useful_tokens"].astype(int).sum()))
        return record

    def _check_end(self, requests: list[Request], kv: BlockManager, computed: int) -> None:
        for request in requests:
            state, reason = request.state.value, request.reject_reason
            if state != "finished" and not (state == "rejected" and reason):
                rule = "every request has to finish or be rejected with a reason"
                self._refuse(rule, f"request {request.id} is {state}, reason {reason!r}")
        if kv.used or kv.num_allocated != kv.num_freed:
            self._refuse("every KV block has to be freed once", f"{kv.used} are still held")
        kept = sum(max(r.peak_computed, r.computed) + r.recomputed_tokens for r in requests)
        if computed != kept:
            self._refuse("no token may get lost", f"{computed} computed, {kept} accounted for")

    def _check_equal(self, run: "_Record", again: "_Record") -> None:
        rule = "equal runs have to be equal (no state that outlives a run, chance, clock, id, set)"
        if run.lines != again.lines:
            self._refuse(rule, _difference(run.lines, again.lines))
        for name, column in run.columns.items():
            if column != again.columns[name]:
                self._refuse(rule, f"column {name} differs")

    def _check_blind(self, run: "_Record", other: "_Record", rows: Rows) -> None:
        changed = [a.id for a, b in zip(self._rows, rows, strict=True) if a != b]
        common = min(run.until_done(changed), other.until_done(changed))
        ours, theirs = run.lines[:common], other.lines[:common]
        if ours != theirs:
            rule = "hidden output lengths must not decide (unless needs_oracle is declared)"
            self._refuse(rule, f"with other lengths, {_difference(ours, theirs)}")


class _Guard(Policy):
    """Passes everything on to a policy and watches what it does to the things it sees."""

    def __init__(self, policy: Policy) -> None:
        self.needs_oracle, self.limits = policy.needs_oracle, policy.limits
        self._policy = policy
        self._num_decisions = 0
        self._steady: tuple[Decision, list[int]] | None = None
        self._until_arrival = False

    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        self._num_decisions += 1
        if self._num_decisions > MAX_DECISIONS:
            raise RuleBroken(f"there is no end after {MAX_DECISIONS} decisions")
        with _unchanged("decide", view):
            decision: object = self._policy.decide(view, trigger)
        if not isinstance(decision, Decision):
            raise RuleBroken(f"decide returned {decision!r} instead of a Decision")
        self.limits = self._policy.limits
        self._check_steady(decision, view, trigger)
        self._check_until_arrival(decision, view, trigger)
        return decision

    def on_submit(self, request: RequestView, view: View) -> str | None:
        with _unchanged("on_submit", view, request):
            return self._policy.on_submit(request, view)

    def on_finish(self, request: RequestView, view: View) -> None:
        with _unchanged("on_finish", view, request):
            self._policy.on_finish(request, view)

    def _check_steady(self, decision: Decision, view: View, trigger: Trigger) -> None:
        members = [request.id for request in view.running]
        expected = None
        if self._steady and trigger is Trigger.STEP_DONE and self._steady[1] == members:
            expected = self._steady[0]
        if expected and decision != expected and _can_repeat(expected.plan, view):
            raise RuleBroken(f"a steady plan became {decision} though nothing had happened")
        is_steady = decision.plan is not None and decision.plan.steady
        self._steady = (Decision(decision.plan), members) if is_steady else None

    def _check_until_arrival(self, decision: Decision, view: View, trigger: Trigger) -> None:
        plan, running = decision.plan, view.running
        limit = self.limits.max_num_batched_tokens
        foretold = self._until_arrival and trigger is Trigger.STEP_DONE
        foretold = foretold and len(running) == running.num_decodes
        foretold = foretold and (limit is None or len(running) <= limit)
        if foretold and view.kv.decode_growth <= view.kv.free:
            expected = Plan(ALL_RUNNING) if len(running) else None
            found = None if plan is None else plan._replace(steady=False, until_arrival=False)
            if decision != Decision(plan) or found != expected:
                raise RuleBroken(f"a plan until the next arrival became {decision} before it")
        self._until_arrival = plan is not None and plan.until_arrival


def _can_repeat(plan: Plan | None, view: View) -> bool:
    """Whether there are blocks for a plan, and more of each prompt than its piece."""
    assert plan is not None, "it was steady"
    running = {request.id: request for request in view.running}
    need = view.kv.decode_growth
    for rid, tokens in plan.chunks:
        need += view.kv.need(running[rid], tokens)
        if running[rid].remaining <= tokens:
            return False
    return need <= view.kv.free


@contextmanager
def _unchanged(method: str, view: View, *others: RequestView) -> Iterator[None]:
    before = _snapshot(view, *others)
    yield
    for (what, whose), now in _snapshot(view, *others).items():
        was = before.get((what, whose))
        if now != was:
            raise RuleBroken(f"{method} changed the {what} of {whose} from {was} to {now}")


def _snapshot(view: View, *others: RequestView) -> dict[tuple[str, str], object]:
    seen: dict[tuple[str, str], object] = {("number", "free KV blocks"): view.kv.free}
    for name, queue in (("waiting", view.waiting), ("running", view.running), ("new", others)):
        seen["list", f"{name} requests"] = [request.id for request in queue]
        for r in queue:
            whose = f"request {r.id}"
            seen |= {(what, whose): value for what, value in zip(_VISIBLE, _look(r), strict=True)}
    return seen


class _Record(DecisionLog):
    """What a run leaves; knows which decision led to a request's last token."""

    def __init__(self, requests: list[Request], outputs: dict[int, int]) -> None:
        super().__init__()
        self.end, self.columns = 0.0, dict[str, bytes]()
        self._requests, self._outputs = requests, outputs
        self._done_at: dict[int, int] = {}

    def on_decision(self, now: float, trigger: Trigger, decision: Decision, work: Work) -> None:
        super().on_decision(now, trigger, decision, work)
        for rid, tokens in work:
            request = self._requests[rid]
            if tokens == request.remaining and request.generated + 1 == self._outputs[rid]:
                self._done_at[rid] = len(self.lines)

    def until_done(self, rids: list[int]) -> int:
        """Return the number of lines up to the first last token of these requests."""
        return min(self._done_at.get(rid, len(self.lines)) for rid in rids)


def _difference(ours: list[str], theirs: list[str]) -> str:
    pairs = zip_longest(ours, theirs, fillvalue="none")
    return next(f"decision {i} was '{a}' and is '{b}'" for i, (a, b) in enumerate(pairs) if a != b)


def _draw_rows(rng: np.random.Generator) -> Rows:
    number, max_size = int(rng.integers(1, 9)), int(rng.choice([1, 1, 1, 2]))
    gaps = rng.integers(int(rng.choice([1, 3, 40])), size=number)
    rows = []
    for rid, ticks in enumerate(np.cumsum(gaps).tolist()):
        prompt, cap = int(rng.choice([1, 9, int(rng.integers(1, 33))])), int(rng.integers(4, 17))
        output = int(rng.choice([1, 2, int(rng.integers(1, cap + 1))]))
        order, tenant = int(rng.integers(3)), "ab"[rng.integers(2)]
        size = int(rng.integers(1, max_size + 1))
        rows.append(RequestSpec(rid, ticks * _TICK, prompt, output, cap, order, tenant, size))
    return rows


def _alter(rows: Rows, rng: np.random.Generator) -> list[Rows]:
    """Give other output lengths to all requests, and to one alone."""
    other = [row._replace(output_tokens=row.output_tokens % row.max_tokens + 1) for row in rows]
    one = int(rng.integers(len(rows)))
    return [other, [*rows[:one], other[one], *rows[one + 1 :]]]


def _place(rows: Rows, kind: type[Request], descending: bool) -> list[Request]:
    """Make the requests at ascending or descending addresses, so that an order by id() shows."""
    blanks = sorted((kind.__new__(kind) for _ in rows), key=id, reverse=descending)
    for blank, row in zip(blanks, rows, strict=True):
        kind.__init__(blank, row)
    return blanks


def _submit(engine: Engine, request: Request, _: object) -> None:
    engine.submit(request)
