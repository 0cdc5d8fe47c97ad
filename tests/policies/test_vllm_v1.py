import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from policies import (
    ALL_RUNNING,
    Decision,
    Limits,
    Machine,
    Mode,
    Sarathi,
    View,
    VllmV0,
    VllmV1,
    Work,
)
from policies.orders import Fcfs, Priority
from policies.testing import ScriptedRequest, ScriptedView


def decode(rid: int, context: int = 8) -> ScriptedRequest:
    """Return a request that has stored `context` tokens and misses just its newest one."""
    return ScriptedRequest(rid, context, computed=context, generated=1, max_tokens=99)


def partial(rid: int, prompt: int, computed: int) -> ScriptedRequest:
    """Return a request in the middle of its prompt."""
    return ScriptedRequest(rid, prompt, computed=computed)


def fresh(*prompts: int) -> list[ScriptedRequest]:
    """Return requests that wait, numbered after those a test lets run."""
    return [ScriptedRequest(100 + i, prompt) for i, prompt in enumerate(prompts)]


def decide(parameters: dict, **replica) -> Decision:
    view = ScriptedView(**replica)
    return decide_on(VllmV1(**parameters), view)


def decide_on(spec: VllmV1, view: ScriptedView) -> Decision:
    """Tell a fresh policy of all that wait, as the engine does, and let it decide."""
    policy = spec.build()
    for request in view.waiting:
        policy.on_submit(request, view)
    return policy.decide(view)


def urgent(rid: int, priority: int, arrival: float = 0.0, prompt: int = 4) -> ScriptedRequest:
    return ScriptedRequest(rid, prompt, arrival, priority=priority)


def preempted(decision: Decision) -> list[int]:
    assert all(mode is Mode.RECOMPUTE for _, mode in decision.preempt)
    return [rid for rid, _ in decision.preempt]


def test_nothing_to_do_is_an_empty_decision():
    assert decide({}) == Decision()


def test_prompts_are_admitted_in_order_until_the_budget_is_used_up():
    decision = decide({"max_num_batched_tokens": 8}, waiting=[5, 10, 3])
    assert decision.admit == (0, 1)
    assert decision.plan.chunks == (Work(0, 5), Work(1, 3))


def test_running_requests_are_served_before_waiting_ones():
    running = [decode(0), partial(1, 10, 4)]
    decision = decide({"max_num_batched_tokens": 9}, running=running, waiting=fresh(7))
    assert decision.plan.chunks == (Work(1, 6), Work(100, 2))
    assert decision.plan.decodes is ALL_RUNNING


def test_partial_in_front_of_decodes_takes_its_chunk_and_leaves_them_the_rest():
    running = [partial(0, 9, 4), decode(1), decode(2)]
    decision = decide({"max_num_batched_tokens": 10}, running=running, waiting=fresh(7))
    assert decision.plan.chunks == (Work(0, 5), Work(100, 3))


def test_budget_may_be_exhausted_before_a_decode_is_reached():
    running = [partial(0, 20, 4), decode(1), partial(2, 9, 4)]
    decision = decide({"max_num_batched_tokens": 8}, running=running, waiting=fresh(1))
    assert decision.plan.chunks == (Work(0, 8),)
    assert decision.admit == ()


def test_decode_in_front_of_a_partial_is_served_first():
    running = [decode(0), decode(1), partial(2, 20, 4)]
    decision = decide({"max_num_batched_tokens": 8}, running=running)
    assert decision.plan.chunks == (Work(2, 6),)


def test_more_decodes_than_budget_leave_nothing_for_anyone_else():
    running = [decode(0), decode(1), decode(2), partial(3, 9, 4)]
    decision = decide({"max_num_batched_tokens": 2}, running=running, waiting=fresh(1))
    assert (decision.plan.chunks, decision.admit) == ((), ())


def test_full_running_list_admits_nobody():
    replica = {"running": [decode(0), decode(1)], "waiting": fresh(1)}
    assert decide({"max_num_seqs": 2}, **replica).admit == ()
    assert decide({"max_num_seqs": 3}, **replica).admit == (100,)


def test_admissions_count_towards_the_number_of_running_requests():
    assert decide({"max_num_seqs": 2}, waiting=[1, 1, 1]).admit == (0, 1)


def test_plan_of_decodes_and_one_prompt_under_way_is_steady():
    assert decide({}, running=[decode(0)]).plan.steady
    assert decide({}, running=[decode(0), partial(1, 9, 4)]).plan.steady
    assert not decide({}, running=[partial(1, 9, 4), partial(2, 9, 4)]).plan.steady
    assert not decide({}, running=[decode(0)], waiting=fresh(4)).plan.steady
    first = {"decodes_first": True}
    assert not decide(first, running=[decode(0), partial(1, 9, 4)]).plan.steady


