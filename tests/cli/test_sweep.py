"""`batchlab sweep`: points, resume, failures, and messages."""

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.cli.process import Command

BASE = (
    "--cost.kind", "fixed", "--cost.step-ms", "10", "--workload.num-requests", "40",
    "--policy.kind", "window-pull",
)  # fmt: skip
GRID = ("--grid", "max_wait_ms=0,200", "max_batch_size=2,8")


def test_every_point_and_seed_is_a_row(quick: Command, tmp_path: Path) -> None:
    done = quick("sweep", *BASE, *GRID, "--seeds", 2, "-o", "s")
    assert done.code == 0, done.err
    runs = pd.read_parquet(tmp_path / "s" / "runs.parquet")
    assert len(runs) == 8
    assert set(zip(runs["max_wait_ms"], runs["max_batch_size"], strict=True)) == {
        (wait, size) for wait in ("0", "200") for size in ("2", "8")
    }
    summary = pd.read_csv(tmp_path / "s" / "summary.csv")
    assert len(summary) == 4
    assert (summary["mean_batch_size_ci_low"] <= summary["mean_batch_size"]).all()
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
    assert list(failures["num_blocks"]) == ["1"]
    assert len(pd.read_parquet(tmp_path / "s" / "runs.parquet")) == 1


def test_a_folder_belongs_to_one_sweep(quick: Command) -> None:
    assert quick("sweep", *BASE, "--grid", "max_batch_size=2", "-o", "s").code == 0
    other = quick("sweep", *BASE, "--grid", "max_batch_size=3", "-o", "s")
    assert other.code == 2
    assert "exists already" in other.err
    assert quick("sweep", *BASE, "--grid", "max_batch_size=3", "-o", "s", "--force").code == 0


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
        (["--grid", "seed=1,2,3", "--max-points", "2"], "3 points are more than --max-points 2"),
        (["--seeds", "0"], "--seeds and --jobs: expected at least 1"),
    ],
)
def test_a_wrong_sweep_is_refused(quick: Command, words: list[str], message: str) -> None:
    done = quick("sweep", *BASE, *words)
    assert done.code == 2
    assert done.message().startswith(message)
