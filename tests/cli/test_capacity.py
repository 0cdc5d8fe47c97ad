"""`batchlab capacity`: tables, cache, exit codes, messages."""

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.cli.process import Command

BASE = (
    "capacity", "--cost.kind", "fixed", "--cost.step-ms", "1", "--num-requests", "60",
    "--seeds", "3", "--max-seeds", "6", "--tolerance", "0.2",
)  # fmt: skip
RANGE = ("--low", "0.5", "--high", "64")


def test_the_capacity_of_several_policies_is_a_table(quick: Command, tmp_path: Path) -> None:
    command = (*BASE, *RANGE, "--goodput", "ttft:500", "--slo", "p90_ttft_ms<=600",
               "--grid", "policy=none,orca", "max_bs=2", "-o", "c",
               "--figure", "c.png", "--rates", "1")  # fmt: skip
    done = quick(*command)
    assert done.code == 0, done.out + done.err
    head = "Highest request rate (per s) with which slo_attainment >= 0.9 and p90_ttft_ms <= 600"
    assert done.out.splitlines()[0] == f"{head} [ttft <= 500 ms]"
    table = pd.read_csv(tmp_path / "c" / "capacity.csv")
    assert list(table["policy"]) == ["none", "orca"]
    assert list(table["max_bs"].fillna(0)) == [0, 2]
    assert list(table["capacity"]) == sorted(table["capacity"])
    assert not (table["meets"] > table["misses"]).any()
    curve = pd.read_csv(tmp_path / "c" / "curve.csv")
    assert (curve["request_rate"] == 1).sum() == 2
    assert (tmp_path / "c.png").stat().st_size > 10_000
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "c" / "points").iterdir()}
    again = quick(*command)
    assert again.out == done.out
    assert {path: path.stat().st_mtime_ns for path in files} == files  # nothing was run again
    other = quick(*command, "--attainment", "0.5")
    assert "exists already and holds another capacity" in other.message()


def test_the_answer_is_also_json(quick: Command) -> None:
    done = quick(*BASE, *RANGE, "--slo", "p50_ttft_ms<=500", "--policy.kind", "none", "--json")
    data = json.loads(done.out)
    assert data["objectives"] == ["p50_ttft_ms <= 500"]
    assert data["capacity"][0]["status"] == "found"
    assert "meets" in {probe["verdict"] for probe in data["probes"]}


def test_never_met_is_said_and_is_an_exit_code(quick: Command) -> None:
    done = quick(*BASE, *RANGE, "--slo", "p50_ttft_ms<=0.1")
    assert done.code == 1
    assert "meets the SLOs nowhere between 0.5 and 1." in done.out
    assert "never met" in done.out
    always = quick(*BASE, *RANGE, "--slo", "p50_ttft_ms<=1e9")
    assert always.code == 0
    assert "meets the SLOs even up to 64, the end of the range." in always.out


@pytest.mark.slow
def test_the_fewest_replicas_are_found(quick: Command) -> None:
    done = quick(*BASE[:-4], "--find", "replicas", "--policy.kind", "none", "--rate", "9",
                 "--slo", "p50_queue_ms<=100", "--high", "16")  # fmt: skip
    assert done.code == 0, done.err
    assert done.out.startswith(["Fewest replicas", " meets p50_queue_ms <= 100"][0])


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no objective: give --goodput ttft:500 tpot:50 or --slo METRIC<=NUMBER"),
        (["--goodput", "ttft"], "--goodput ttft: expected ttft:MS, tpot:MS or e2el:MS"),
        (["--goodput", "ttft:fast"], "measure.goodput.ttft_ms: 'fast'"),
        (["--slo", "p99_tft_ms<=1"], "--slo p99_tft_ms<=1: no metric 'p99_tft_ms'; nearest: p99"),
        (["--goodput", "ttft:1", "--attainment", "90"], "--attainment 90: expected a fraction"),
        (["--slo", "p50_ttft_ms<=1", "--low", "-1"], "--low -1, --start 1, --high 1000: expected"),
        (["--slo", "p99_ttft_ms<=1"], "p99_ttft_ms: has no value with 60 requests; raise --num"),
        (["--slo", "p50_ttft_ms<=1", "--grid", "request_rate=1,2"], "axis request_rate: is what"),
        (["--slo", "p50_ttft_ms<=1", "--rates", "1,x"], "--rates 1,x: expected numbers above 0"),
        (
            ["--slo", "p50_ttft_ms<=1", "--find", "replicas", "--low", "1.5"],
            "--start, --low, --high: expected whole numbers of replicas",
        ),
    ],
)
def test_a_wrong_question_is_refused(quick: Command, words: list[str], message: str) -> None:
    done = quick(*BASE, *words)
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith(f"batchlab: error: {message}")
    assert done.out == ""
