"""Policies that answer nonsense, leave, or never get anywhere: one sentence says who and what."""

import math
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from policies import ALL_RUNNING, Decision, Limits, Plan, Policy, PolicySpec, Trigger, View, Work
from policies.base import KvOp, Mode, RequestView, Shape
from simulator import RunSpec, simulate
from simulator.errors import PolicyStalled, RuleBroken, RunError
from simulator.own_policy import watch, wrong_types

ANSWERS: dict[str, Callable[[View], Any]] = {}
"""What the policy in the test answers, by name."""


class _Answers(Policy):
    def __init__(self, name: str) -> None:
        self._name = name

    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        answer: Decision = ANSWERS[self._name](view)
        return answer


class Answers(PolicySpec):
    """A policy that answers what the test wants."""

    name: str

    def build(self) -> Policy:
        return _Answers(self.name)


def spec(policy: PolicySpec) -> RunSpec:
    return RunSpec(
        policy=policy,
        workload={"arrivals": 9, "prompt_tokens": 8, "output_tokens": 4, "num_requests": 5},
        cost={"kind": "fixed", "step_ms": 10},
    )


def chunk(view: View, tokens: Any) -> Decision:
    head = view.waiting.head
    return (
        Decision() if head is None else Decision(Plan(chunks=(Work(head.id, tokens),)), (head.id,))
    )


NONSENSE: dict[str, tuple[Any, str]] = {
    "text": ("run", "'run', not a Decision"),
    "tuple": ((None, (), ()), "not a Decision"),
    "a number to admit": (Decision(admit=5), "admit 5, expected request numbers"),  # type: ignore[arg-type]
    "nobody to admit": (Decision(admit=None), "admit None"),  # type: ignore[arg-type]
    "a list in admit": (Decision(admit=([],)), "admit ([],)"),  # type: ignore[arg-type]
    "half a request": (Decision(admit=(0.5,)), "admit (0.5,)"),  # type: ignore[arg-type]
    "swap in a text": (Decision(swap_in=("a",)), "swap_in ('a',)"),  # type: ignore[arg-type]
    "a plan of 5": (Decision(plan=5), "plan 5, not a Plan"),  # type: ignore[arg-type]
    "5 decodes": (Decision(Plan(decodes=5)), "decodes 5, expected ALL_RUNNING"),  # type: ignore[arg-type]
    "text as chunks": (Decision(Plan(chunks="ab")), "chunks 'ab'"),  # type: ignore[arg-type]
    "no chunks": (Decision(Plan(chunks=None)), "chunks None"),  # type: ignore[arg-type]
    "half a token": (Decision(Plan(chunks=(Work(0, 1.5),))), "tokens=1.5"),  # type: ignore[arg-type]
    "shape of text": (Decision(Plan(shape="x")), "shape 'x'"),  # type: ignore[arg-type]
    "flat shape": (Decision(Plan(shape=(1,))), "shape (1,)"),  # type: ignore[arg-type]
    "release of text": (Decision(Plan(release="x")), "release 'x'"),  # type: ignore[arg-type]
    "wake-up call": (Decision(wake_at="soon"), "wake_at 'soon', expected seconds"),  # type: ignore[arg-type]
    "bare rejection": (Decision(reject=(0,)), "reject (0,)"),  # type: ignore[arg-type]
    "reason 5": (Decision(reject=((0, 5),)), "reject ((0, 5),)"),  # type: ignore[arg-type]
    "mode x": (Decision(preempt=((0, "x"),)), "preempt ((0, 'x'),)"),  # type: ignore[arg-type]
    "reserve a": (Decision(reserve=((0, "a"),)), "reserve ((0, 'a'),)"),  # type: ignore[arg-type]
    "journal of 1": (Decision(kv=(1,)), "kv (1,)"),  # type: ignore[arg-type]
    "fly": (Decision(kv=(("fly", 0, 1),)), "kv (('fly', 0, 1),)"),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("name", NONSENSE)
def test_nonsense_is_named(name: str) -> None:
    answer, expected = NONSENSE[name]
    ANSWERS[name] = lambda view: answer
    with pytest.raises(RuleBroken) as caught:
        simulate(spec(Answers(name=name)))
    assert str(caught.value).startswith("Answers at 0.000000 s (0 waiting, 0 running): decide ret")
    assert expected in str(caught.value)


def test_what_a_policy_may_answer_is_no_nonsense() -> None:
    numbers = np.arange(2)
    for decision in (
        Decision(),
        Decision(Plan(ALL_RUNNING, (Work(1, 2),), Shape(1, 2), steady=True), (1,), ((1, 9),)),
        Decision(Plan([0, 1], [(1, 2)]), [1]),  # type: ignore[arg-type]
        Decision(Plan((numbers[0],), (Work(1, numbers[1]),)), (numbers[1],)),  # type: ignore[arg-type]
        Decision(preempt=((1, Mode.SWAP),), swap_in=(2,), reject=((3, "no"),), wake_at=4),
        Decision(kv=(KvOp("hold", 1, 16), KvOp("decodes", -1))),
    ):
        assert wrong_types(decision) == ""


@pytest.mark.parametrize("number", [-1, 10**30, math.inf])
def test_wrong_numbers_break_a_rule(number: float) -> None:
    ANSWERS["number"] = lambda view: chunk(view, number)
    with pytest.raises(RuleBroken, match="tokens"):
        simulate(spec(Answers(name="number")))


@pytest.mark.parametrize("error", [SystemExit(7), GeneratorExit(), RecursionError(), MemoryError()])
def test_a_policy_that_wants_to_leave_only_ends_its_run(error: BaseException) -> None:
    def leave(view: View) -> Decision:
        raise error

    ANSWERS["leave"] = leave
    with pytest.raises(RunError, match=f"the policy raised {type(error).__name__}"):
        simulate(spec(Answers(name="leave")))


class _Odd(_Answers):
    def on_submit(self, request: RequestView, view: View) -> str | None:
        return 5  # type: ignore[return-value]


class Odd(PolicySpec):
    """Wrong in the way that its parameter names."""

    how: str

    def build(self) -> Policy:
        if self.how == "raises":
            raise KeyError("nope")
        policy = _Odd("nothing")
        if self.how == "limits":
            policy.limits = "none"  # type: ignore[assignment]
        if self.how == "limit":
            policy.limits = Limits(max_num_batched_tokens=0)
        return "policy" if self.how == "no policy" else policy  # type: ignore[return-value]

    def refusal(self, machine: Any) -> str | None:
        return 1 / 0 if self.how == "refusal" else None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("raises", r"build\(\) raised KeyError\('nope'\)"),
        ("no policy", "build\\(\\) returned 'policy', not a Policy"),
        ("limits", "limits is 'none', not policies.Limits"),
        ("limit", "limits.max_num_batched_tokens is 0, expected a whole number above 0"),
        ("refusal", r"refusal\(\) raised ZeroDivisionError"),
        ("submit", "on_submit returned 5, not None or the reason"),
    ],
)
def test_a_policy_that_is_odd_before_it_decides(how: str, expected: str) -> None:
    ANSWERS["nothing"] = lambda view: Decision()
    with pytest.raises(RunError, match=expected):
        simulate(spec(Odd(how=how)))


