import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from policies import Decision, VllmV1
from policies.base import RequestView
from policies.orders import ORDERS, Edf, KeyOrder, Sjf
from policies.testing import ScriptedRequest, ScriptedView
from simulator import RunSpec, simulate
from simulator.prefix_cache import PrefixLedger
from simulator.testing import check_policy
from tests.properties.runs import spec_of, trace
from tests.strategies import Scenario, scenarios


def decide(order, waiting, running=(), **parameters) -> Decision:
    """Let requests arrive one after the other, and ask for the next step."""
    replica = {
        k: parameters.pop(k) for k in ("oracle", "step_time", "num_blocks") if k in parameters
    }
    policy = VllmV1(order=order, **parameters).build()
    view = ScriptedView(waiting=waiting, running=running, block_size=4, **replica)
    for request in (*running, *waiting):
        policy.on_submit(request, view)
    return policy.decide(view)


def decode(rid: int, context: int = 8, **fields) -> ScriptedRequest:
    return ScriptedRequest(rid, context, computed=context, generated=1, max_tokens=99, **fields)


def linear(decodes: int, context: int, chunks) -> float:
    """Seconds of a step: 0.1 a decode, 0.01 a prompt token."""
    return 0.1 * decodes + 0.01 * sum(tokens for tokens, _ in chunks)


def test_work_in_seconds_is_prompt_and_output_on_the_idle_machine():
    # 0.01 x 50 + 0.1 x 2 = 0.7; 0.01 x 5 + 0.1 x 7 = 0.75; 0.01 x 1 + 0.1 x 5 = 0.51.
    waiting = [ScriptedRequest(0, 50), ScriptedRequest(1, 5), ScriptedRequest(2, 1)]
    known = {"oracle": {0: 2, 1: 7, 2: 5}, "step_time": linear}
    assert decide("sjf", waiting, **known).admit == (2, 0, 1)
    assert decide({"kind": "sjf", "work": "output-tokens"}, waiting, **known).admit == (0, 2, 1)


def test_equal_work_is_served_in_order_of_arrival():
    waiting = [ScriptedRequest(i, 4, arrival=[2.0, 1.0, 1.0][i]) for i in range(3)]
    assert decide("sjf", waiting, oracle=dict.fromkeys(range(3), 5)).admit == (1, 2, 0)


def test_aging_lets_early_arrivals_overtake_short_jobs():
    waiting = [ScriptedRequest(0, 4, arrival=0.0), ScriptedRequest(1, 4, arrival=3.0)]
    known = {"oracle": {0: 20, 1: 15}}
    for aging, admitted in ((0, (1, 0)), (1, (1, 0)), (2, (0, 1))):
        order = {"kind": "sjf", "work": "output-tokens", "aging": aging}
        assert decide(order, waiting, **known).admit == admitted


def test_prediction_is_made_once_at_arrival():
    policy = VllmV1(order={"kind": "sjf", "predictor": "class-mean", "work": "output-tokens"})
    order = policy.order.build()
    view = ScriptedView()
    first = ScriptedRequest(0, tenant="a")
    order.add(first, view)
    order.forget(ScriptedRequest(9, tenant="a", generated=1000))
    order.add(first, view)  # again, after a preemption
    assert order.key(first) == (256,)
    second = ScriptedRequest(1, tenant="a")
    order.add(second, view)
    assert order.key(second) == (1000,)


def test_cached_prefix_is_no_work():
    ledger = PrefixLedger(num_blocks=10, block_size=4)
    first, second = ScriptedRequest(0, 40), ScriptedRequest(1, 40)
    for request in (first, second):
        ledger.register(request, [("same", 40)])
    view = ScriptedView(step_time=linear)
    view.kv = ledger
    keys = []
    for request in (first, second):
        order = Sjf(predictor={"kind": "constant", "output_tokens": 10}).build()
        order.add(request, view)
        ledger.rollback()
        keys += order.key(request)
        ledger.hold(0, 40)
    # Of ten blocks, nine are found: the last token is computed in any case.
    assert keys == pytest.approx([0.40 + 1.0, 0.04 + 1.0])


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ({"deadline": 7.0, "ttft_slo": 1.0}, 7.0),
        ({"ttft_slo": 1.0}, 3.0),
        ({"ttft_slo": 1.0, "tpot_slo": 0.5, "generated": 4}, 5.0),
        ({"ttft_slo": 1.0, "generated": 4}, 3.4),
        ({"tpot_slo": 0.5, "generated": 4}, 6.0),
        ({}, 4.0),
    ],
)
def test_deadline_is_the_requests_own_or_that_of_its_next_token(fields, key):
    order = Edf(ttft_slo_ms=2000, tpot_slo_ms=100).build()
    assert order.key(ScriptedRequest(0, arrival=2.0, **fields)) == (key,)


