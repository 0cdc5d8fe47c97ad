"""Every policy keeps the contract, and `check_policy` finds those that do not."""

import sys
from typing import ClassVar

import numpy as np
import pytest
from pydantic import ConfigDict, field_validator

from policies import (
    ALL_RUNNING,
    POLICIES,
    ClipperAimd,
    Decision,
    Limits,
    Mode,
    OneAtATime,
    Orca,
    Plan,
    Policy,
    PolicySpec,
    Release,
    Sarathi,
    Shape,
    Static,
    Trigger,
    Triton,
    VllmV0,
    VllmV1,
    WindowEnqueue,
    WindowFreeze,
    WindowPull,
    Work,
)
from policies.budgets import BUDGETS
from policies.orders import ORDERS, Priority
from simulator.testing import check_policy

BATCHES = (
    {"max_batch_size": 1},
    {"max_batch_size": 3, "release": "per-request", "drop_finished": True},
    {"max_batch_size": 4, "max_seq_len": 24},
)
SETTINGS = [
    *(Static.model_validate(batch) for batch in BATCHES),
    *(WindowPull.model_validate({"max_wait_ms": 7.8125} | batch) for batch in BATCHES),
    WindowPull(max_wait_ms=0),
    *(WindowEnqueue.model_validate({"max_wait_ms": 7.3} | batch) for batch in BATCHES),
    WindowEnqueue(max_batch_size=2, max_enqueued_batches=1),
    WindowEnqueue(max_batch_size=3, max_wait_ms=50, max_enqueued_batches=2),
    VllmV1(max_num_batched_tokens=1),
    VllmV1(max_num_batched_tokens=8, max_num_seqs=3),
    VllmV1(max_num_batched_tokens=12, long_prefill_token_threshold=5, watermark=0.2),
    VllmV1(max_num_batched_tokens=9, scheduler_reserve_full_isl=False),
    VllmV1(max_num_batched_tokens=9, enable_chunked_prefill=False),
    VllmV1(max_num_batched_tokens=9, order=Priority(), max_num_active_seqs=4),
    VllmV1(
        max_num_batched_tokens=16,
        long_prefill_token_threshold=2,
        long_prefill_token_threshold_adaptive=True,
        order=Priority(),
    ),
    *(WindowFreeze.model_validate({"max_wait_ms": 7.3} | batch) for batch in BATCHES[1:]),
    Triton(max_batch_size=4, preferred_batch_size=(2, 3), max_queue_delay_microseconds=7000),
    Triton(max_batch_size=3, max_queue_size=2, default_timeout_microseconds=9000),
    ClipperAimd(max_batch_size=4, slo_ms=12, max_wait_ms=5),
    Orca(max_bs=3, n_slots=64),
    VllmV0(max_num_seqs=3, preemption_mode="swap", scheduler_delay_factor=0.5),
    Sarathi(chunk_size=5, max_num_seqs=3),
    Sarathi(chunk_size=9, budget={"kind": "model-predictive", "tpot_slo_ms": 9, "min_chunk": 2}),
    VllmV1(
        max_num_batched_tokens=16,
        order={"kind": "edf", "ttft_slo_ms": 20, "tpot_slo_ms": 5, "preemptive": True},
        budget={
            "kind": "ascend-table",
            "slo_ms": 12,
            "ctx_lens": (8, 64),
            "d_nums": (1, 4),
            "chunk_sizes": (2, 8, 16),
        },
        max_num_seqs=3,
    ),
]


@pytest.mark.parametrize("cls", POLICIES)
def test_every_built_in_policy_keeps_the_contract_with_its_defaults(cls):
    check_policy(cls(), num_traces=12, seed=1)


def test_the_settings_name_every_policy_but_the_one_without_parameters():
    assert {type(spec) for spec in SETTINGS} == set(POLICIES) - {OneAtATime}


@pytest.mark.parametrize("cls", ORDERS)
def test_every_order_keeps_the_contract_with_its_defaults(cls):
    check_policy(VllmV1(max_num_batched_tokens=9, max_num_seqs=3, order=cls()), num_traces=6)