@pytest.mark.parametrize(
    ("running", "waiting", "chunks"),
    [
        ([], [10], [10]),
        ([], [10, 10], [4, 4]),
        ([partial(0, 10, 2)], [], [8]),
        ([partial(0, 10, 2)], [10], [4, 4]),
        ([decode(0)], [10], [4]),
        ([partial(0, 10, 2), decode(1)], [], [4]),
    ],
)
def test_long_prompt_threshold_holds_from_two_requests_in_the_system_on(running, waiting, chunks):
    decision = decide({"long_prefill_token_threshold": 4}, running=running, waiting=fresh(*waiting))
    assert [work.tokens for work in decision.plan.chunks] == chunks


def test_threshold_above_the_budget_changes_nothing():
    decision = decide(
        {"long_prefill_token_threshold": 50, "max_num_batched_tokens": 8}, waiting=[30, 5]
    )
    assert decision.plan.chunks == (Work(0, 8),)


def test_first_request_that_does_not_fit_ends_the_pass():
    decision = decide({}, waiting=[4, 40, 4], num_blocks=4, block_size=4)
    assert decision.admit == (0,)


def test_whole_prompt_has_to_fit_although_only_its_first_chunk_is_computed():
    replica = {"waiting": [20], "num_blocks": 4, "block_size": 4}
    assert decide({"max_num_batched_tokens": 8}, **replica) == Decision()


def test_without_that_reserve_the_first_chunk_is_enough():
    parameters = {"max_num_batched_tokens": 8, "scheduler_reserve_full_isl": False}
    replica = {"waiting": [20, 20, 20], "num_blocks": 4, "block_size": 4}
    decision = decide(parameters, **replica)
    assert decision.plan.chunks == (Work(0, 8),)
    parameters["max_num_batched_tokens"] = 20
    parameters["long_prefill_token_threshold"] = 8
    assert decide(parameters, **replica).plan.chunks == (Work(0, 8), Work(1, 8))


def test_blocks_of_admitted_chunks_are_gone_for_the_next_in_the_queue():
    decision = decide({}, waiting=[8, 8, 1], num_blocks=4, block_size=4)
    assert decision.admit == (0, 1)


def test_running_decodes_take_their_blocks_before_anyone_is_admitted():
    replica = {"running": [decode(0, 8)], "block_size": 4}
    assert decide({}, waiting=fresh(4), num_blocks=3, **replica).admit == ()
    assert decide({}, waiting=fresh(4), num_blocks=4, **replica).admit == (100,)


def test_readmission_needs_blocks_for_generated_tokens_too():
    evicted = ScriptedRequest(0, 6, generated=3, max_tokens=8)
    replica = {"waiting": [evicted], "running": [decode(1, 7)], "block_size": 4}
    assert decide({}, num_blocks=4, **replica).admit == ()
    decision = decide({}, num_blocks=5, **replica)
    assert decision.plan.chunks == (Work(0, 9),)


def test_watermark_keeps_blocks_free_while_someone_runs():
    # A tenth of 19 + 1 blocks, the reserved null block included, is 2.
    replica = {"running": [decode(0, 7)], "num_blocks": 19, "block_size": 4}
    assert decide({"watermark": 0.1}, waiting=fresh(15 * 4), **replica).admit == (100,)
    assert decide({"watermark": 0.1}, waiting=fresh(15 * 4 + 1), **replica).admit == ()


def test_watermark_is_waived_for_an_idle_replica():
    decision = decide({"watermark": 0.9}, waiting=[16, 1], num_blocks=5, block_size=4)
    assert decision.admit == (0,)


def test_watermark_never_holds_up_running_requests():
    replica = {"running": [decode(0, 8), decode(1, 8)], "num_blocks": 6, "block_size": 4}
    assert preempted(decide({"watermark": 0.9}, **replica)) == []


def test_prompt_is_never_cut_without_chunked_prefill():
    parameters = {"max_num_batched_tokens": 8, "enable_chunked_prefill": False}
    assert decide(parameters, waiting=[5, 4, 3]).admit == (0,)
    assert decide(parameters, waiting=[5, 3, 1]).admit == (0, 1)


