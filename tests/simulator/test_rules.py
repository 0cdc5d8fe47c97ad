"""Each rule that a decision has to keep (C9), broken by a scripted policy in a real run."""

from collections.abc import Callable
from math import inf, nan

import pytest

from policies.base import (
    ALL_RUNNING,
    Decision,
    Limits,
    Mode,
    Plan,
    Release,
    Shape,
    Trigger,
    View,
    Work,
)
from simulator import DecisionLog, RuleBroken
from simulator.cost import StepWork
from simulator.queues import RunningList
from simulator.request import Request
from simulator.rules import expand, padded, step_work
from tests.simulator.harness import Scripted, column, run
from workloads.request import RequestSpec

ROWS = [(0.0, 4, 3), (0.0, 6, 3), (0.5, 5, 3)]
FIRST = Decision(plan=Plan(chunks=(Work(0, 4),)), admit=(0,))
"""At 0 s. A second later request 0 has its first token, and requests 1 and 2 wait."""


def chunks(*work: tuple[int, int]) -> tuple[Work, ...]:
    return tuple(Work(*item) for item in work)


BROKEN = {
    "an admitted request has to wait": (
        Decision(admit=(0,)),
        "request 0 is admitted but does not wait",
    ),
    "an unknown request cannot be admitted": (
        Decision(admit=(9,)),
        "request 9 is admitted but does not wait",
    ),
    "a rejected request has to wait": (
        Decision(reject=((0, "tired"),)),
        "request 0 is rejected but does not wait",
    ),
    "a preempted request has to run": (
        Decision(preempt=((1, Mode.RECOMPUTE),)),
        "request 1 is preempted but does not run",
    ),
    "space is reserved at admission only": (
        Decision(reserve=((0, 8),)),
        "reserved for request 0, which is not admitted",
    ),
    "nobody is admitted twice": (
        Decision(admit=(1, 2, 1)),
        "request 1 is named twice in one decision",
    ),
    "nobody is admitted and rejected": (
        Decision(admit=(1,), reject=((1, "tired"),)),
        "request 1 is named twice in one decision",
    ),
    "nobody is preempted twice": (
        Decision(preempt=((0, Mode.RECOMPUTE), (0, Mode.RECOMPUTE))),
        "request 0 is named twice in one decision",
    ),
    "nobody is preempted and admitted at once": (
        Decision(preempt=((0, Mode.RECOMPUTE),), admit=(0,)),
        "request 0 is admitted but does not wait",
    ),
    "nobody has two chunks beside all running": (
        Decision(Plan(ALL_RUNNING, chunks((1, 2), (1, 2))), admit=(1,)),
        "request 1 has two chunks in one step",
    ),
    "nobody has two listed chunks": (
        Decision(Plan(chunks=chunks((1, 2), (1, 2))), admit=(1,)),
        "request 1 has two chunks in one step",
    ),
    "nobody is listed as a decode twice": (
        Decision(Plan(decodes=(0, 0))),
        "request 0 is planned twice in one step",
    ),
    "nobody is a decode and a chunk": (
        Decision(Plan(decodes=(0,), chunks=chunks((0, 1)))),
        "request 0 is planned twice in one step",
    ),
    "who waits is not planned": (
        Decision(Plan(chunks=chunks((1, 4)))),
        "request 1 is planned but does not run",
    ),
    "who waits is not planned beside all running": (
        Decision(Plan(ALL_RUNNING, chunks((1, 4)))),
        "request 1 is planned but does not run",
    ),
    "who is preempted is not planned": (
        Decision(Plan(decodes=(0,)), preempt=((0, Mode.RECOMPUTE),)),
        "request 0 is planned but does not run",
    ),
    "nobody computes more than it lacks": (
        Decision(Plan(chunks=chunks((1, 7))), admit=(1,)),
        "request 1 is planned 7 tokens but lacks 6",
    ),
    "a decode computes one token": (
        Decision(Plan(ALL_RUNNING, chunks((0, 2)))),
        "request 0 is planned 2 tokens but lacks 1",
    ),
    "a listed prompt is not a decode": (
        Decision(Plan(decodes=(1,), chunks=chunks((2, 0))), admit=(1, 2)),
        "request 2 is planned 0 tokens",
    ),
    "nobody computes less than a token": (
        Decision(Plan(chunks=chunks((1, 0))), admit=(1,)),
        "request 1 is planned 0 tokens",
    ),
    "nobody computes less than a token beside all running": (
        Decision(Plan(ALL_RUNNING, chunks((1, 0))), admit=(1,)),
        "request 1 is planned 0 tokens",
    ),
    "nobody computes a negative number of tokens": (
        Decision(Plan(ALL_RUNNING, chunks((1, -1))), admit=(1,)),
        "request 1 is planned -1 tokens",
    ),
    "a step keeps to the token limit": (
        Decision(Plan(chunks=chunks((1, 4), (2, 5))), admit=(1, 2)),
        "the step computes 9 tokens, max_num_batched_tokens is 8",
    ),
    "a chunk is refused, not cut, where the decodes leave less": (
        Decision(Plan(ALL_RUNNING, chunks((1, 6), (2, 2))), admit=(1, 2)),
        "the step computes 9 tokens, max_num_batched_tokens is 8",
    ),
    "no more requests run than promised": (
        Decision(Plan(ALL_RUNNING), admit=(1, 2)),
        "3 requests run, max_num_seqs is 2",
    ),
    "a step fits the free blocks": (
        Decision(Plan(chunks=chunks((1, 6))), admit=(1,)),
        "request 1 needs 3 more KV blocks, 2 are free",
    ),
    "a reservation fits the free blocks": (
        Decision(admit=(1,), reserve=((1, 9),)),
        "request 1 needs 5 more KV blocks, 2 are free",
    ),
    "a plan has work": (Decision(Plan()), "the plan is empty"),
    "a shape has enough rows": (
        Decision(Plan(chunks=chunks((1, 2), (2, 2)), shape=Shape(1, 9)), admit=(1, 2)),
        "shape 1 x 9 is smaller than the work, 2 x 2",
    ),
    "a shape has enough columns": (
        Decision(Plan(chunks=chunks((1, 4)), shape=Shape(2, 3)), admit=(1,)),
        "shape 2 x 3 is smaller than the work, 1 x 4",
    ),
    "a padded step is prefill or decode": (
        Decision(Plan(ALL_RUNNING, chunks((1, 2)), shape=Shape(2, 4)), admit=(1,)),
        "a padded step mixes prompts and decodes",
    ),
    "a wake-up lies in the future": (Decision(wake_at=0.75), "wake_at 0.75 is not in the future"),
    "a wake-up is not now": (Decision(wake_at=1.0), "wake_at 1.0 is not in the future"),
    "a wake-up is a number": (Decision(wake_at=nan), "wake_at nan is not in the future"),
    "a wake-up is finite": (Decision(wake_at=inf), "wake_at inf is not in the future"),
}


