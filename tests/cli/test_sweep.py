"""`batchlab sweep`: points, resume, failures, and messages."""

import hashlib
import json
import re
import resource
import subprocess
import time
from pathlib import Path

import pandas as pd
import pytest

from tests.cli.process import PROGRAM, Command, environment

MACHINE = ("--cost.kind", "fixed", "--cost.step-ms", "10", "--policy.kind", "window-pull")
BASE = (*MACHINE, "--workload.num-requests", "40")
GRID = ("--grid", "max_wait_ms=0,200", "max_batch_size=2,8")


def test_every_point_and_seed_is_a_row(quick: Command, tmp_path: Path) -> None:
    done = quick("sweep", *BASE, *GRID, "--seeds", 2, "-o", "s")
    assert done.code == 0, done.err
    runs = pd.read_parquet(tmp_path / "s" / "runs.parquet")
    assert len(runs) == 8
    assert set(zip(runs["max_wait_ms"], runs["max_batch_size"], strict=True)) == {
        (wait, size) for wait in (0, 200) for size in (2, 8)
    }
    summary = pd.read_csv(tmp_path / "s" / "summary.csv")
    assert len(summary) == 4
    assert (summary["mean_batch_size_ci_low"] <= summary["mean_batch_size"]).all()
    assert set(runs["workload.name"]) == {"azure-conv-2023"}
    assert set(runs["cost.step_ms"]) == {10}
    realised = runs.groupby("replication")["realised_rate"].nunique()
    assert list(realised) == [1, 1]  # all points meet the same requests
    assert done.out.count("window-pull") == 4


def test_an_interrupted_sweep_goes_on_and_ends_in_the_same_bytes(
    quick: Command, tmp_path: Path
) -> None:
    command = ("sweep", *BASE, *GRID, "-o", "s")
    whole = quick(*command)
    files = sorted((tmp_path / "s" / "points").iterdir())
    before = {path.name: path.read_bytes() for path in files}
    runs = (tmp_path / "s" / "runs.parquet").read_bytes()
    files[0].unlink()
    files[1].write_text("{ cut off")
    again = quick(*command)
    assert (again.code, again.out) == (0, whole.out)
    assert {path.name: path.read_bytes() for path in files} == before
    assert (tmp_path / "s" / "runs.parquet").read_bytes() == runs
    assert "2 of 4 runs are done already" in again.err


def test_a_sweep_says_first_how_much_it_is_and_how_long_it_takes(quick: Command) -> None:
    done = quick("sweep", *BASE, *GRID, "--seeds", 3, "-o", "s")
    first, second, *_ = done.err.splitlines()
    assert first == "4 points x 3 seeds = 12 runs"
    assert re.fullmatch(
        r"sweep: about \d+ s for 9 runs on 1 worker, at the [\d,]+ requests/s of the first 3 runs",
        second,
    )
    again = quick("sweep", *BASE, *GRID, "--seeds", 3, "-o", "s")
    assert "12 of 12 runs are done already" in again.err
    assert "about" not in again.err


def test_other_data_are_other_runs(quick: Command, tmp_path: Path) -> None:
    trace = tmp_path / "t.csv"
    command = ("sweep", "--trace", "t.csv", "--cost.kind", "fixed", "--cost.step-ms", 1, "-o", "s")
    rows = "".join(f"{i},10,5\n" for i in range(30))
    trace.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
    assert quick(*command).code == 0
    trace.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}40,10,5\n")
    again = quick(*command)
    assert again.code == 0, again.err
    assert "are done already" not in again.err
    assert list(pd.read_parquet(tmp_path / "s" / "runs.parquet")["num_requests"]) == [31]
    assert len(list((tmp_path / "s" / "points").iterdir())) == 1
    digest = json.loads((tmp_path / "s" / "inputs.json").read_text())["t.csv"]
    assert digest == hashlib.sha256(trace.read_bytes()).hexdigest()


