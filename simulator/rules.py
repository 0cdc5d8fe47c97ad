"""The rules a decision has to keep (C9), and what a plan means, spelled out request by request."""

import sys
from collections.abc import Sequence

from policies.base import ALL_RUNNING, Decision, Limits, Plan, Shape
from simulator.cost.base import StepWork
from simulator.errors import RuleBroken
from simulator.queues import RunningList, WaitingQueue
from simulator.request import Request

Listed = list[tuple[Request, int]]
"""Requests and the tokens each of them computes in a step."""


def check_lists(
    decision: Decision,
    waiting: WaitingQueue,
    running: RunningList,
    swapped: WaitingQueue | tuple[int, ...] = (),
) -> None:
    """Check that a decision names requests where they stand, and each of them once.

    Raises
    ------
    RuleBroken
        With the request and the rule.
    """
    named = list(decision.admit)
    for rid, _ in decision.reject:
        if rid not in waiting:
            raise RuleBroken(f"request {rid} is rejected but does not wait")
        named.append(rid)
    for rid in decision.admit:
        if rid not in waiting:
            raise RuleBroken(f"request {rid} is admitted but does not wait")
    for rid in decision.swap_in:
        if rid not in swapped:
            raise RuleBroken(f"request {rid} is swapped in but is not swapped out")
        named.append(rid)
    for rid, _ in decision.preempt:
        if running.get(rid) is None:
            raise RuleBroken(f"request {rid} is preempted but does not run")
        named.append(rid)
    for rid, _ in decision.reserve:
        if rid not in decision.admit:
            raise RuleBroken(f"KV space is reserved for request {rid}, which is not admitted")
    if len(named) > 1:
        _refuse_repeats(named, "is named twice in one decision")


def expand(plan: Plan, running: RunningList, limits: Limits) -> Listed:
    """List the work of a plan in running order and check it.

    Raises
    ------
    RuleBroken
        If a request is listed twice, does not run or gets more tokens than it lacks, or if the
        step exceeds the policy's token limit.
    """
    if len(plan.chunks) > 1:
        _refuse_repeats([rid for rid, _ in plan.chunks], "has two chunks in one step")
    if plan.decodes is ALL_RUNNING:
        work = _all_running(dict(plan.chunks), running, limits.max_num_batched_tokens)
    else:
        work = _listed(plan, running)
    for request, tokens in work:
        if not 1 <= tokens <= request.remaining:
            raise RuleBroken(
                f"request {request.id} is planned {tokens} tokens but lacks {request.remaining}"
            )
    total = sum([tokens for _, tokens in work])
    limit = limits.max_num_batched_tokens
    if limit is not None and total > limit:
        raise RuleBroken(f"the step computes {total} tokens, max_num_batched_tokens is {limit}")
    if not work:
        raise RuleBroken("the plan is empty")
    return work


def _all_running(chunks: dict[int, int], running: RunningList, limit: int | None) -> Listed:
    left = sys.maxsize if limit is None else limit
    work: Listed = []
    for request in running:
        listed = chunks.pop(request.id, None)
        if listed is not None:
            tokens = listed
        elif left <= 0 or running.is_partial(request.id):
            continue
        else:
            tokens = 1
        left -= tokens
        work.append((request, tokens))
    for rid in chunks:
        raise RuleBroken(f"request {rid} is planned but does not run")
    return work


def _listed(plan: Plan, running: RunningList) -> Listed:
    assert plan.decodes is not ALL_RUNNING
    named = [(rid, 1) for rid in plan.decodes] + [(rid, tokens) for rid, tokens in plan.chunks]
    _refuse_repeats([rid for rid, _ in named], "is planned twice in one step")
    work: Listed = []
    for rid, tokens in named:
        request = running.get(rid)
        if request is None:
            raise RuleBroken(f"request {rid} is planned but does not run")
        work.append((request, tokens))
    return work


def _refuse_repeats(rids: Sequence[int], what: str) -> None:
    if len(set(rids)) == len(rids):
        return
    seen: set[int] = set()
    for rid in rids:
        if rid in seen:
            raise RuleBroken(f"request {rid} {what}")
        seen.add(rid)


def step_work(listed: Listed) -> StepWork:
    """Return what a step computes, without any padding."""
    num_decodes = context = sampled = rows = 0
    chunks: list[tuple[int, int]] = []
    for request, tokens in listed:
        computed = request.computed
        rows += request.size
        sampled += computed + tokens == request.known
        if tokens == 1 and computed >= request.prompt_tokens and computed + 1 == request.known:
            num_decodes += 1
            context += computed + 1
        else:
            chunks.append((tokens, computed))
    return StepWork(num_decodes, context, tuple(chunks), sampled, rows)


def padded(work: StepWork, shape: Shape | None) -> StepWork:
    """Return what the machine is charged for: the work, filled up to the rows and columns.

    Padded decode rows attend to as many tokens as the real ones do on average.

    Raises
    ------
    RuleBroken
        If the work does not fit the shape, or mixes prompts and decodes.
    """
    if shape is None:
        return work
    longest = max((tokens for tokens, _ in work.chunks), default=1)
    if work.num_decodes and work.chunks:
        raise RuleBroken("a padded step mixes prompts and decodes")
    if shape.rows < work.num_rows or shape.cols < longest:
        raise RuleBroken(
            f"shape {shape.rows} x {shape.cols} is smaller than the work, "
            f"{work.num_rows} x {longest}"
        )
    rows = shape.rows
    if work.chunks:
        return StepWork(0, 0, ((shape.cols, 0),) * rows, rows, rows)
    return StepWork(rows, work.context_tokens * rows // work.num_decodes, (), rows, rows)