@pytest.mark.parametrize("cls", BUDGETS)
def test_every_budget_keeps_the_contract_with_its_defaults(cls):
    check_policy(VllmV1(max_num_batched_tokens=9, max_num_seqs=3, budget=cls()), num_traces=6)


@pytest.mark.parametrize("spec", SETTINGS, ids=repr)
def test_built_in_policies_keep_the_contract_with_other_parameters(spec):
    check_policy(spec, num_traces=10)


class Honest(Policy):
    """Serves up to three requests, first come, first served; reserves what they may need."""

    def order(self, view):
        return list(view.waiting)

    def decide(self, view, trigger=Trigger.START):
        free, admitted = view.kv.free, []
        for r in self.order(view)[: 3 - len(view.running)]:
            free -= view.kv.blocks_for(r.prompt_tokens + r.max_tokens)
            if free < 0:
                break
            admitted.append(r)
        if not admitted and not len(view.running):
            return Decision()
        return Decision(
            plan=Plan(ALL_RUNNING, tuple(Work(r.id, r.remaining) for r in admitted)),
            admit=tuple(r.id for r in admitted),
            reserve=tuple((r.id, r.prompt_tokens + r.max_tokens) for r in admitted),
        )


class Empty(Honest):
    def decide(self, view, trigger=Trigger.START):
        return Decision()


class Forgetful(Honest):
    def decide(self, view, trigger=Trigger.START):
        super().decide(view, trigger)


class Raising(Honest):
    def decide(self, view, trigger=Trigger.START):
        return Decision(wake_at=1 / len(view.running))


class Restless(Honest):
    """Asks to be woken for ever, and never does anything."""

    def decide(self, view, trigger=Trigger.START):
        return Decision(wake_at=view.now + 1e-3)


class Juggling(Honest):
    """Admits and preempts in turns, at one and the same moment."""

    def decide(self, view, trigger=Trigger.START):
        if len(view.running):
            return Decision(preempt=tuple((r.id, Mode.RECOMPUTE) for r in view.running))
        return Decision(
            admit=tuple(r.id for r in view.waiting), reserve=tuple((r.id, 1) for r in view.waiting)
        )


class Late(Honest):
    def decide(self, view, trigger=Trigger.START):
        return Decision(wake_at=view.now)


class OverAllocating(Honest):
    """Admits all it sees, whether or not there are blocks."""

    def decide(self, view, trigger=Trigger.START):
        admitted = list(view.waiting)
        if not admitted and not len(view.running):
            return Decision()
        chunks = tuple(Work(r.id, r.remaining) for r in admitted)
        return Decision(Plan(ALL_RUNNING, chunks), admit=tuple(r.id for r in admitted))


class Extra(Honest):
    """Adds something to the chunks of an honest plan."""

    def extra(self, decision, view):
        raise NotImplementedError

    def decide(self, view, trigger=Trigger.START):
        decision = super().decide(view, trigger)
        if decision.plan is None:
            return decision
        more = tuple(self.extra(decision, view))
        return decision._replace(plan=decision.plan._replace(chunks=decision.plan.chunks + more))


class PlansAbsent(Extra):
    def extra(self, decision, view):
        return [Work(99, 1)]


class PlansFinished(Extra):
    def __init__(self):
        self.finished = []

    def on_finish(self, request, view):
        self.finished.append(request.id)

    def extra(self, decision, view):
        return [Work(rid, 1) for rid in self.finished]


class PlansTwice(Extra):
    def extra(self, decision, view):
        return decision.plan.chunks[:1]


class PlansTooMuch(Honest):
    """Gives decodes a second token."""

    def decide(self, view, trigger=Trigger.START):
        decision = super().decide(view, trigger)
        if not len(view.running):
            return decision
        chunks = decision.plan.chunks + tuple(Work(r.id, r.remaining + 1) for r in view.running)
        return decision._replace(plan=Plan(ALL_RUNNING, chunks))