def test_a_file_may_say_what_varies_and_the_sweep_leaves_one(
    quick: Command, tmp_path: Path
) -> None:
    (tmp_path / "s.yaml").write_text("""
workload: {name: azure-conv-2023, num_requests: 30}
cost: {kind: fixed, step_ms: 10}
sweep:
  seeds: 2
  grid:
    policy: [vllm-v1, {kind: window-pull, max_wait_ms: 5}]
    workload: [azure-conv-2023, azure-code-2023]
""")
    done = quick("sweep", "s.yaml", "-o", "s")
    assert done.code == 0, done.err
    runs = pd.read_parquet(tmp_path / "s" / "runs.parquet")
    assert len(runs) == 8
    assert set(runs["policy"]) == {"vllm-v1", "window-pull max_wait_ms=5"}
    assert set(runs["num_requests"]) == {30}
    again = quick("sweep", "s/spec.yaml", "-o", "t")
    assert again.out == done.out.replace("Results in s", "Results in t")
    assert (tmp_path / "s" / "runs.parquet").read_bytes() == (
        tmp_path / "t" / "runs.parquet"
    ).read_bytes()
    fewer = quick("sweep", "s.yaml", "--grid", "policy=none", "--seeds", "1", "--dry-run")
    assert "2 points x 1 seeds = 2 runs" in fewer.err


def test_a_sweep_goes_on_after_its_process_was_killed(quick: Command, tmp_path: Path) -> None:
    """What was finished is there, whole, and is not done again."""
    sizes = ",".join(map(str, range(1, 31)))
    words = ["sweep", *MACHINE, "--num-requests", "150", "--grid", f"max_batch_size={sizes}"]
    process = subprocess.Popen([PROGRAM, *words, "-o", "s"], cwd=tmp_path, env=environment(),
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    points = tmp_path / "s" / "points"
    while not points.exists() or len(list(points.glob("[!.]*.json"))) < 5:
        time.sleep(0.02)
    process.kill()
    process.wait()
    kept = {path: path.stat().st_mtime_ns for path in points.glob("[!.]*.json")}
    assert 5 <= len(kept) < 30
    assert all("metrics" in json.loads(path.read_text()) for path in kept)
    done = quick(*words, "-o", "s")
    assert f"{len(kept)} of 30 runs are done already" in done.err
    assert {path: path.stat().st_mtime_ns for path in kept} == kept
    assert len(list(points.iterdir())) == 30


def test_a_full_disk_leaves_what_is_whole(quick: Command, tmp_path: Path) -> None:
    command = ("sweep", *BASE, *GRID, "-o", "s")
    assert quick(*command).code == 0
    before = {path.name: path.read_bytes() for path in (tmp_path / "s" / "points").iterdir()}
    first = next(iter(before))
    (tmp_path / "s" / "points" / first).unlink()
    limit = (1024, 1024)  # bytes in a file, fewer than a row has
    done = subprocess.run(
        [PROGRAM, *map(str, command)], cwd=tmp_path, env=environment(), capture_output=True,
        text=True, check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, limit),
    )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith(f"batchlab: error: s/points/{first}: cannot be")
    rest = {path.name: path.read_bytes() for path in (tmp_path / "s" / "points").iterdir()}
    assert rest == {name: data for name, data in before.items() if name != first}


def test_workers_change_no_byte(batchlab: Command, tmp_path: Path) -> None:
    for jobs in (1, 2):
        done = batchlab("sweep", *BASE, *GRID, "--jobs", jobs, "-o", f"s{jobs}")
        assert done.code == 0, done.err
    one, two = (tmp_path / name / "runs.parquet" for name in ("s1", "s2"))
    assert one.read_bytes() == two.read_bytes()


def test_an_axis_that_means_nothing_to_a_policy_collapses(quick: Command) -> None:
    done = quick(
        "sweep", *BASE, "--grid", "policy=none,window-pull", "max_wait_ms=0,5", "--dry-run"
    )
    assert done.out.splitlines() == [
        "policy=none",
        "policy=window-pull  max_wait_ms=0",
        "policy=window-pull  max_wait_ms=5",
    ]


def test_lists_may_vary_together(quick: Command) -> None:
    done = quick("sweep", *BASE, "--zip", "max_wait_ms=0,5", "max_batch_size=1,2", "--dry-run")
    assert done.out.splitlines() == [
        "max_wait_ms=0  max_batch_size=1",
        "max_wait_ms=5  max_batch_size=2",
    ]


