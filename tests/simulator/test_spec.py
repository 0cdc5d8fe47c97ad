import json
import os
import pickle
import subprocess
import sys
from typing import Any, Literal

import pytest
from pydantic import ValidationError

from policies import POLICIES
from policies.base import Decision, Policy, PolicySpec, Trigger, View
from simulator import RunSpec, UserError, simulate
from simulator.cost.spec import COSTS

SYNTHETIC = {
    "arrivals": {"kind": "gamma", "request_rate": 8, "burstiness": 0.5},
    "prompt_tokens": {"kind": "lognormal", "mean": 512, "cv": 1.2},
    "output_tokens": 128,
    "num_requests": 20,
}
WRITTEN: dict[str, dict[str, Any]] = {
    "nothing": {},
    "preset": {"workload": {"name": "demo-chat", "request_rate": 0.5}},
    "preset with its own number": {"workload": {"name": "azure-conv-2023"}},
    "synthetic": {"workload": SYNTHETIC},
    "capped": {"workload": SYNTHETIC | {"max_tokens": {"kind": "factor", "factor": 1.5}}},
    "trace": {"workload": {"path": "some trace.csv", "strict": False, "on_overlong": "clip"}},
    "short policy": {"policy": "static"},
    "window": {"policy": {"kind": "window-pull", "max_wait_ms": 2.5, "release": "per-request"}},
    "engine": {"engine": {"block_size": 8, "num_blocks": 100, "max_model_len": 4096}},
    "fixed": {"cost": {"kind": "fixed", "step_ms": 0.1}},
    "empirical": {"cost": {"kind": "empirical", "values_ms": [1, 5], "probs": [0.9, 0.1]}},
    "table": {"cost": {"kind": "table", "gpu": "h200", "model": "qwen3-32b", "tp": 2}},
    "measure": {
        "measure": {
            "warmup_s": 1e-3,
            "horizon_s": 60,
            "goodput": {"ttft_ms": 500, "tpot_ms": 50},
            "percentiles": [50, 99.9],
        },
        "seed": 2**100,
    },
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_specification_survives_yaml_json_and_pickle(name: str) -> None:
    spec = RunSpec.from_dict(WRITTEN[name])
    again = RunSpec.from_yaml(spec.to_yaml())
    assert again == spec
    assert again.content_hash() == spec.content_hash()
    assert again.to_yaml() == spec.to_yaml()
    assert RunSpec.from_dict(json.loads(json.dumps(spec.to_dict()))) == spec
    assert pickle.loads(pickle.dumps(spec)) == spec


@pytest.mark.parametrize("cls", POLICIES, ids=lambda cls: cls.__name__)
def test_every_policy_survives_yaml(cls: type[PolicySpec]) -> None:
    spec = RunSpec(policy=cls())
    assert type(RunSpec.from_yaml(spec.to_yaml()).policy) is cls
    assert RunSpec.from_yaml(spec.to_yaml()) == spec
    assert spec.policy_kind == cls.model_fields["kind"].default


def test_numbers_in_words_are_numbers() -> None:
    """YAML 1.1 reads 1e-3 as a string."""
    assert RunSpec.from_yaml("measure: {warmup_s: 1e-3}").measure.warmup_s == 0.001


def test_an_empty_file_is_the_default() -> None:
    assert RunSpec.from_yaml("") == RunSpec.from_yaml("# nothing\n") == RunSpec()


def test_percentiles_may_be_a_list_in_words() -> None:
    assert RunSpec(measure={"percentiles": "50,99.9"}).measure.percentiles == (50.0, 99.9)


ALIKE: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"policy": "static"}, {"policy": {"kind": "static", "max_batch_size": 8}}),
    ({"seed": 0}, {}),
    ({"cost": {"kind": "fixed", "step_ms": 5}}, {"cost": {"step_ms": 5.0, "kind": "fixed"}}),
    (
        {"workload": SYNTHETIC},
        {"workload": SYNTHETIC | {"arrivals": {"request_rate": 8.0, "cv": 0.5**-0.5}}},
    ),
]