def test_requests_without_any_objective_come_last():
    waiting = [ScriptedRequest(0, 4), ScriptedRequest(1, 4, ttft_slo=9.0), ScriptedRequest(2, 4)]
    assert decide("edf", waiting).admit == (1, 0, 2)


def test_victim_has_the_latest_deadline_and_of_equals_arrived_last():
    running = [decode(0, deadline=5.0), decode(1, deadline=9.0), decode(2, deadline=7.0)]
    decision = decide("edf", [], running, num_blocks=6)
    assert [rid for rid, _ in decision.preempt] == [1]
    order = Edf().build()
    assert order.victim([decode(0, arrival=1.0), decode(1, arrival=2.0), decode(2)]).id == 1


def test_victim_of_shortest_job_first_has_the_most_work():
    running = [decode(0), decode(1), decode(2)]
    decision = decide("sjf", [], running, num_blocks=6, oracle={0: 3, 1: 30, 2: 9})
    assert [rid for rid, _ in decision.preempt] == [1]


PREEMPTIVE = {"kind": "edf", "preemptive": True}


def test_earlier_deadline_takes_the_seat_of_the_latest():
    running = [decode(0, deadline=5.0), decode(1, deadline=9.0)]
    waiting = [ScriptedRequest(2, 4, deadline=7.0), ScriptedRequest(3, 4, deadline=8.0)]
    decision = decide(PREEMPTIVE, waiting, running, max_num_seqs=2)
    assert [rid for rid, _ in decision.preempt] == [1]
    assert decision.admit == (2,)
    assert not decision.plan.steady
    assert decide("edf", waiting, running, max_num_seqs=2).preempt == ()


def test_several_seats_change_hands_at_once():
    running = [decode(0, deadline=8.0), decode(1, deadline=9.0)]
    waiting = [ScriptedRequest(2, 4, deadline=2.0), ScriptedRequest(3, 4, deadline=1.0)]
    decision = decide(PREEMPTIVE, waiting, running, max_num_seqs=2)
    assert [rid for rid, _ in decision.preempt] == [1, 0]
    assert decision.admit == (3, 2)


@pytest.mark.parametrize(
    ("deadline", "seats"), [(9.0, 2), (10.0, 2), (7.0, 3)], ids=["equal", "later", "free seat"]
)
def test_nobody_loses_a_seat_without_need(deadline, seats):
    running = [decode(0, deadline=5.0), decode(1, deadline=9.0)]
    waiting = [ScriptedRequest(2, 4, deadline=deadline)]
    decision = decide(PREEMPTIVE, waiting, running, max_num_seqs=seats)
    assert decision.preempt == ()
    assert decision.admit == ((2,) if seats == 3 else ())


def test_fewer_tokens_to_come_take_the_seat_of_most():
    running = [decode(0), decode(1)]  # each has one token
    waiting = [ScriptedRequest(2, 4), ScriptedRequest(3, 4)]
    known = {"oracle": {0: 5, 1: 9, 2: 7, 3: 8}}
    decision = decide("srpt", waiting, running, max_num_seqs=2, **known)
    assert [rid for rid, _ in decision.preempt] == [1]
    assert decision.admit == (2,)


def test_who_runs_with_fewest_tokens_to_come_keeps_the_seat_in_a_steady_plan():
    running, waiting = [decode(0)], [ScriptedRequest(1, 4)]
    decision = decide("srpt", waiting, running, max_num_seqs=1, oracle={0: 6, 1: 5})
    assert decision.preempt == ()
    assert decision.plan.steady


def test_request_that_outlives_its_prediction_stays_ahead():
    order = {"kind": "srpt", "predictor": {"kind": "constant", "output_tokens": 4}}
    running = [ScriptedRequest(0, 8, computed=17, generated=10, max_tokens=99)]
    decision = decide(order, [ScriptedRequest(1, 4)], running, max_num_seqs=1)
    assert decision.preempt == ()