def setting(rule: str) -> dict[str, object]:
    """Return limits that are in nobody's way but the rule's."""
    blocks = 4 if "free blocks" in rule else 64
    tokens = 8 if "token limit" in rule or "not cut" in rule else None
    rows = 2 if "promised" in rule else None
    return {"limits": Limits(tokens, rows), "blocks": blocks}


def script(second: Decision) -> Callable[[View, Trigger], Decision]:
    answers = iter([FIRST, second])
    return lambda view, trigger: next(answers)


@pytest.mark.parametrize("rule", BROKEN, ids=lambda rule: rule.replace(" ", "_"))
def test_a_broken_rule_ends_the_run_with_time_trigger_and_queues(rule: str) -> None:
    decision, message = BROKEN[rule]
    limits, blocks = setting(rule).values()
    policy = Scripted(decide=script(decision), limits=limits)
    with pytest.raises(RuleBroken) as caught:
        run(ROWS, policy, engine={"block_size": 2, "num_blocks": blocks})
    text = str(caught.value)
    joined = 0 if "does not wait" in text or "named twice" in text else len(decision.admit)
    left = 1 if "is planned but" in text and decision.preempt else 0
    where = f"at 1.000000 s (STEP_DONE|ARRIVAL, {2 - joined + left} waiting, "
    assert where + f"{1 + joined - left} running): " in text
    assert message in text
    assert text.startswith("Scripted ")


def answers(*decisions: Decision) -> Callable[[View, Trigger], Decision]:
    """Give these decisions, then serve everybody who runs."""
    given = iter(decisions)

    def decide(view: View, trigger: Trigger) -> Decision:
        decision = next(given, None)
        if decision is None:
            decision = Decision(Plan(ALL_RUNNING)) if len(view.running) else Decision()
        return decision

    return decide


def test_what_a_preemption_frees_can_be_taken_by_an_admission_of_the_same_decision() -> None:
    switch = Decision(plan=Plan(chunks=chunks((1, 6))), preempt=((0, Mode.RECOMPUTE),), admit=(1,))
    back = Decision(plan=Plan(chunks=chunks((0, 5))), admit=(0,))
    policy = Scripted(decide=answers(FIRST, switch, Decision(Plan(decodes=(1,))), back))
    # Request 0 holds 2 of 4 blocks; request 1 needs 3, then 4; then 0 comes back and needs 3.
    result = run([(0, 4, 3), (0, 6, 2)], policy, engine={"block_size": 2, "num_blocks": 4})
    assert column(result, "finish_s") == [5.0, 3.0]


