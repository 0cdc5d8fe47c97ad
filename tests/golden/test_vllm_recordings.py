"""Decisions of the real vLLM 0.32 scheduler: ours are the same, every field of every step."""

import gzip
import json
from pathlib import Path

import pytest

import policies.orders
from simulator.errors import UserError
from simulator.vllm_recording import check_recording

SHARED = Path(__file__).resolve().parents[3] / "shared" / "goldens"
SCENARIOS = sorted(SHARED.glob("vllm/*.jsonl.gz"))
ENGINE_RUNS = sorted(SHARED.glob("vllm_cpu_engine/*.sched.jsonl.gz"))
EXAMPLE = {
    "format": "vllm-sched-golden/1",
    "config": {
        "max_num_batched_tokens": 8,
        "max_num_seqs": 4,
        "max_num_active_seqs": None,
        "max_model_len": 64,
        "block_size": 4,
        "num_gpu_blocks": 6,
        "enable_chunked_prefill": True,
        "long_prefill_token_threshold": 0,
        "long_prefill_token_threshold_adaptive": False,
        "policy": "fcfs",
        "enable_prefix_caching": False,
        "watermark": 0.0,
        "scheduler_reserve_full_isl": True,
        "async_scheduling": False,
    },
    "arrival_time": "distinct",
    "requests": [[0, 5, 2, 0, None, None]],
}
STEPS = [
    {"s": 0, "arr": [0], "sch": [[0, 5, 0]], "new": [0], "nw": 0, "kv": [2, 3]},
    {"s": 1, "sch": [0], "nw": 0, "kv": [2, 3], "fin": [0], "kvu": [0, 5]},
]


def write(path: Path, steps: list[dict[str, object]]) -> Path:
    lines = [EXAMPLE, *steps, {"end": 1}]
    path.write_bytes(gzip.compress("\n".join(map(json.dumps, lines)).encode(), mtime=0))
    return path


@pytest.mark.shared
@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.name.split(".")[0])
def test_scenario_is_reproduced_field_by_field(path: Path) -> None:
    assert check_recording(path) is None


@pytest.mark.shared
@pytest.mark.parametrize("path", ENGINE_RUNS, ids=lambda path: path.name.split(".sched")[0])
def test_engine_run_is_reproduced_field_by_field(path: Path) -> None:
    assert check_recording(path) is None


@pytest.mark.shared
def test_no_recording_is_left_out() -> None:
    assert len(SCENARIOS) == 41
    assert len(ENGINE_RUNS) == 25


@pytest.mark.shared
def test_a_broken_rule_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policies.orders.QueueOrder, "victim", lambda self, running: running[0])
    by_number = {path.name[:3]: path for path in SCENARIOS}
    different = [name for name in ("s10", "s17", "s35") if check_recording(by_number[name])]
    assert different == ["s17", "s35"]


def test_a_small_recording_is_equal(tmp_path: Path) -> None:
    assert check_recording(write(tmp_path / "a.jsonl.gz", STEPS)) is None


def test_the_first_difference_is_named(tmp_path: Path) -> None:
    steps = [STEPS[0], STEPS[1] | {"kvu": [1, 4]}]
    path = write(tmp_path / "a.jsonl.gz", steps)
    assert check_recording(path) == "step 1, kvu: recorded [1, 4], simulated [0, 5]"


def test_a_missing_step_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl.gz", STEPS[:1])
    assert check_recording(path) == "recorded 1 steps, simulated 2"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "line 1: expected a header"),
        ("{}", "line 1: expected a header"),
        ("[1]", "line 1: expected a JSON object"),
        ("{", "line 1: not valid JSON"),
        (json.dumps(EXAMPLE), "the file is cut off"),
    ],
)
def test_what_is_no_recording_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(text)
    with pytest.raises(UserError, match=message):
        check_recording(path)