def test_without_chunked_prefill_a_prompt_above_the_budget_is_rejected_when_it_arrives():
    parameters = {"max_num_batched_tokens": 8, "enable_chunked_prefill": False}
    policy = VllmV1(**parameters).build()
    assert policy.on_submit(ScriptedRequest(0, 8), ScriptedView()) is None
    assert "chunked prefill is off" in policy.on_submit(ScriptedRequest(0, 9), ScriptedView())
    chunked = VllmV1(max_num_batched_tokens=8).build()
    assert chunked.on_submit(ScriptedRequest(0, 9), ScriptedView()) is None


def test_last_running_request_gives_way_when_blocks_run_out():
    running = [decode(0, 8), decode(1, 8)]
    decision = decide({}, running=running, num_blocks=4, block_size=4)
    assert preempted(decision) == [1]
    assert (decision.plan.decodes, decision.plan.steady) == (ALL_RUNNING, False)


def test_partial_at_the_end_is_the_victim_of_the_decodes_before_it():
    running = [decode(0, 8), decode(1, 7), partial(2, 30, 4)]
    decision = decide({}, running=running, num_blocks=5, block_size=4)
    assert preempted(decision) == [2]
    assert decision.plan.chunks == ()


def test_partial_in_the_middle_is_served_by_evicting_the_decode_behind_it():
    running = [partial(0, 12, 8), decode(1, 7)]
    decision = decide({}, running=running, num_blocks=4, block_size=4)
    assert preempted(decision) == [1]
    assert decision.plan.chunks == (Work(0, 4),)


def test_victims_are_listed_last_first_so_that_the_later_one_stands_in_front():
    running = [decode(0, 4), decode(1, 4), decode(2, 3)]
    decision = decide({}, running=running, num_blocks=3, block_size=4)
    assert preempted(decision) == [2, 1]


def test_request_that_cannot_grow_alone_gives_up_its_own_blocks():
    decision = decide({}, running=[decode(0, 8)], num_blocks=2, block_size=4)
    assert preempted(decision) == [0]
    assert decision.plan is None


def test_step_that_preempts_admits_nobody():
    replica = {"running": [decode(0, 8), decode(1, 12)], "num_blocks": 5, "block_size": 4}
    assert preempted(decide({}, **replica)) == [1]
    assert decide({}, waiting=fresh(1), **replica).admit == ()
    replica["num_blocks"] = 8
    assert decide({}, waiting=fresh(1), **replica).admit == (100,)


def test_no_block_is_needed_where_the_last_one_has_room():
    running = [decode(0, 7), decode(1, 6)]
    assert preempted(decide({}, running=running, num_blocks=4, block_size=4)) == []


def test_decodes_beyond_the_budget_need_no_blocks_and_evict_nobody():
    running = [decode(0, 7), decode(1, 8), decode(2, 8)]
    parameters = {"max_num_batched_tokens": 1}
    assert preempted(decide(parameters, running=running, num_blocks=6, block_size=4)) == []


def ahead(rid: int, max_tokens: int) -> ScriptedRequest:
    """Return a decode whose second token is still in the making."""
    return ScriptedRequest(rid, 8, computed=9, generated=1, promised=1, max_tokens=max_tokens)


def test_planning_ahead_gives_no_step_to_a_request_whose_last_token_is_on_its_way():
    decision = decide({}, running=[ahead(0, 2), ahead(1, 3)], plans_ahead=True)
    assert decision.plan.decodes == (1,)
    assert decide({}, running=[ahead(0, 2)], plans_ahead=True) == Decision()


def test_planning_ahead_stops_at_the_context_limit():
    replica = {"running": [ahead(0, 99)], "plans_ahead": True}
    assert decide({}, max_model_len=10, **replica) == Decision()
    assert decide({}, max_model_len=11, **replica).plan.decodes is ALL_RUNNING


def test_adaptive_threshold_grows_to_an_equal_share_of_the_budget():
    parameters = {"long_prefill_token_threshold": 4, "max_num_batched_tokens": 20}
    adaptive = parameters | {"long_prefill_token_threshold_adaptive": True}
    assert [w.tokens for w in decide(parameters, waiting=[30, 30]).plan.chunks] == [4, 4]
    assert [w.tokens for w in decide(adaptive, waiting=[30, 30]).plan.chunks] == [10, 10]
    assert [w.tokens for w in decide(adaptive, waiting=[30] * 6).plan.chunks] == [4] * 5


def test_lower_limit_of_active_requests_holds_at_admission_only():
    parameters = {"max_num_active_seqs": 2}
    assert decide(parameters, waiting=[1, 1, 1]).admit == (0, 1)
    decision = decide(parameters, running=[decode(0), decode(1), decode(2)], waiting=fresh(1))
    assert (decision.admit, preempted(decision)) == ((), [])
    assert decision.plan.decodes is ALL_RUNNING


