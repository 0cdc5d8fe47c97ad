"""A policy of one's own: by dotted name from a file, and as an instance of a class at hand."""

import sys
from typing import Literal

import pytest
import yaml
from pydantic import Field

from policies import ALL_RUNNING, Decision, Plan, Policy, PolicySpec, Static, Work
from policies.testing import ScriptedView
from simulator import DecisionLog, RunSpec, UserError, simulate
from simulator.testing import check_policy

SHORTEST = '''
"""Serve the shortest waiting prompt, one request at a time."""

from policies import ALL_RUNNING, Decision, Plan, Policy, PolicySpec, Work


class ShortestPrompt(PolicySpec):
    """Shortest prompt first."""

    longest: int = 10_000
    """Prompts above this many tokens are turned away."""

    def build(self):
        return _ShortestPrompt(self.longest)


class _ShortestPrompt(Policy):
    def __init__(self, longest):
        self._longest = longest

    def on_submit(self, request, view):
        return "prompt too long" if request.prompt_tokens > self._longest else None

    def decide(self, view, trigger=None):
        if len(view.running):
            return Decision(Plan(decodes=ALL_RUNNING, steady=True))
        if not len(view.waiting):
            return Decision()
        first = min(view.waiting, key=lambda r: (r.prompt_tokens, r.id))
        return Decision(Plan(chunks=(Work(first.id, first.prompt_tokens),)), admit=(first.id,))
'''
WORKLOAD = {
    "arrivals": {"kind": "poisson", "request_rate": 4.0},
    "prompt_tokens": {"kind": "uniform", "low": 1, "high": 100},
    "output_tokens": 5,
    "num_requests": 40,
}
COST = {"kind": "fixed", "step_ms": 40}


@pytest.fixture
def shortest(tmp_path, monkeypatch):
    """Put a module with a policy where Python finds it; return the policy's dotted name."""
    (tmp_path / "my_shortest_policy.py").write_text(SHORTEST)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_shortest_policy", raising=False)
    return "my_shortest_policy:ShortestPrompt"


def run(policy):
    spec = RunSpec.from_dict({"workload": WORKLOAD, "policy": policy, "cost": COST})
    log = DecisionLog()
    return simulate(spec, observers=[log]), log.lines


def test_policy_from_a_file_runs_by_its_dotted_name(shortest):
    result, _ = run(shortest)
    assert result.metrics["completed"] == 40
    served = result.requests.sort_values("first_scheduled_s")
    assert (served["first_scheduled_s"].diff().dropna() > 0).all(), "one at a time"
    assert served["request_id"].tolist() != sorted(served["request_id"]), "not by arrival"


def test_policy_from_a_file_keeps_the_contract(shortest):
    check_policy(RunSpec.from_dict({"policy": shortest}).policy)


def test_its_parameters_are_read_and_checked(shortest):
    result, _ = run({"kind": shortest, "longest": 50})
    requests = result.requests
    assert (requests["state"] == "rejected").equals(requests["prompt_tokens"] > 50)
    with pytest.raises(UserError, match="longest") as error:
        run({"kind": shortest, "longest": "very"})
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="shortest"):
        run({"kind": shortest, "shortest": 1})


def test_its_specification_survives_yaml(shortest):
    spec = RunSpec.from_dict({"policy": {"kind": shortest, "longest": 50}})
    text = spec.to_yaml()
    assert yaml.safe_load(text)["policy"] == {"kind": shortest, "longest": 50}
    assert RunSpec.from_yaml(text) == spec
    assert RunSpec.from_yaml(text).content_hash() == spec.content_hash()


@pytest.mark.parametrize(
    "name",
    ["my_shortest_policy:Longest", "my_shortest_policy:Work", "no_such_module:Policy", "a:b:c"],
)
def test_wrong_dotted_name_is_one_line_that_says_so(shortest, name):
    with pytest.raises(UserError, match=name.split(":")[0]) as error:
        RunSpec.from_dict({"policy": name})
    assert "\n" not in str(error.value)


class Pairs(PolicySpec):
    """Serves requests two by two; a pair ends before the next begins."""

    patience_ms: float = Field(50.0, ge=0, allow_inf_nan=False)

    def build(self) -> Policy:
        return _Pairs(self.patience_ms / 1e3)


class _Pairs(Policy):
    def __init__(self, patience: float) -> None:
        self._patience = patience

    def decide(self, view, trigger=None) -> Decision:
        if len(view.running):
            return Decision(Plan(decodes=ALL_RUNNING))
        pair = [r for r, _ in zip(view.waiting, range(2), strict=False)]
        needs = [view.kv.blocks_for(r.prompt_tokens + r.max_tokens) for r in pair]
        if sum(needs) > view.kv.free:
            del pair[1:]
        elif len(pair) == 1 and view.now < pair[0].arrival + self._patience:
            return Decision(wake_at=pair[0].arrival + self._patience)
        if not pair:
            return Decision()
        return Decision(
            Plan(chunks=tuple(Work(r.id, r.remaining) for r in pair)),
            admit=tuple(r.id for r in pair),
            reserve=tuple((r.id, r.prompt_tokens + r.max_tokens) for r in pair),
        )


class WithKind(Pairs):
    """Has a kind of its own, as the built-in ones do."""

    kind: Literal["with-kind"] = "with-kind"


class LargerStatic(Static):
    """Another default for a built-in policy."""

    max_batch_size: int = Field(64, ge=1)


@pytest.mark.parametrize("spec", [Pairs(patience_ms=10), WithKind(), LargerStatic()], ids=repr)
def test_class_at_hand_runs_as_an_instance(spec):
    result, lines = run(spec)
    assert result.metrics["completed"] == 40
    again, same = run(spec)
    assert lines == same
    assert result.requests.equals(again.requests)


@pytest.mark.parametrize("spec", [Pairs(patience_ms=10), WithKind(), LargerStatic()], ids=repr)
def test_class_at_hand_keeps_the_contract(spec):
    check_policy(spec)


@pytest.mark.parametrize("policy", [Pairs(patience_ms=10), WithKind(), LargerStatic()], ids=repr)
def test_instance_survives_yaml_under_its_dotted_name(policy):
    spec = RunSpec(policy=policy)
    assert spec.policy_kind == f"{__name__}:{type(policy).__name__}"
    assert RunSpec.from_yaml(spec.to_yaml()) == spec


def test_class_at_hand_can_be_tried_on_paper():
    policy = Pairs(patience_ms=10).build()
    assert policy.decide(ScriptedView(waiting=[4])).wake_at == 0.01
    assert policy.decide(ScriptedView(waiting=[4, 2, 3])).admit == (0, 1)
    assert policy.decide(ScriptedView(now=0.01, waiting=[4])).admit == (0,)