def test_several_victims_stand_at_the_head_the_last_one_first() -> None:
    seen: list[list[int]] = []
    first = Decision(Plan(chunks=chunks((0, 1), (1, 1))), admit=(0, 1))
    second = Decision(preempt=((1, Mode.RECOMPUTE), (0, Mode.RECOMPUTE)))
    third = Decision(Plan(chunks=chunks((0, 2), (1, 2), (2, 1))), admit=(0, 1, 2))
    script = answers(first, second, third)

    def decide(view: View, trigger: Trigger) -> Decision:
        seen.append([r.id for r in view.waiting])
        return script(view, trigger)

    run([(0, 1, 2), (0, 1, 2), (0.5, 1, 1)], Scripted(decide=decide))
    assert seen[:3] == [[0, 1], [2], [0, 1, 2]]


def test_a_request_without_blocks_can_be_preempted() -> None:
    first = Decision(Plan(chunks=chunks((0, 4))), admit=(0, 1))
    second = Decision(Plan(ALL_RUNNING), preempt=((1, Mode.RECOMPUTE),))
    third = Decision(Plan(ALL_RUNNING, chunks((1, 6))), admit=(1,))
    result = run([(0, 4, 3), (0, 6, 1)], Scripted(decide=answers(first, second, third)))
    assert column(result, "finish_s") == [3.0, 3.0]
    assert column(result, "recomputed_tokens") == [0, 0]


def runners(*members: tuple[int, int, int]) -> RunningList:
    """Return a running list of (prompt, computed, generated), numbered from 0."""
    running = RunningList()
    for rid, (prompt, computed, generated) in enumerate(members):
        request = Request(RequestSpec(rid, 0.0, prompt, 99, size=rid + 1))
        request.compute(computed)
        request.generated += generated
        request.known += generated
        running.append(request)
    return running


DECODE, PARTIAL, REREADING = (4, 4, 1), (9, 3, 0), (4, 4, 3)


def work(plan: Plan, running: RunningList, limit: int | None = None) -> list[tuple[int, int]]:
    return [(r.id, tokens) for r, tokens in expand(plan, running, Limits(limit))]


def test_all_running_serves_in_running_order_until_the_budget_ends() -> None:
    running = runners(DECODE, PARTIAL, DECODE, REREADING, DECODE)
    plan = Plan(ALL_RUNNING, chunks((3, 2), (1, 5)))
    assert work(plan, running) == [(0, 1), (1, 5), (2, 1), (3, 2), (4, 1)]
    assert work(plan, running, 9) == [(0, 1), (1, 5), (2, 1), (3, 2)]


def test_all_running_gives_a_prompt_without_a_chunk_nothing() -> None:
    assert work(Plan(ALL_RUNNING), runners(PARTIAL, DECODE, REREADING)) == [(1, 1)]


def test_a_list_means_what_it_says_and_nobody_else() -> None:
    running = runners(DECODE, PARTIAL, DECODE)
    assert work(Plan((2,), chunks((1, 6))), running, 7) == [(2, 1), (1, 6)]


def test_the_work_of_a_step_is_what_the_machine_sees() -> None:
    running = runners(DECODE, PARTIAL, (9, 3, 0), REREADING, (4, 5, 2))
    plan = Plan(ALL_RUNNING, chunks((1, 5), (2, 6), (3, 3)))
    listed = expand(plan, running, Limits())
    # Request 0 attends to 5 tokens, request 4 to 6; 2 and 3 catch up and yield a token, 1 does not.
    assert step_work(listed) == StepWork(
        num_decodes=2,
        context_tokens=11,
        chunks=((5, 3), (6, 3), (3, 4)),
        num_sampled=4,
        num_rows=1 + 2 + 3 + 4 + 5,
    )


def test_the_last_token_of_a_prompt_is_no_decode() -> None:
    listed = expand(Plan(chunks=chunks((0, 1))), runners((9, 8, 0)), Limits())
    assert step_work(listed) == StepWork(0, 0, ((1, 8),), 1, 1)


def test_padding_fills_prompts_up_to_the_longest_and_decodes_with_average_rows() -> None:
    prompts = StepWork(0, 0, ((4, 0), (2, 0)), 2, 2)
    assert padded(prompts, Shape(3, 5)) == StepWork(0, 0, ((5, 0),) * 3, 3, 3)
    decodes = StepWork(2, 21, (), 2, 2)
    assert padded(decodes, Shape(4, 1)) == StepWork(4, 42, (), 4, 4)
    assert padded(decodes, None) is decodes


def test_padding_changes_the_charge_and_not_the_tokens() -> None:
    plan = Plan(chunks=chunks((0, 4)), shape=Shape(8, 16), release=Release.PER_BATCH)
    log = DecisionLog()
    cost = {"kind": "linear", "fixed_ms": 1000, "per_decode_us": 0, "per_prefill_token_us": 15625}
    policy = Scripted(decide=answers(Decision(plan, admit=(0,))))
    result = run([(0, 4, 1)], policy, cost, observers=(log,))
    assert column(result, "finish_s") == [1 + 8 * 16 / 64]
    assert column(result, "charged_tokens", "steps") == [128]
    assert column(result, "useful_tokens", "steps") == [4]
    assert log.lines == ["0.000000000 admit 0 | 0:4"]