class PlansNoToken(Honest):
    """Gives the first of several decodes a chunk of nothing."""

    def decide(self, view, trigger=Trigger.START):
        decision = super().decide(view, trigger)
        if len(view.running) < 2:
            return decision
        return decision._replace(plan=Plan(ALL_RUNNING, (Work(next(iter(view.running)).id, 0),)))


class AboveTokenLimit(Honest):
    limits = Limits(max_num_batched_tokens=8)


class AboveSequenceLimit(Honest):
    limits = Limits(max_num_seqs=2)


class AdmitsTwice(Honest):
    def decide(self, view, trigger=Trigger.START):
        decision = super().decide(view, trigger)
        return decision._replace(admit=decision.admit + decision.admit[:1])


class PlansItsVictim(Honest):
    def decide(self, view, trigger=Trigger.START):
        if not len(view.running):
            return super().decide(view, trigger)
        rid = next(iter(view.running)).id
        return Decision(Plan((rid,)), preempt=((rid, Mode.RECOMPUTE),))


class ReservesForOthers(Honest):
    def decide(self, view, trigger=Trigger.START):
        return super().decide(view, trigger)._replace(reserve=((99, 1),))


class PlansNothing(Honest):
    def decide(self, view, trigger=Trigger.START):
        return Decision(Plan())


class TooSmallShape(Honest):
    def decide(self, view, trigger=Trigger.START):
        if len(view.running):
            return Decision(Plan(ALL_RUNNING, shape=Shape(len(view.running), 1)))
        decision = super().decide(view, trigger)
        plan = decision.plan and decision.plan._replace(shape=Shape(1, 1))
        return decision._replace(plan=plan)


class Mute(Honest):
    """Rejects without a word."""

    def on_submit(self, request, view):
        return "" if request.prompt_tokens > 8 else None


class LastWord(Honest):
    """Rejects waiting requests one by one, the last one without a word."""

    def decide(self, view, trigger=Trigger.START):
        return Decision(reject=tuple((r.id, "") for r in view.waiting))


class Peeking(Honest):
    """Climbs up the stack to the engine, and serves short outputs first."""

    def order(self, view):
        frame = sys._getframe()
        while not hasattr(frame.f_locals.get("self"), "_output_tokens"):
            frame = frame.f_back
        lengths = frame.f_locals["self"]._output_tokens
        return sorted(view.waiting, key=lambda r: (lengths[r.id], r.id))


class PeekingDoor(Peeking):
    """Turns long outputs away at the door."""

    def order(self, view):
        return list(view.waiting)

    def on_submit(self, request, view):
        frame = sys._getframe()
        while not hasattr(frame.f_locals.get("self"), "_output_tokens"):
            frame = frame.f_back
        return "too long" if frame.f_locals["self"]._output_tokens[request.id] > 3 else None


class Asking(Honest):
    """Serves short outputs first, openly."""

    needs_oracle = True

    def order(self, view):
        return sorted(view.waiting, key=lambda r: (view.oracle.output_tokens(r), r.id))


class AskingSecretly(Asking):
    needs_oracle = False


class Counting(Honest):
    """Serves the last one first in every second run."""

    runs = 0

    def __init__(self):
        Counting.runs += 1

    def order(self, view):
        return list(view.waiting)[:: 1 if Counting.runs % 2 else -1]


class Hoarding(Honest):
    """Keeps its books in the class: a run that was cut short leaves entries behind."""

    present: ClassVar[list[object]] = []

    def on_submit(self, request, view):
        self.present.append(request)

    def on_finish(self, request, view):
        self.present.remove(request)

    def order(self, view):
        return list(view.waiting)[:: -1 if len(self.present) > 8 else 1]


class ByAddress(Honest):
    def order(self, view):
        return sorted(view.waiting, key=id)


class BySet(Honest):
    def order(self, view):
        return list(set(view.waiting))


