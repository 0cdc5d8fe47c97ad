"""Whatever stands in a specification or a trace: an answer, or one line and no traceback."""

import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from policies import POLICIES
from simulator import RunSpec
from simulator.errors import RunError, UserError
from simulator.run import simulate
from simulator.spec import parse_yaml
from workloads import WorkloadError, read_trace, summarise
from workloads.readers import READERS

SCRIPT = Path(__file__).parents[2] / "scripts" / "fuzz_readers.py"


def check(error: Exception) -> None:
    """Check that a message is one line."""
    assert len(str(error).splitlines()) == 1


@pytest.fixture(scope="module")
def fuzz() -> Iterator[Any]:
    """Return the script that fuzzes readers."""
    spec = spec_from_file_location("fuzz_readers", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["fuzz_readers"] = module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["fuzz_readers"]


def test_damaged_traces_are_read_or_refused(fuzz: Any, tmp_path: Path) -> None:
    """120 of the inputs of the script; it runs as long as one likes."""
    fuzzer = fuzz.Fuzzer(tmp_path)
    for data in islice(fuzz.mutations(fuzz.seeds(tmp_path), np.random.default_rng(7)), 120):
        fuzzer.try_one(data)
    assert fuzzer.findings == {}
    assert fuzzer.outcomes["accepted"] > 10
    assert fuzzer.outcomes["refused"] > 100


FOUND = {
    "a year that no clock holds": "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    "4048-01-01 00:00:00.1416339,164,285\r\n2024-01-01 00:00:00.3,211,100\r\n",
    "text columns of a summary": "Timestamp,Session ID,Elapsed time,Model,Request tokens,"
    "Response tokens,Total tokens,Log Type\n5,a,1,GPT-4,3,4,7,API log\n6,a,1,GPT-3,3,4,7,API log\n",
    "a block that no integer holds": '{"timestamp": 0, "input_length": 600, "output_length": 5, '
    '"hash_ids": [0, 99999999999999999999]}\n',
    "half a token in a block": '{"id": "a", "block_size": 1.5, "requests": '
    '[{"t": 0.0, "type": "n", "in": 64, "out": 7, "hash_ids": [1]}]}\n',
    "a number for a list": '{"id": "a", "block_size": 64, "requests": '
    '[{"t": 0.0, "type": "n", "in": 64, "out": 7, "hash_ids": 3}, '
    '{"type": "subagent", "requests": 5}]}\n',
}
"""What fuzzing found: these let another error out."""


@pytest.mark.parametrize("name", FOUND)
@pytest.mark.parametrize("read", [read_trace, summarise])
def test_what_fuzzing_found(tmp_path: Path, read: Any, name: str) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(FOUND[name])
    try:
        read(path)
    except WorkloadError as error:
        check(error)


quick = settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@quick
@given(st.binary(max_size=200), st.sampled_from(sorted(READERS)))
def test_any_bytes_in_a_trace(tmp_path: Path, data: bytes, name: str) -> None:
    path = tmp_path / "trace"
    path.write_bytes(data)
    for read in (read_trace, summarise):
        for chosen in (None, name):
            try:
                read(path, chosen)
            except WorkloadError as error:
                check(error)


SCALARS: Any = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats()
    | st.text(max_size=8)
    | st.sampled_from(["static", "poisson", "table", "h100", "1e3", "nan", "my:Policy", "os:path"])
)
KEYS: Any = st.text(max_size=5) | st.sampled_from(
    ["kind", "policy", "arrivals", "request_rate", "num_requests", "prompt_tokens", "path", "name"]
)
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4)
)
SECTIONS = st.sampled_from(["workload", "policy", "engine", "cost", "measure", "seed", "other"])


@settings(quick, max_examples=50)
@given(st.dictionaries(SECTIONS, VALUES, max_size=4))
def test_any_mapping_as_a_specification(data: dict[str, Any]) -> None:
    try:
        spec = RunSpec.from_dict(data, "fuzz.yaml")
    except UserError as error:
        check(error)
    else:
        assert RunSpec.from_yaml(spec.to_yaml()) == spec


