from pathlib import Path
from typing import Any

import pytest

from simulator import RunSpec, UserError
from simulator.settings import merge, parse_goodput, read_text, shorthands, split_options

NOTHING: dict[str, Any] = {
    "trace": None,
    "gpu": None,
    "model": None,
    "model_config": None,
    "request_rate": None,
    "num_requests": None,
    "goodput": (),
    "seed": None,
    "workload": {},
}


def test_dotted_options_are_taken_out_of_a_command_line() -> None:
    words = [
        "run",
        "a.yaml",
        "--policy.max-wait-ms",
        "5",
        "--seed",
        "1",
        "--policy.kind=window-pull",
        "--json",
    ]
    rest, settings = split_options(words)
    assert rest == ["run", "a.yaml", "--seed", "1", "--json"]
    assert settings == {"policy": {"max_wait_ms": "5", "kind": "window-pull"}}


def test_the_last_of_two_equal_options_wins() -> None:
    _, settings = split_options(["--engine.block-size", "1", "--engine.block-size=2"])
    assert settings == {"engine": {"block_size": "2"}}


def test_options_reach_deep_sections_and_values_may_look_like_options() -> None:
    words = ["--measure.goodput.ttft-ms=500", "--workload.arrivals.kind", "gamma"]
    words += ["--workload.path", "--strange.csv", "--workload.format=a=b"]
    _, settings = split_options(words)
    assert settings == {
        "measure": {"goodput": {"ttft_ms": "500"}},
        "workload": {
            "arrivals": {"kind": "gamma"},
            "path": "--strange.csv",
            "format": "a=b",
        },
    }


def test_values_with_a_point_are_no_options() -> None:
    words = ["run", "./a.yaml", "-o", "results/a.b", "--request-rate", "0.5"]
    assert split_options(words) == (words, {})


def test_nothing_after_a_double_dash_is_an_option() -> None:
    assert split_options(["run", "--", "--policy.kind", "x"]) == (
        ["run", "--", "--policy.kind", "x"],
        {},
    )


def test_lists_and_nothing_can_be_options_too() -> None:
    words = ["--cost.values-ms", "[1, 2.5]", "--policy.max-seq-len=null", "--policy.kind", "null x"]
    _, settings = split_options(words)
    assert settings == {
        "cost": {"values_ms": [1, 2.5]},
        "policy": {"max_seq_len": None, "kind": "null x"},
    }
    with pytest.raises(UserError, match=r"^--cost\.values-ms: \[1, 2: expected a list"):
        split_options(["--cost.values-ms", "[1, 2"])


def test_an_option_needs_a_value() -> None:
    with pytest.raises(UserError, match=r"^--policy\.kind: expected a value$"):
        split_options(["run", "--policy.kind"])


def test_an_unknown_section_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UserError, match=r"^--polcy\.kind: unknown section; known: workload, pol"):
        split_options(["--polcy.kind", "static"])


def test_an_option_below_a_plain_value_is_refused() -> None:
    """Such as `--workload.arrivals 3 --workload.arrivals.kind gamma`."""
    with pytest.raises(UserError, match=r"workload\.arrivals"):
        split_options(["--workload.arrivals", "3", "--workload.arrivals.kind", "gamma"])


MERGED: dict[str, tuple[dict[str, Any], dict[str, Any], dict[str, Any]]] = {
    "keys are put on top": (
        {"policy": {"kind": "static", "max_batch_size": 4}, "seed": 1},
        {"policy": {"max_batch_size": 8}, "engine": {"block_size": 2}},
        {
            "policy": {"kind": "static", "max_batch_size": 8},
            "seed": 1,
            "engine": {"block_size": 2},
        },
    ),
    "another kind starts afresh": (
        {"policy": {"kind": "static", "max_batch_size": 4}},
        {"policy": {"kind": "window-pull", "max_wait_ms": 5}},
        {"policy": {"kind": "window-pull", "max_wait_ms": 5}},
    ),
    "the same kind does not": (
        {"policy": {"kind": "static", "max_batch_size": 4}},
        {"policy": {"kind": "static", "drop_finished": True}},
        {"policy": {"kind": "static", "max_batch_size": 4, "drop_finished": True}},
    ),
    "a bare name is a kind": (
        {"policy": "static"},
        {"policy": {"max_batch_size": 8}},
        {"policy": {"kind": "static", "max_batch_size": 8}},
    ),
    "sections within sections": (
        {"measure": {"warmup_s": 1, "goodput": {"ttft_ms": 1}}},
        {"measure": {"goodput": {"tpot_ms": 2}}},
        {"measure": {"warmup_s": 1, "goodput": {"ttft_ms": 1, "tpot_ms": 2}}},
    ),
    "a file replaces a name": (
        {"cost": {"gpu": "h100", "model": "qwen3-8b", "dtype": "fp8", "tp": 2}},
        {"cost": {"profile": "a.npz", "architecture": "b.json"}},
        {"cost": {"tp": 2, "profile": "a.npz", "architecture": "b.json"}},
    ),
    "a name replaces a file": (
        {"cost": {"profile": "a.npz", "architecture": "b.json", "tp": 2}},
        {"cost": {"gpu": "h100", "model": "qwen3-8b"}},
        {"cost": {"tp": 2, "gpu": "h100", "model": "qwen3-8b"}},
    ),
    "no file replaces nothing": (
        {"cost": {"gpu": "h100"}},
        {"cost": {"profile": None}},
        {"cost": {"gpu": "h100", "profile": None}},
    ),
    "a value replaces a section": (
        {"policy": {"kind": "static"}},
        {"policy": "none"},
        {"policy": "none"},
    ),
}