class Gambling(Honest):
    """Draws from a stream that goes on from run to run."""

    dice = np.random.default_rng(1)

    def order(self, view):
        return [list(view.waiting)[i] for i in self.dice.permutation(len(view.waiting))]


class Tampering(Honest):
    def decide(self, view, trigger=Trigger.START):
        for request in view.waiting:
            request.priority = 7
        return super().decide(view, trigger)


class TamperingDoor(Honest):
    def on_submit(self, request, view):
        request.max_tokens = 1


class Stealing(Honest):
    """Takes requests out of the queue itself."""

    def decide(self, view, trigger=Trigger.START):
        for request in list(view.waiting)[1:]:
            view.waiting.pop(request.id)
        return super().decide(view, trigger)


class Unsteady(Honest):
    """Calls every plan of decodes steady, and changes its shape from step to step."""

    def __init__(self):
        self.rows = 20

    def decide(self, view, trigger=Trigger.START):
        decision = super().decide(view, trigger)
        if decision.plan is None or decision.plan.chunks:
            return decision
        self.rows += 1
        return Decision(Plan(ALL_RUNNING, shape=Shape(self.rows, 1), steady=True))


class Promising(Honest):
    """Says of every plan that decodes follow until somebody arrives, whoever waits."""

    def decide(self, view, trigger=Trigger.START):
        decision = super().decide(view, trigger)
        plan = decision.plan
        return decision._replace(plan=plan and plan._replace(until_arrival=True))


class Noting(Honest):
    """Writes into the parameters it was given."""

    notes: list[int] = None

    def decide(self, view, trigger=Trigger.START):
        self.notes.append(1)
        return super().decide(view, trigger)


class Hesitant(Honest):
    """Admits everyone, serves the first, and sends the others back: they hold no blocks yet."""

    def decide(self, view, trigger=Trigger.START):
        if not len(view.running):
            admitted = tuple(r.id for r in view.waiting)
            first = view.waiting.head
            plan = first and Plan(chunks=(Work(first.id, first.remaining),))
            return Decision(plan, admit=admitted)
        serving, *others = view.running
        others = tuple((r.id, Mode.RECOMPUTE) for r in reversed(others))
        return Decision(Plan((serving.id,)), preempt=others)


RULES = "the engine has to accept every decision"
EQUAL = "equal runs have to be equal"
HIDDEN = "hidden output lengths must not decide"
REASON = "finish or be rejected with a reason"
FAULTS = {
    Empty: f"{RULES}: .* the policy plans nothing and no event is due",
    Forgetful: f"{RULES}: .*decide returned None instead of a Decision",
    Raising: f"{RULES}: .* the policy raised ZeroDivisionError",
    Restless: f"{RULES}: .*there is no end after",
    Juggling: f"{RULES}: .* moves requests and never plans a step",
    Late: f"{RULES}: .* is not in the future",
    OverAllocating: f"{RULES}: .* more KV blocks",
    PlansAbsent: f"{RULES}: .* request 99 is planned but does not run",
    PlansFinished: f"{RULES}: .* is planned but does not run",
    PlansTwice: f"{RULES}: .* has two chunks in one step",
    PlansTooMuch: f"{RULES}: .* is planned 2 tokens but lacks 1",
    PlansNoToken: f"{RULES}: .* is planned 0 tokens",
    AboveTokenLimit: f"{RULES}: .* max_num_batched_tokens is 8",
    AboveSequenceLimit: f"{RULES}: .* 3 requests run, max_num_seqs is 2",
    AdmitsTwice: f"{RULES}: .* is named twice in one decision",
    PlansItsVictim: f"{RULES}: .* is planned but does not run",
    ReservesForOthers: f"{RULES}: .* reserved for request 99, which is not admitted",
    PlansNothing: f"{RULES}: .* the plan is empty",
    TooSmallShape: f"{RULES}: .* is smaller than the work",
    Mute: REASON,
    LastWord: REASON,
    Peeking: HIDDEN,
    PeekingDoor: HIDDEN,
    AskingSecretly: f"{RULES}: .* raised AttributeError",
    Counting: EQUAL,
    Hoarding: EQUAL,
    ByAddress: EQUAL,
    BySet: f"{EQUAL}|hidden output lengths must not decide",
    Gambling: EQUAL,
    Tampering: f"{RULES}: .*decide changed the priority of request",
    TamperingDoor: f"{RULES}: .*on_submit changed the max_tokens of request",
    Stealing: f"{RULES}: .*decide changed the list of waiting requests",
    Unsteady: f"{RULES}: .*a steady plan became",
    Promising: f"{RULES}: .*a plan until the next arrival became Decision.* before it",
}
MADE = {cls.__name__: cls for cls in (Honest, Asking, Hesitant, *FAULTS)}