def test_points_may_be_listed(quick: Command, tmp_path: Path) -> None:
    points = [{"max_wait_ms": 5}, {"max_batch_size": 3}]
    (tmp_path / "p.json").write_text(json.dumps(points))
    done = quick("sweep", *BASE, "--points", "p.json", "--dry-run")
    assert done.out.splitlines() == ["max_wait_ms=5", "max_batch_size=3"]


def test_a_failing_point_is_a_row_and_the_others_go_on(quick: Command, tmp_path: Path) -> None:
    done = quick("sweep", *BASE, "--grid", "num_blocks=1,100000", "-o", "s")
    assert done.code == 3
    failures = pd.read_parquet(tmp_path / "s" / "failures.parquet")
    assert list(failures["num_blocks"]) == [1]
    assert len(pd.read_parquet(tmp_path / "s" / "runs.parquet")) == 1


def test_a_folder_belongs_to_one_sweep(quick: Command) -> None:
    assert quick("sweep", *BASE, "--grid", "max_batch_size=2", "-o", "s").code == 0
    other = quick("sweep", *BASE, "--grid", "max_batch_size=3", "-o", "s")
    assert other.code == 2
    assert "exists already and holds another sweep" in other.err
    assert quick("sweep", *BASE, "--grid", "max_batch_size=3", "-o", "s", "--force").code == 0


def test_more_points_than_wanted_have_to_be_confirmed(quick: Command) -> None:
    words = ("sweep", *BASE, "--grid", "seed=1,2,3", "--max-points", 2, "-o", "s")
    assert quick(*words).code == 2
    assert quick(*words, "--yes").code == 0


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("grid: {max_wait_ms: []}", "axis max_wait_ms: expected at least one value"),
        ("grd: {seed: [1]}", "s.yaml: sweep: grd: no such parameter; nearest: grid"),
        ("grid: {seed: 1}", "s.yaml: sweep: grid.seed: 1: should be a valid list"),
    ],
)
def test_a_wrong_section_is_refused(
    quick: Command, tmp_path: Path, section: str, message: str
) -> None:
    (tmp_path / "s.yaml").write_text(f"sweep: {{{section}}}")
    done = quick("sweep", "s.yaml")
    assert done.code == 2
    assert done.message().startswith(message)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ["--grid", "max_wait=0"],
            "axis max_wait: no key of that name applies; nearest: max_wait_ms",
        ),
        (["--grid", "max_wait_ms"], "--grid max_wait_ms: expected NAME=VALUE,VALUE,..."),
        (["--grid", "max_wait_ms="], "--grid max_wait_ms=: axis max_wait_ms has an empty value"),
        (["--grid", "max_wait_ms=-1"], "max_wait_ms=-1: policy.max_wait_ms: '-1'"),
        (["--zip", "seed=1,2", "max_wait_ms=1"], "--zip: the lists differ in length"),
        (["--points", "none.json"], "none.json: cannot be read"),
        (["--grid", "max_wait_ms=1", "max_wait_ms=2"], "--grid: axis max_wait_ms is given twice"),
        (["--grid", "seed=1", "--zip", "seed=1"], "axis seed: given twice"),
        (["--grid", "seed=1,2,3", "--max-points", "2"], "3 points are more than --max-points 2"),
        (
            ["--grid", "workload=azure-conv"],
            "workload=azure-conv: workload.name: got 'azure-conv', not the name of a preset",
        ),
        (["--grid", "policy=windw"], "policy=windw: policy: unknown policy 'windw'; nearest: win"),
        (["--seeds", "0"], "--seeds 0: expected at least 1"),
        (["--jobs", "0"], "--jobs 0: expected at least 1"),
        (["--jobs", "2", "--scheduler", "tcp://x:1"], "--jobs: does not apply with --scheduler"),
    ],
)
def test_a_wrong_sweep_is_refused(quick: Command, words: list[str], message: str) -> None:
    done = quick("sweep", *BASE, *words)
    assert done.code == 2
    assert done.message().startswith(message)