@pytest.mark.parametrize("case", MERGED)
def test_merging(case: str) -> None:
    base, over, expected = MERGED[case]
    kept = repr(base), repr(over)
    assert merge(base, over) == expected
    assert (repr(base), repr(over)) == kept  # neither is changed


def test_short_options_stand_for_keys() -> None:
    found = shorthands(
        **NOTHING
        | {
            "gpu": "a100",
            "model": "qwen3-32b",
            "model_config": Path("config.json"),
            "num_requests": "50",
            "request_rate": "2",
            "goodput": ("ttft:500", "tpot:50"),
            "seed": "7",
            "workload": {"name": "demo-chat"},
        }
    )
    assert found == {
        "cost": {"gpu": "a100", "model": "qwen3-32b", "architecture": "config.json"},
        "workload": {"num_requests": "50", "request_rate": "2"},
        "measure": {"goodput": {"ttft_ms": "500", "tpot_ms": "50"}},
        "seed": "7",
    }
    assert shorthands(**NOTHING) == {}


def test_the_rate_of_a_synthetic_workload_is_that_of_its_arrivals() -> None:
    workload = {"arrivals": {"kind": "gamma", "cv": 2}}
    found = shorthands(**NOTHING | {"request_rate": "2", "workload": workload})
    assert found == {"workload": {"arrivals": {"request_rate": "2"}}}


def test_a_trace_brings_its_own_rate() -> None:
    options = {"trace": Path("a.csv"), "request_rate": "2", "workload": {"arrivals": {}}}
    assert shorthands(**NOTHING | options) == {
        "workload": {"kind": "trace", "path": "a.csv", "request_rate": "2"}
    }


@pytest.mark.parametrize("words", [["ttft:500", "tpot:50"], ["ttft:500 tpot:50"]])
def test_objectives_may_be_words_or_one_string(words: list[str]) -> None:
    assert parse_goodput(words) == {"ttft_ms": "500", "tpot_ms": "50"}


@pytest.mark.parametrize("word", ["ttft", "itl:5", "500", "ttft=500"])
def test_an_objective_names_a_latency_and_a_limit(word: str) -> None:
    with pytest.raises(UserError, match="expected ttft:MS, tpot:MS or e2el:MS"):
        parse_goodput([word])


def test_a_flag_works_on_a_file_that_holds_the_kind() -> None:
    data = {"policy": {"kind": "window-pull", "max_batch_size": 4}}
    _, settings = split_options(["--policy.max-wait-ms", "20"])
    spec = RunSpec.from_dict(merge(data, settings))
    assert spec == RunSpec(policy={"kind": "window-pull", "max_batch_size": 4, "max_wait_ms": 20})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--policy.max-num-seqs", "4"),
        ("--cost.gpu", "a100"),
        ("--workload.request-rate", "2"),
        ("--measure.warmup-s", "1"),
    ],
)
def test_a_flag_changes_one_key_of_the_default(option: str, value: str) -> None:
    _, settings = split_options([option, value])
    spec = RunSpec.from_dict(merge(RunSpec().to_dict(), settings))
    section, key = option.removeprefix("--").replace("-", "_").split(".")
    default = RunSpec().to_dict()
    changed = getattr(getattr(spec, section), key)
    assert changed == type(changed)(value)
    default[section][key] = changed
    assert spec == RunSpec.from_dict(default)


def test_a_file_that_cannot_be_read_is_the_users_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.yaml: cannot be read: No such file"):
        read_text(tmp_path / "none.yaml")
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        read_text(tmp_path)
    path = tmp_path / "latin.yaml"
    path.write_bytes(b"policy: caf\xe9")
    with pytest.raises(UserError, match=r"is not UTF-8 text \(byte 11\)"):
        read_text(path)