@quick
@given(st.sampled_from(POLICIES), st.data())
def test_any_values_of_known_parameters(policy: Any, data: st.DataObject) -> None:
    """Numbers of a sensible size in the right places: the run is done, or refused in a line."""
    numbers = st.integers(0, 40) | st.sampled_from([0.5, -1, "many", None])
    names = st.sampled_from(sorted(set(policy.model_fields) - {"kind"}) or ["kind"])
    parameters = data.draw(st.dictionaries(names, numbers, max_size=2))
    workload = {"arrivals": 9, "prompt_tokens": 8, "output_tokens": 4, "num_requests": 4}
    spec = {
        "policy": {"kind": policy.model_fields["kind"].default} | parameters,
        "workload": workload
        | data.draw(st.dictionaries(st.sampled_from(sorted(workload)), numbers)),
        "engine": data.draw(
            st.dictionaries(st.sampled_from(["num_blocks", "block_size"]), numbers)
        ),
        "cost": {"kind": "fixed", "step_ms": 10},
    }
    try:
        simulate(RunSpec.from_dict(spec), timeout_s=20)
    except (UserError, RunError) as error:
        check(error)


@settings(quick, max_examples=150)
@given(
    st.text(
        st.sampled_from("a1:-.&*!<>[]{},'\"\n\t #|?%@`0x_~\x00\ud7ff") | st.characters(),
        max_size=40,
    )
)
def test_any_text_as_yaml(text: str) -> None:
    try:
        parse_yaml(text, "fuzz.yaml")
    except UserError as error:
        check(error)


@pytest.mark.parametrize(
    "text",
    [
        "policy: 2023-13-45",
        "{" * 600,
        "a: \x07",
        "? [a, b]\n: 1",
        "1: 2",
        "a: &a [*a]",
        "seed: 0b2",
        "seed: 1:99999999999999999999",
        "policy: {kind: vllm-v1, max_num_seqs: .nan}",
    ],
)
def test_yaml_that_trips_the_parser(text: str) -> None:
    with pytest.raises(UserError) as caught:
        RunSpec.from_yaml(text, "fuzz.yaml")
    assert len(str(caught.value).splitlines()) == 1
    assert str(caught.value).startswith("fuzz.yaml")


EVIL = [
    "!!python/object/apply:os.mkdir [evil]",
    "!!python/object/new:os.mkdir [evil]",
    "!!python/name:os.system",
    "!!python/module:os",
    "policy: !!python/object/apply:os.mkdir [evil]",
    "workload: {path: !!python/object/apply:subprocess.check_call [[mkdir, evil]]}",
]


@pytest.mark.parametrize("text", EVIL)
def test_yaml_never_executes_code(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="could not determine a constructor"):
        RunSpec.from_yaml(text, "evil.yaml")
    for name in READERS:
        (tmp_path / "trace").write_text(f"{text}\n")
        with pytest.raises(WorkloadError):
            read_trace(tmp_path / "trace", name)
    assert [path.name for path in tmp_path.iterdir()] == ["trace"]


def test_a_trace_never_executes_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Formats with Python literals in them, such as ServeGen's, take literals only."""
    monkeypatch.chdir(tmp_path)
    code = "__import__('os').mkdir('evil')"
    rows = [
        f"arrival_s,prompt_tokens,output_tokens\n0,{code},3\n",
        f'{{"arrival_s": 0, "prompt_tokens": "{code}", "output_tokens": 3}}\n',
        f"TIMESTAMP,ContextTokens,GeneratedTokens\n{code},3,4\n",
    ]
    for row in rows:
        (tmp_path / "trace").write_text(row)
        for name in (None, *READERS):
            with pytest.raises(WorkloadError):
                read_trace(tmp_path / "trace", name)
    assert [path.name for path in tmp_path.iterdir()] == ["trace"]


def test_only_policy_kind_names_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dotted name is code that is run; nothing else in a specification is."""
    (tmp_path / "evil_module.py").write_text("import os; os.mkdir('evil')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    places = (
        {"workload": "evil_module:Any"},
        {"workload": {"kind": "evil_module:Any"}},
        {"workload": {"arrivals": {"kind": "evil_module:Any"}}},
        {"engine": {"router": {"kind": "evil_module:Any"}}},
        {"cost": {"kind": "evil_module:Any"}},
        {"policy": {"kind": "vllm-v1", "order": {"kind": "evil_module:Any"}}},
        {"policy": {"kind": "vllm-v1", "budget": {"kind": "evil_module:Any"}}},
    )
    for data in places:
        with pytest.raises(UserError):
            RunSpec.from_dict(data)
    assert not (tmp_path / "evil").exists()
    with pytest.raises(UserError, match="evil_module:Any"):
        RunSpec.from_dict({"policy": "evil_module:Any"})
    assert (tmp_path / "evil").exists()
    del sys.modules["evil_module"]
