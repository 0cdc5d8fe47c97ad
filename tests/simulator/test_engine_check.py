import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from simulator.cost import StepLinearCost, StepWork, read_step_profile
from simulator.engine_check import check_run, levels, mechanics, slowness_of, table_lines, to_dict
from simulator.engine_run import EngineRun, find_runs, read_run, simulate_run
from simulator.errors import UserError
from simulator.step_rows import StepLog

PROFILE = read_step_profile("cpu")
CONFIG = {
    "max_num_batched_tokens": 64,
    "max_num_seqs": 4,
    "max_num_active_seqs": None,
    "max_model_len": 4096,
    "block_size": 16,
    "num_gpu_blocks": 40,
    "enable_chunked_prefill": True,
    "long_prefill_token_threshold": 0,
    "long_prefill_token_threshold_adaptive": False,
    "policy": "fcfs",
    "enable_prefix_caching": False,
    "watermark": 0.0,
    "scheduler_reserve_full_isl": True,
    "async_scheduling": False,
}
NUM_REQUESTS, PAUSE_MS = 12, 0.08


class Recording(StepLinearCost):
    """The cost model of a run to be recorded: keeps what the steps held."""

    def __init__(self, slowness: float) -> None:
        super().__init__(PROFILE, slowness, pauses=False)
        self.rows: list[dict[str, float]] = []

    def step_time(self, work: StepWork) -> float:
        time = super().step_time(work)
        row = {
            "n_prefill": len(work.chunks),
            "prefill_tokens": work.num_tokens - work.num_decodes,
            "prefill_pairs": int(work.prefill_pairs),
            "n_decode": work.num_decodes,
            "decode_ctx": work.context_tokens,
            "wall_ms": time * 1e3,
        }
        self.rows.append(row)
        return time + PAUSE_MS / 1e3


def record(folder: Path, slowness: float = 1.25) -> Path:
    """Write the files of a run that our own engine served; return their stem."""
    rng = np.random.default_rng(3)
    arrivals = np.cumsum(rng.exponential(90.0, NUM_REQUESTS))
    arrivals[6:] += 4000.0  # idle in between
    prompts, outputs = rng.integers(20, 90, NUM_REQUESTS), rng.integers(1, 30, NUM_REQUESTS)
    run = EngineRun(
        "made", CONFIG, StepLog("", "", pd.DataFrame()), arrivals,
        np.zeros(0, np.int64), np.zeros(0), prompts, outputs, (),
    )  # fmt: skip
    cost = Recording(slowness)
    tokens = simulate_run(run, cost, arrivals / 1e3, fast=False)
    steps = pd.DataFrame(cost.rows)
    # starts: the end of the step before, or the arrival that ends an idle time
    now, begun, added = 0.0, [], []
    finish = [times[-1] * 1e3 for times in tokens]
    for number, row in enumerate(cost.rows):
        here = [i for i in range(NUM_REQUESTS) if i >= len(added)]
        idle = all(finish[i] <= now + 1e-3 for i in range(len(added)))
        if idle:
            now = max(now, arrivals[here[0]])
        added += [number for i in here if arrivals[i] <= now + 1e-3]
        begun.append(now)
        now += row["wall_ms"] + PAUSE_MS
    steps.insert(0, "t_start_ms", begun)
    steps.insert(0, "step", range(len(steps)))
    steps.to_csv(folder / "made.steps.csv", index=False)
    requests: list[dict[str, Any]] = [{"head": {}}]
    for i in range(NUM_REQUESTS):
        out = [round(time * 1e3 - PAUSE_MS * 0.75, 3) for time in tokens[i]]
        requests.append(
            {"i": i, "arrival_ms": float(arrivals[i]), "prompt": int(prompts[i]),
             "out": int(outputs[i]), "add_cost_ms": 0.0, "tok": out}
        )  # fmt: skip
    (folder / "made.requests.jsonl").write_text("\n".join(map(json.dumps, requests)))
    header = {
        "format": "vllm-sched-golden/1",
        "config": CONFIG,
        "arrival_time": "distinct",
        "requests": [
            [step, int(prompt), int(out), 0, None, None]
            for step, prompt, out in zip(added, prompts, outputs, strict=True)
        ],
    }
    packed = gzip.compress("\n".join(map(json.dumps, [header, {"end": 1}])).encode(), mtime=0)
    (folder / "made.sched.jsonl.gz").write_bytes(packed)
    (folder / "made.head.json").write_text(json.dumps({"clock": "wall"}))
    return folder / "made"


@pytest.fixture
def stem(tmp_path: Path) -> Path:
    return record(tmp_path)


def test_a_run_of_our_own_is_reproduced(stem: Path) -> None:
    run = read_run(stem)
    check = check_run(run, PROFILE)
    assert check.different_step is None
    assert check.mechanics_ms < 0.002
    assert check.slowness == pytest.approx(1.25, rel=1e-9)
    assert all(abs(check.error(name)) < 0.03 for name in ("ttft", "tpot", "e2e"))
    assert all(level.reached for level in levels([check]))