def test_priority_order_admits_the_smallest_value_then_the_earliest_then_the_lowest_number():
    waiting = [urgent(0, 2), urgent(1, 1, 5.0), urgent(2, 1, 3.0), urgent(3, 1, 3.0), urgent(4, 0)]
    assert decide({"order": Priority()}, waiting=waiting).admit == (4, 2, 3, 1, 0)


def test_priority_order_lets_nobody_overtake_an_urgent_request_that_does_not_fit():
    waiting = [urgent(0, 1), urgent(1, 0, prompt=40)]
    decision = decide({"order": Priority()}, waiting=waiting, num_blocks=4, block_size=4)
    assert decision == Decision()


def test_priority_order_never_preempts_to_admit():
    waiting = [urgent(0, 0)]
    running = [ScriptedRequest(1, 7, priority=9, computed=7, generated=1)]
    decision = decide({"order": Priority()}, waiting=waiting, running=running, num_blocks=2)
    assert decision.admit == (0,)
    full = {"waiting": waiting, "running": running, "num_blocks": 2, "block_size": 4}
    assert preempted(decide({"order": Priority()}, **full)) == []


def test_priority_order_evicts_the_least_urgent_even_if_it_was_served_before():
    running = [
        ScriptedRequest(0, 4, priority=5, computed=4, generated=1),
        ScriptedRequest(1, 4, priority=1, computed=4, generated=1),
    ]
    decision = decide({"order": Priority()}, running=running, num_blocks=3, block_size=4)
    assert preempted(decision) == [0]
    assert decide({}, running=running, num_blocks=3, block_size=4).preempt[0][0] == 1


def test_evicted_request_takes_its_place_by_priority_again():
    policy = VllmV1(order=Priority()).build()
    evicted = ScriptedRequest(0, 8, priority=5, computed=8, generated=1)
    running = [evicted, ScriptedRequest(1, 8, priority=1, computed=8, generated=1)]
    view = ScriptedView(running=running, num_blocks=4, block_size=4)
    assert preempted(policy.decide(view)) == [0]
    evicted.computed = 0
    later = [evicted, urgent(2, 3)]
    view = ScriptedView(waiting=later)
    policy.on_submit(later[1], view)
    assert policy.decide(view).admit == (2, 0)


def test_limits_are_promised_as_given():
    policy = VllmV1(max_num_batched_tokens=512, max_num_seqs=4).build()
    assert policy.limits == Limits(512, 4)


@pytest.mark.parametrize(
    "parameters",
    [
        {"max_num_batched_tokens": 0},
        {"max_num_batched_tokens": -8},
        {"max_num_batched_tokens": float("nan")},
        {"max_num_seqs": 0},
        {"max_num_seqs": 2.5},
        {"long_prefill_token_threshold": -1},
        {"watermark": -0.1},
        {"watermark": 1.0},
        {"watermark": float("nan")},
        {"enable_chunked_prefill": "sometimes"},
        {"max_num_active_seqs": 0},
        {"order": {"kind": "alphabetical"}},
        {"order": {"kind": "fcfs", "reverse": True}},
        {"max_tokens": 5},
        {"kind": "vllm-v0"},
    ],
    ids=repr,
)
def test_nonsense_parameters_are_refused(parameters):
    with pytest.raises(ValidationError):
        VllmV1(**parameters)


Step = tuple[list[tuple[int, int]], list[int], list[int]]