class Planted(PolicySpec):
    """Builds the policy of that name."""

    name: str

    def build(self):
        return MADE[self.name]()


@pytest.mark.parametrize("name", ["Honest", "Asking", "Hesitant"])
def test_policies_without_a_fault_pass(name):
    check_policy(Planted(name=name))


@pytest.mark.parametrize(("cls", "rule"), FAULTS.items(), ids=[cls.__name__ for cls in FAULTS])
def test_planted_fault_is_found(cls, rule):
    with pytest.raises(AssertionError, match=rule) as error:
        check_policy(Planted(name=cls.__name__))
    assert str(error.value).startswith("Planted: ")
    assert "\n" not in str(error.value)


def test_message_names_the_workload_and_a_seed_that_repeats_it():
    messages = []
    for _ in range(2):
        with pytest.raises(AssertionError) as error:
            check_policy(Planted(name="OverAllocating"), seed=3)
        messages.append(str(error.value))
    assert messages[0] == messages[1]
    assert messages[0].endswith("of seed 3)")
    assert "OverAllocating at " in messages[0]


class Loose(Planted):
    model_config = ConfigDict(frozen=False)


class Welcoming(Planted):
    model_config = ConfigDict(extra="ignore")


class Sharing(Planted):
    def build(self):
        return ONE_FOR_ALL


ONE_FOR_ALL = Honest()


class NoPolicy(Planted):
    def build(self):
        return object()


class NoBuild(PolicySpec):
    pass


class Converting(Planted):
    """Stores its wait in seconds, so that what it dumps is not what it was given."""

    wait_ms: float = 1.0

    @field_validator("wait_ms")
    @classmethod
    def _to_seconds(cls, value):
        return value / 1e3


class Learning(Planted):
    """Hands out a parameter that can be written to."""

    notes: tuple[list[int], ...] = ([],)

    def build(self):
        policy = Noting()
        policy.notes = self.notes[0]
        return policy


@pytest.mark.parametrize(
    ("spec", "rule"),
    [
        (Loose(name="Honest"), "has to be frozen: name can be set"),
        (Welcoming(name="Honest"), "unknown parameters have to be refused"),
        (Sharing(name="Honest"), r"build\(\) has to return a new Policy each time"),
        (NoPolicy(name="Honest"), r"build\(\) has to return a new Policy each time"),
        (NoBuild(), "survive pickle, model_dump, build: NotImplementedError"),
        (Converting(name="Honest", wait_ms=5), "have to give an equal specification"),
        (Learning(name="Honest"), "a run must not change the specification"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_faulty_specification_is_found(spec, rule):
    with pytest.raises(AssertionError, match=rule):
        check_policy(spec)


def test_specification_that_does_not_pickle_is_found():
    class Local(Planted):
        pass

    with pytest.raises(AssertionError, match="has to survive pickle"):
        check_policy(Local(name="Honest"))


@pytest.mark.parametrize("number", [0, -1])
def test_checking_on_no_workload_is_refused(number):
    with pytest.raises(ValueError, match="num_traces"):
        check_policy(OneAtATime(), num_traces=number)


def test_release_modes_of_the_settings_are_both_covered():
    releases = {spec.release for spec in SETTINGS if isinstance(spec, Static)}
    assert releases == set(Release)