def test_a_token_that_comes_late_is_noticed(stem: Path) -> None:
    run = read_run(stem)
    run.token_ms[4][0] -= 0.7
    furthest, different = mechanics(run)
    assert (furthest, different) == (pytest.approx(0.7, abs=0.002), None)
    assert not levels([check_run(run, PROFILE)])[0].reached


def test_a_step_that_held_something_else_is_named(stem: Path) -> None:
    run = read_run(stem)
    run.steps.table.loc[9, "n_decode"] += 1
    assert mechanics(run)[1] == 9


def test_a_request_added_at_another_step_shows_in_the_tokens(stem: Path) -> None:
    run = read_run(stem)
    run.arrival_ms[4] = run.arrival_ms[3]
    furthest, _ = mechanics(run)
    assert furthest > 1.0


def test_slowness_is_that_of_the_model_under_test(stem: Path) -> None:
    run = read_run(stem)
    run.steps.table["time_ms"] *= 2
    assert slowness_of(run, PROFILE) == pytest.approx(2.5)


def test_the_levels_take_the_median_and_nine_of_ten(stem: Path) -> None:
    check = check_run(read_run(stem), PROFILE)
    shifted = [
        type(check)(
            f"r{n}", 0.1, None, 1.0, {"ttft": 100.0, "tpot": 10.0, "e2e": 100.0},
            {"ttft": 100.0 - n, "tpot": 10.0, "e2e": 100.0 + n},
        )
        for n in range(10)
    ]  # fmt: skip
    found = {level.name: level.found for level in levels(shifted)}
    assert found["mean E2E, median run"] == pytest.approx(0.04)
    assert found["mean E2E, nine of ten"] == pytest.approx(0.08)
    assert found["mean TTFT, nine of ten"] == pytest.approx(0.08)
    verdicts = [str(level).split()[-1] for level in levels(shifted)]
    assert verdicts == ["PASS", "FAIL", "FAIL", "PASS", "PASS", "PASS", "PASS"]
    assert len(table_lines(shifted)) == 11
    assert json.loads(json.dumps(to_dict(shifted)))["levels"][1]["reached"] is False


def test_runs_are_found_by_any_of_their_files(stem: Path, tmp_path: Path) -> None:
    files = [tmp_path / "made.steps.csv", tmp_path / "made.sched.jsonl.gz", tmp_path]
    assert find_runs(files) == [stem]
    with pytest.raises(UserError, match="no file of a run"):
        find_runs([tmp_path / "made.txt"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no runs"):
        find_runs([tmp_path / "empty"])


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


BROKEN = {
    "no head": ("made.head.json", lambda text: None, "cannot read run: No such file"),
    "clock": ("made.head.json", lambda text: "{}", "clock None: expected wall or cpu"),
    "head": ("made.head.json", lambda text: "[", "expected a JSON object"),
    "no steps": ("made.steps.csv", lambda text: None, "cannot read steps"),
    "cut": ("made.steps.csv", lambda text: "\n".join(text.splitlines()[:9]), "the file is cut off"),
    "starts": (
        "made.steps.csv",
        lambda text: text.replace("t_start_ms", "t"),
        "column t_start_ms is missing",
    ),
    "fewer": (
        "made.requests.jsonl",
        lambda text: "\n".join(text.splitlines()[:-1]),
        "11 requests: expected 12",
    ),
    "field": (
        "made.requests.jsonl",
        lambda text: text.replace("add_cost_ms", "x"),
        "field 'add_cost_ms' of a request is missing",
    ),
    "token": (
        "made.requests.jsonl",
        lambda text: text.replace('"tok": [', '"tok": [5.0, '),
        "request 0: expected",
    ),
    "early": (
        "made.requests.jsonl",
        lambda text: text.replace('"arrival_ms": 49', '"arrival_ms": 99'),
        "request 11: arrives after step 109, before which it was added",
    ),
    "word": (
        "made.requests.jsonl",
        lambda text: text.replace('"arrival_ms": ', '"arrival_ms": "x", "y": '),
        "a field of a request is no number",
    ),
    "json": ("made.requests.jsonl", lambda text: text[:-5], "not valid JSON"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_damaged_run_is_refused_in_one_line(stem: Path, tmp_path: Path, case: str) -> None:
    name, change, message = BROKEN[case]
    path = tmp_path / name
    text = change(path.read_text(encoding="utf-8"))
    path.unlink()
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError) as caught:
        read_run(stem)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.shared
def test_the_real_engine_on_a_cpu_is_reproduced(shared: Path) -> None:
    stems = find_runs([shared / "goldens" / "vllm_cpu_engine"])
    assert len(stems) == 25
    checks = [check_run(read_run(stem), PROFILE) for stem in stems]
    assert all(check.different_step is None for check in checks)
    found = levels(checks)
    assert len(found) == 7
    assert [str(level) for level in found if not level.reached] == []