def rules_of_the_design_page(spec: VllmV1, view: View) -> Step:
    """Return work, admitted and preempted requests by I4 as it is written, one by one."""
    left, free = spec.max_num_batched_tokens, view.kv.free
    by_priority = isinstance(spec.order, Priority)
    present = len(view.running) + len(view.waiting)
    cap = spec.long_prefill_token_threshold if present >= 2 else 0
    if cap and spec.long_prefill_token_threshold_adaptive:
        cap = max(cap, left // present)
    running, tokens, victims = list(view.running), {}, []
    for r in view.running:
        if left == 0:
            break
        if r in victims:
            continue
        k = min(r.remaining, cap or r.remaining, left)
        while r in running and view.kv.need(r, k) > free:
            victim = running[-1]
            if by_priority:
                victim = max(running, key=lambda v: (v.priority, v.arrival))
            running.remove(victim)
            victims.append(victim)
            given_back = tokens.pop(victim.id, 0)
            left += given_back
            free += view.kv.blocks_for(victim.computed + given_back)
        if r in victims:
            break
        free -= view.kv.need(r, k)
        left -= k
        tokens[r.id] = k
    waiting = list(view.waiting)
    if by_priority:
        waiting.sort(key=lambda r: (r.priority, r.arrival, r.id))
    most = min(spec.max_num_seqs, spec.max_num_active_seqs or spec.max_num_seqs)
    admitted = []
    for r in [] if victims else waiting:
        if left == 0 or len(running) + len(admitted) >= most:
            break
        whole = min(r.known, cap or r.known)
        if not spec.enable_chunked_prefill and whole > left:
            break
        k = min(whole, left)
        gate = view.kv.blocks_for(r.known if spec.scheduler_reserve_full_isl else k)
        if running or admitted:
            gate += int(spec.watermark * (view.kv.total + 1))
        if gate > free:
            break
        free -= view.kv.blocks_for(k)
        left -= k
        tokens[r.id] = k
        admitted.append(r.id)
    return sorted(tokens.items()), admitted, [r.id for r in victims]


def spelled_out(decision: Decision, spec: VllmV1, view: View) -> Step:
    """Return what a decision means, as the contract defines `ALL_RUNNING`."""
    victims, plan = preempted(decision), decision.plan
    if plan is None:
        return [], list(decision.admit), victims
    work, left, chunks = [], spec.max_num_batched_tokens, dict(plan.chunks)
    for r in view.running:
        is_named = r.is_decode and (plan.decodes is ALL_RUNNING or r.id in plan.decodes)
        tokens = chunks.pop(r.id, min(left, 1) if is_named else 0)
        if tokens and r.id not in victims:
            left -= tokens
            work.append((r.id, tokens))
    return sorted(work + list(chunks.items())), list(decision.admit), victims


@st.composite
def cases(draw):
    running = []
    for rid in range(draw(st.integers(0, 5))):
        prompt = draw(st.integers(1, 12))
        if draw(st.booleans()):
            generated = draw(st.integers(1, 6))
            computed = prompt + generated - 1
        else:  # a prompt, or a recomputation, under way
            generated = draw(st.integers(0, 3))
            computed = draw(st.integers(0, prompt + max(0, generated - 2)))
            computed = min(computed, prompt + generated - 1)
        request = ScriptedRequest(rid, prompt, computed=computed, generated=generated)
        running.append(request)
    waiting = [
        ScriptedRequest(10 + i, draw(st.integers(1, 12)), generated=draw(st.integers(0, 3)))
        for i in range(draw(st.integers(0, 3)))
    ]
    for request in running + waiting:
        request.arrival, request.priority = draw(st.tuples(st.integers(0, 2), st.integers(0, 2)))
        request.max_tokens = 99
    block_size = draw(st.sampled_from([1, 2, 4]))
    held = sum(-(-r.computed // block_size) for r in running)
    total = held + draw(st.integers(0, 8))
    spec = VllmV1(
        max_num_batched_tokens=draw(st.integers(1, 24)),
        max_num_seqs=draw(st.integers(max(1, len(running)), 8)),
        enable_chunked_prefill=draw(st.booleans()),
        long_prefill_token_threshold=draw(st.sampled_from([0, 0, 1, 3, 6])),
        watermark=draw(st.sampled_from([0.0, 0.1, 0.5])),
        scheduler_reserve_full_isl=draw(st.booleans()),
        max_num_active_seqs=draw(st.one_of(st.none(), st.integers(1, 8))),
        long_prefill_token_threshold_adaptive=draw(st.booleans()),
        order=draw(st.sampled_from([Fcfs(), Priority()])),
    )
    if not spec.enable_chunked_prefill:  # longer ones are rejected when they arrive
        waiting = [r for r in waiting if r.known <= spec.max_num_batched_tokens]
    return spec, ScriptedView(0.0, waiting, running, total, block_size)


@settings(deadline=None)
@given(cases())
def test_decisions_follow_the_rules_of_the_design_page_to_the_letter(case):
    spec, view = case
    decision = decide_on(spec, view)
    assert spelled_out(decision, spec, view) == rules_of_the_design_page(spec, view)


@pytest.mark.parametrize(
    "spec",
    [VllmV1(max_num_batched_tokens=15), VllmV0(max_num_batched_tokens=15), Sarathi(chunk_size=15)],
)
def test_step_below_one_block_of_a_limited_cache_is_refused(spec):
    assert "15 is below one KV block of 16 tokens" in spec.refusal(Machine(block_size=16))
    assert spec.refusal(Machine(block_size=15)) is None
    assert spec.refusal(Machine()) is None