@pytest.mark.parametrize(("one", "other"), ALIKE, ids=["policy", "seed", "order", "burstiness"])
def test_the_hash_is_that_of_the_meaning(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert RunSpec.from_dict(one).content_hash() == RunSpec.from_dict(other).content_hash()


def test_any_difference_changes_the_hash() -> None:
    specs = [RunSpec.from_dict(data) for data in WRITTEN.values()]
    specs += [RunSpec(policy=cls()) for cls in POLICIES if cls.__name__ not in ("VllmV1", "Static")]
    assert len({spec.content_hash() for spec in specs}) == len(specs)


def test_the_hash_is_the_same_in_every_process() -> None:
    code = "from simulator import RunSpec; print(RunSpec(policy='static').content_hash())"
    command = [sys.executable, "-c", code]
    environment = dict(os.environ, PYTHONHASHSEED="12345")
    found = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    assert found.stdout.strip() == RunSpec(policy="static").content_hash()


def test_a_specification_does_not_change() -> None:
    spec = RunSpec()
    for section, name in ((spec, "seed"), (spec.engine, "block_size"), (spec.measure, "warmup_s")):
        with pytest.raises(ValidationError, match="frozen"):
            setattr(section, name, 1)


class Own(PolicySpec):
    """A policy of the user's, found by its dotted name."""

    patience: int = 1
    hope: int | None = 7

    def build(self) -> Policy:
        return _Own()


class OwnWithKind(Own):
    kind: Literal["own"] = "own"


class _Own(Policy):
    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        return Decision(reject=tuple((r.id, "never") for r in view.waiting))


@pytest.mark.parametrize("cls", [Own, OwnWithKind])
def test_a_policy_of_ones_own_is_used_by_its_dotted_name(cls: type[Own]) -> None:
    kind = f"{__name__}:{cls.__name__}"
    spec = RunSpec.from_dict({"policy": {"kind": kind, "patience": 3}, "workload": SYNTHETIC})
    assert spec.policy == cls(patience=3)
    assert spec.policy_kind == kind
    assert RunSpec.from_yaml(spec.to_yaml()) == spec
    assert simulate(spec).metrics["rejected"] == 20


def test_a_parameter_set_to_nothing_survives_yaml() -> None:
    spec = RunSpec(policy=Own(hope=None))
    assert RunSpec.from_yaml(spec.to_yaml()) == spec


WRONG: list[tuple[Any, str]] = [
    (
        {"policy": "vlm-v1"},
        "policy: unknown policy 'vlm-v1'; nearest: vllm-v1",
    ),
    (
        {"policy": {"kind": "static", "max_batchsize": 3}},
        "policy.max_batchsize: no such parameter of static; nearest: max_batch_size, max_seq_len",
    ),
    (
        {"policy": {"kind": "static", "max_batch_size": "many"}},
        "policy.max_batch_size: 'many': should be a valid integer, "
        "unable to parse string as an integer",
    ),
    (
        {"policy": {"kind": "static", "max_batch_size": 0}},
        "policy.max_batch_size: 0: should be greater than or equal to 1",
    ),
    (
        {"policy": "no_such_module:Policy"},
        "policy: 'no_such_module:Policy' cannot be loaded: No module named 'no_such_module'",
    ),
    (
        {"policy": "json:loads"},
        "policy: policy 'json:loads' is not a subclass of policies.PolicySpec",
    ),
    (
        {"workload": {"name": "demo-chat", "request_rate": 0}},
        "workload.request_rate: 0: should be greater than 0",
    ),
    (
        {"workload": SYNTHETIC | {"arrivals": {"request_rate": 0}}},
        "workload.arrivals.request_rate: 0: should be greater than 0",
    ),
    (
        {"workload": SYNTHETIC | {"arrivals": 0}},
        "workload.arrivals.request_rate: 0: should be greater than 0",
    ),
    (
        {"workload": {"name": "azure-conv-23"}},
        "workload.name: got 'azure-conv-23', not the name of a preset; "
        "did you mean 'azure-conv-2023'?",
    ),
    ({"cost": {"kind": "fixd", "step_ms": 1}}, "cost: unknown kind 'fixd'; nearest: fixed"),
    ({"cost": {"kind": "fixed"}}, "cost.step_ms: missing"),
    (
        {"cost": {"kind": "fixed", "step_ms": "slow", "x": 1}},
        "cost.step_ms: 'slow': should be a valid number, "
        "unable to parse string as a number (and 1 more)",
    ),
    ({"engine": {"num_blocs": 1}}, "engine.num_blocs: no such parameter; nearest: num_blocks"),
    ({"engine": 3}, "engine: 3: should be a valid dictionary"),
    ({"measure": {"percentiles": [100]}}, "100: expected numbers between 0 and 100"),
    ({"measure": {"horizon_s": 0}}, "measure.horizon_s: 0: should be greater than 0"),
    (
        {"measure": {"goodput": {"ttft": 1}}},
        "measure.goodput.ttft: no such parameter; nearest: ttft_ms",
    ),
    ({"sed": 1}, "sed: no such parameter; nearest: seed"),
    ({"seed": -1}, "seed: -1: should be greater than or equal to 0"),
    ({"seed": 1.5}, "seed: 1.5: should be a valid integer"),
]


@pytest.mark.parametrize(("data", "message"), WRONG, ids=[message[:40] for _, message in WRONG])
def test_a_wrong_specification_is_told_in_one_line(data: Any, message: str) -> None:
    with pytest.raises(UserError) as caught:
        RunSpec.from_dict(data, "run.yaml")
    assert str(caught.value).startswith("run.yaml: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("policy: [", "run.yaml, line 1: not valid YAML"),
        ("seed: 1\npolicy: {kind: static", "run.yaml, line 2: not valid YAML"),
        ("- 1", "run.yaml: expected a mapping with keys such as policy, workload, cost"),
        ("just text", "run.yaml: expected a mapping"),
    ],
)
def test_a_file_that_is_no_specification_is_told_with_its_line(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        RunSpec.from_yaml(text, "run.yaml")
    assert str(caught.value).startswith(message)


def test_a_seed_that_no_stream_takes_is_the_users_error() -> None:
    with pytest.raises(UserError, match="seed"):
        simulate(RunSpec(workload=SYNTHETIC, seed=2**128))


def test_the_schema_describes_every_section_and_kind() -> None:
    text = json.dumps(RunSpec.model_json_schema())
    for cost in COSTS:
        assert f'"{cost.model_fields["kind"].default}"' in text
    for word in ("workload", "policy", "engine", "cost", "measure", "seed"):
        assert word in RunSpec.model_json_schema()["properties"]
