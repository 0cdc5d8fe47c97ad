"""Policies of one's own under watch: nonsense and endless decisions end in one clear sentence."""

from collections.abc import Iterable
from itertools import chain
from numbers import Integral

from policies.base import (
    ALL_RUNNING,
    Decision,
    Limits,
    Mode,
    Plan,
    Policy,
    Release,
    RequestView,
    Trigger,
    View,
)
from simulator.errors import PolicyStalled, RuleBroken, RunError

MAX_IDLE_DECISIONS = 50_000
"""Decisions of a policy during which something has to get on."""

MIN_POLL = 1e-6
"""Seconds between two decisions of a policy that looks for work while there is none."""


def watch(policy: object, kind: str, limit: int = MAX_IDLE_DECISIONS) -> Policy:
    """Return a policy that stops with an error where it answers nonsense or gets nowhere.

    In every `limit` decisions some request has to come, leave, or store or get a token that it
    never had; otherwise the policy wakes itself up for nothing, or preempts for ever what it has
    just computed.

    Parameters
    ----------
    policy : Policy
        Changed in place: what it is asked passes through here.
    kind : str
        Name for messages.
    limit : int
        Decisions between two looks at all requests.

    Raises
    ------
    RunError
        If it is no policy.
    """
    if not isinstance(policy, Policy):
        raise RunError(f"{kind}: build() returned {policy!r}, not a Policy")
    _check_limits(policy.limits, kind)
    decide, on_submit = policy.decide, policy.on_submit
    left, last, last_time = limit, (-1, -1, -1), 0.0

    def checked(view: View, trigger: Trigger = Trigger.START) -> Decision:
        nonlocal left, last, last_time
        left -= 1
        if left < 0:
            now, left = _progress(view), limit
            is_rushed = view.now - last_time < limit * MIN_POLL
            if now == last and (now[0] or is_rushed):
                what = f"no request came, left or got on during {limit} decisions"
                raise PolicyStalled(_where(policy, view, what))
            last, last_time = now, view.now
        try:
            decision = decide(view, trigger)
        except (SystemExit, GeneratorExit) as error:
            raise RunError(_where(policy, view, f"the policy raised {error!r}")) from error
        problem = wrong_types(decision)
        if problem:
            raise RuleBroken(_where(policy, view, f"decide returned {problem}"))
        return decision

    def submitted(request: RequestView, view: View) -> str | None:
        reason: object = on_submit(request, view)
        if reason is None or (isinstance(reason, str) and reason):
            return reason
        what = f"on_submit returned {reason!r}, not None or the reason of a rejection"
        raise RuleBroken(_where(policy, view, what))

    vars(policy).update(decide=checked, on_submit=submitted)
    return policy


def _check_limits(limits: object, kind: str) -> None:
    if not isinstance(limits, Limits):
        raise RunError(f"{kind}: limits is {limits!r}, not policies.Limits")
    for name, value in zip(limits._fields, limits, strict=True):
        if value is not None and not (isinstance(value, Integral) and value > 0):
            raise RunError(f"{kind}: limits.{name} is {value!r}, expected a whole number above 0")


def wrong_types(decision: object) -> str:
    """Return what in a decision is not what it has to be; empty if all is.

    Examples
    --------
    >>> wrong_types(Decision(admit=(0.5,)))
    'admit (0.5,), expected request numbers'
    """
    if not isinstance(decision, Decision):
        return f"{decision!r}, not a Decision"
    for name in ("admit", "swap_in"):
        value = getattr(decision, name)
        if value != () and not _is_numbers(value):
            return f"{name} {value!r}, expected request numbers"
    for name, kind in (("reserve", Integral), ("preempt", Mode), ("reject", str)):
        value = getattr(decision, name)
        if value != () and not _is_pairs(value, kind):
            return f"{name} {value!r}, expected pairs of a request number and {_NAMES[kind]}"
    if decision.wake_at is not None and not isinstance(decision.wake_at, int | float):
        return f"wake_at {decision.wake_at!r}, expected seconds"
    if decision.kv != () and not _is_journal(decision.kv):
        return f"kv {decision.kv!r}, expected the journal of a scratch ledger"
    return "" if decision.plan is None else _wrong_plan(decision.plan)


def _wrong_plan(plan: object) -> str:
    if not isinstance(plan, Plan):
        return f"plan {plan!r}, not a Plan"
    if plan.chunks != () and not _is_pairs(plan.chunks, Integral):
        return f"chunks {plan.chunks!r}, expected pairs of a request number and tokens"
    if plan.decodes is not ALL_RUNNING and plan.decodes != () and not _is_numbers(plan.decodes):
        return f"decodes {plan.decodes!r}, expected ALL_RUNNING or request numbers"
    shape: object = plan.shape
    if shape is not None and not (_is_numbers(shape) and len(tuple(plan.shape or ())) == 2):
        return f"shape {shape!r}, expected rows and columns"
    release: object = plan.release
    return "" if isinstance(release, Release) else f"release {release!r}, not a Release"


_NAMES = {Integral: "tokens", Mode: "a Mode", str: "the reason"}


def _is_numbers(values: object) -> bool:
    return isinstance(values, tuple | list) and all(isinstance(v, Integral) for v in values)


def _is_pairs(values: object, kind: type) -> bool:
    return isinstance(values, tuple | list) and all(
        isinstance(pair, tuple | list)
        and len(pair) == 2
        and isinstance(pair[0], Integral)
        and isinstance(pair[1], kind)
        for pair in values
    )


def _is_journal(values: object) -> bool:
    return isinstance(values, tuple | list) and all(
        isinstance(op, tuple) and len(op) == 3 and op[0] in _ACTIONS and _is_numbers(op[1:])
        for op in values
    )


_ACTIONS = ("take", "hold", "decodes", "release")


def _progress(view: View) -> tuple[int, int, int]:
    """Return numbers that change when a request comes, leaves or gets on."""
    number = identity = tokens = 0
    waiting: Iterable[RequestView] = chain(view.waiting, view.running, view.swapped)
    for request in waiting:
        number += 1
        identity += request.id
        best = getattr(request, "peak_computed", 0)
        tokens += request.known + max(best, request.computed)
    return number, identity, tokens


def _where(policy: Policy, view: View, what: str) -> str:
    name = type(policy).__name__.lstrip("_")
    lists = f"{len(view.waiting)} waiting, {len(view.running)} running"
    return f"{name} at {view.now:.6f} s ({lists}): {what}"