def test_preemptive_plan_is_steady_only_while_nobody_waits():
    running = [decode(0, ttft_slo=1.0, tpot_slo=1.0)]
    waiting = [ScriptedRequest(1, 4, ttft_slo=3.0)]
    assert decide(PREEMPTIVE, [], running, max_num_seqs=1).plan.steady
    assert not decide(PREEMPTIVE, waiting, running, max_num_seqs=1).plan.steady
    assert decide("edf", waiting, running, max_num_seqs=1).plan.steady


def test_name_alone_stands_for_the_defaults():
    for cls in ORDERS:
        assert VllmV1(order=cls.model_fields["kind"].default).order == cls()


@pytest.mark.parametrize(
    "order",
    [
        "lifo",
        {"kind": "edf", "ttft_slo_ms": 0},
        {"kind": "edf", "tpot_slo_ms": -1},
        {"kind": "sjf", "work": "hours"},
        {"kind": "sjf", "aging": -1},
        {"kind": "srpt", "work": "seconds"},
        {"kind": "sjf", "predictor": "crystal-ball"},
        {"kind": "fcfs", "preemptive": True},
    ],
    ids=repr,
)
def test_nonsense_parameters_are_refused(order):
    with pytest.raises(ValidationError):
        VllmV1(order=order)


class Counting(KeyOrder):
    """Counts how many keys are computed."""

    calls = 0

    def key(self, request: RequestView):
        self.calls += 1
        return (-request.arrival,)


def test_a_pass_costs_the_same_however_many_wait():
    order = Counting()
    requests = [ScriptedRequest(i, 1, arrival=float(i)) for i in range(5000)]
    waiting = dict.fromkeys(range(5000))

    class Queue(ScriptedView):
        @property
        def waiting(self):
            return waiting

        @waiting.setter
        def waiting(self, value):
            pass

    view = Queue()
    for request in requests:
        order.add(request, view)
    assert order.calls == 5000
    for expected in (4999, 4998, 4997):
        order.begin(view)
        assert order.head.id == expected
        order.take()
        del waiting[expected]
    assert order.calls == 5000


@settings(max_examples=60, deadline=None, derandomize=True)
@given(scenarios(), st.sampled_from([0.0, 0.5]))
def test_shortest_job_first_with_one_seat_keeps_total_work_and_serves_all(
    scenario: Scenario, sigma: float
):
    predictor = {"kind": "noisy-oracle", "sigma": sigma}
    runs = [
        trace(spec_of(scenario, VllmV1(max_num_seqs=1, order=order))).result.tables
        for order in ("fcfs", {"kind": "sjf", "predictor": predictor})
    ]
    # Not preemptive and never idle: the machine is done at the same time in any order.
    assert runs[0]["steps"]["end_s"].max() == runs[1]["steps"]["end_s"].max()
    assert runs[0]["steps"]["num_steps"].sum() == runs[1]["steps"]["num_steps"].sum()


def test_orders_stand_in_yaml():
    text = """
    policy:
      kind: vllm-v1
      order: {kind: sjf, predictor: {kind: noisy-oracle, sigma: 0.3}}
      budget: {kind: ascend-table, slo_ms: 60}
    workload: {name: demo-chat, num_requests: 30}
    """
    spec = RunSpec.from_yaml(text)
    assert RunSpec.from_yaml(spec.to_yaml()) == spec
    assert simulate(spec).metrics["completed"] == 30


@pytest.mark.parametrize(
    "parameters",
    [
        {"order": "sjf", "max_num_seqs": 2},
        {"order": {"kind": "sjf", "predictor": "noisy-oracle"}, "max_num_batched_tokens": 9},
        {"order": {"kind": "sjf", "predictor": "class-mean"}, "max_num_seqs": 3},
        {"order": {"kind": "sjf", "predictor": "constant", "work": "output-tokens", "aging": 9}},
        {"order": {"kind": "edf", "ttft_slo_ms": 20}, "max_num_batched_tokens": 8},
        {
            "order": {"kind": "edf", "ttft_slo_ms": 20, "tpot_slo_ms": 5, "preemptive": True},
            "max_num_seqs": 2,
        },
        {"order": "srpt", "max_num_seqs": 2},
        {
            "order": {"kind": "srpt", "predictor": {"kind": "noisy-oracle", "sigma": 2}},
            "max_num_batched_tokens": 9,
            "max_num_seqs": 3,
        },
        {"order": {"kind": "srpt", "predictor": "constant"}, "max_num_seqs": 1},
        {"order": "priority", "max_num_batched_tokens": 8, "decodes_first": True},
    ],
    ids=repr,
)
def test_orders_keep_the_contract(parameters):
    check_policy(VllmV1(**parameters), num_traces=10)
