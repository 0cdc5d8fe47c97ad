"""A policy that does not declare `needs_oracle` never sees an output length, or what follows it."""

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies import POLICIES, VllmV1
from policies.base import Decision, Policy, PolicySpec, RequestView, Trigger, View
from simulator.clock import ARRIVAL, At, Clock
from simulator.cost.analytic import FixedCost
from simulator.engine import Engine
from simulator.fastforward import FastEngine
from simulator.recorder import DecisionLog
from simulator.request import Request
from workloads.request import RequestSpec

ORDERS: list[object] = [
    "priority",
    {"kind": "edf", "ttft_slo_ms": 500, "tpot_slo_ms": 100, "preemptive": True},
    {"kind": "sjf", "predictor": "class-mean"},
    {"kind": "sjf", "predictor": "constant", "work": "output-tokens"},
    {"kind": "srpt", "predictor": "class-mean"},
]
BUDGETS: list[object] = [
    {"kind": "model-predictive", "tpot_slo_ms": 1500},
    {"kind": "ascend-table", "slo_ms": 1500, "d_nums": [1, 2, 4]},
]
BLIND: list[PolicySpec] = [
    *(spec for cls in POLICIES if not (spec := cls()).build().needs_oracle),
    *(VllmV1(order=order, max_num_seqs=2) for order in ORDERS),
    *(VllmV1(budget=budget, max_num_batched_tokens=20) for budget in BUDGETS),
]
KINDS = pytest.mark.parametrize("kind", [Engine, FastEngine])


class Spy(Policy):
    """Passes everything on to another policy, and writes down all that it could see, and when."""

    def __init__(self, policy: Policy) -> None:
        self.needs_oracle, self.limits = policy.needs_oracle, policy.limits
        self._policy = policy
        self.sights: dict[float, list[object]] = {}
        self.oracle: object = None

    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        requests = [*view.waiting, *view.running, *view.swapped]
        seen = [public(view), public(view.kv), *(public(request) for request in requests)]
        self.sights[view.now] = seen
        self.oracle = view.oracle
        return self._policy.decide(view, trigger)

    def on_submit(self, request: RequestView, view: View) -> str | None:
        return self._policy.on_submit(request, view)

    def on_finish(self, request: RequestView, view: View) -> None:
        self._policy.on_finish(request, view)


def public(thing: object) -> dict[str, object]:
    """Return the public attributes that are plain values."""
    names = [name for name in dir(thing) if not name.startswith("_")]
    values = {name: getattr(thing, name) for name in names}
    plain = (int, float, str, bool, type(None))
    return {name: value for name, value in values.items() if isinstance(value, plain)}


class Log(DecisionLog):
    """Knows which decision led to a request's last token; nobody can know that before."""

    def __init__(self, requests: list[Request], outputs: dict[int, int]) -> None:
        super().__init__()
        self._requests, self._outputs = requests, outputs
        self.done: dict[int, tuple[int, float]] = {}

    def on_decision(self, now: float, trigger: Trigger, decision: Decision, work: list) -> None:
        super().on_decision(now, trigger, decision, work)
        for rid, tokens in work:
            request = self._requests[rid]
            if tokens == request.remaining and request.generated + 1 == self._outputs[rid]:
                self.done[rid] = len(self.lines), now


def run(kind: type[Engine], spec: PolicySpec, rows: list[RequestSpec]) -> tuple[Spy, Log]:
    """Return what a policy saw and decided on a machine with steps of a second."""
    outputs = {row.id: row.output_tokens for row in rows}
    requests = [kind.request_type(row) for row in rows]
    env, spy, log = Clock(), Spy(spec.build()), Log(requests, outputs)
    kv = kind.ledger_type(24, 4)
    engine = kind(env, spy, FixedCost(1.0), kv, outputs, None, (log,))
    engine.start()
    for request in requests:
        submit = partial(lambda request, _: engine.submit(request), request)
        At(env, request.arrival, ARRIVAL).callbacks.append(submit)
    env.run()
    return spy, log


Rows = list[RequestSpec]


@st.composite
def twins(draw: st.DrawFn) -> tuple[Rows, Rows, list[int]]:
    """Draw two workloads that differ in hidden lengths alone, and whose."""
    now, rows = 0.0, Rows()
    for rid in range(draw(st.integers(1, 6))):
        now += draw(st.sampled_from([0, 0, 0.5, 1, 3]))
        prompt, output = draw(st.integers(1, 20)), draw(st.integers(1, 12))
        rows.append(RequestSpec(rid, now, prompt, output, 12, rid % 2, "ab"[rid % 2]))
    lengths = draw(st.lists(st.integers(1, 12), min_size=len(rows), max_size=len(rows)))
    others = [row._replace(output_tokens=n) for row, n in zip(rows, lengths, strict=True)]
    return rows, others, [a.id for a, b in zip(rows, others, strict=True) if a != b]


@pytest.mark.parametrize("spec", BLIND, ids=lambda spec: repr(spec)[:60])
@settings(max_examples=15, deadline=None, derandomize=True)
@given(twins())
def test_hidden_lengths_of_unfinished_requests_decide_nothing(spec, twins):
    *workloads, altered = twins
    logs = [run(Engine, spec, rows)[1] for rows in workloads]
    ends = [log.done[rid][0] for log in logs for rid in altered if rid in log.done]
    common = min(ends, default=None)
    assert logs[0].lines[:common] == logs[1].lines[:common]


@KINDS
@settings(max_examples=30, deadline=None, derandomize=True)
@given(twins())
def test_nothing_that_a_policy_sees_depends_on_hidden_lengths(kind, twins):
    *workloads, altered = twins
    spec = VllmV1(max_num_batched_tokens=16)
    done = [run(Engine, spec, rows)[1].done for rows in workloads]
    until = min((end[rid][1] for end in done for rid in altered), default=1e9)
    sights = [run(kind, spec, rows)[0].sights for rows in workloads]
    # The fast stepper need not ask as often; what it shows at one time is the same.
    for now in sights[0].keys() & sights[1].keys():
        if now <= until:
            assert sights[0][now] == sights[1][now]


@KINDS
def test_oracle_is_there_for_those_alone_who_declare_it(kind):
    rows = [RequestSpec(0, 0.0, 3, 7)]
    assert run(kind, VllmV1(), rows)[0].oracle is None
    oracle = run(kind, VllmV1(order="sjf"), rows)[0].oracle
    assert oracle.output_tokens(Request(rows[0])) == 7