def thrash(view: View) -> Decision:
    """Compute one token, throw it away, begin again."""
    for request in view.running:
        return Decision(preempt=((request.id, Mode.RECOMPUTE),))
    return chunk(view, 1)


def tick(view: View) -> Decision:
    """Ask to be woken at the next grid point."""
    return Decision(wake_at=view.now + 2**-29)


@pytest.mark.parametrize("answer", [thrash, tick])
def test_decisions_that_lead_nowhere_end(
    monkeypatch: pytest.MonkeyPatch, answer: Callable[[View], Decision]
) -> None:
    monkeypatch.setattr("simulator.run.watch", lambda policy, kind: watch(policy, kind, 500))
    ANSWERS["nowhere"] = answer
    with pytest.raises(PolicyStalled, match="no request came, left or got on during 500 decisions"):
        simulate(spec(Answers(name="nowhere")))


def test_progress_however_slow_is_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    """One token of a prompt, or one token of output, in three decisions."""
    monkeypatch.setattr("simulator.run.watch", lambda policy, kind: watch(policy, kind, 6))
    count = iter(range(10**9))

    def slow(view: View) -> Decision:
        if next(count) % 3:
            return Decision(wake_at=view.now + 0.001)
        for request in view.running:
            tokens = (Work(request.id, 1),)
            return Decision(Plan((request.id,)) if request.is_decode else Plan(chunks=tokens))
        return chunk(view, 1) if len(view.waiting) else Decision()

    ANSWERS["slow"] = slow
    assert simulate(spec(Answers(name="slow"))).metrics["completed"] == 5


def test_the_clock_of_the_wall_means_nothing_to_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """It jumps back by years between any two looks."""
    run = RunSpec(policy="vllm-v1", workload={"name": "demo-chat", "num_requests": 20})
    expected = simulate(run)
    jumps = iter(range(10**9))
    for name in ("time", "time_ns"):
        monkeypatch.setattr(time, name, lambda: 1.7e9 - 1e7 * next(jumps))
    again = simulate(run)
    assert again.metrics == expected.metrics
    assert again.manifest() == expected.manifest()
