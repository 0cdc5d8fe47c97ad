"""`batchlab compare`: sources, tables, reuse of runs, messages."""

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.cli.process import Command

MACHINE = ("--cost.kind", "fixed", "--cost.step-ms", "10", "--num-requests", "60")


def test_a_metric_that_moved_is_named_with_its_interval(quick: Command, tmp_path: Path) -> None:
    command = ("compare", "none", "orca", "vllm-v1", *MACHINE, "--seeds", 4, "-o", "c")
    done = quick(*command, "--figure", "c.pdf")
    assert done.code == 0, done.err
    assert done.out.count("A: none") == 2
    rows = pd.read_csv(tmp_path / "c" / "differences.csv").set_index(["specification", "metric"])
    found = rows.loc[("vllm-v1", "p50_e2el_ms")]
    assert found["verdict"] == "better"
    assert found["low"] < found["mean"] < found["high"] < 0
    assert found["mean"] == pytest.approx(found["second"] - found["first"])
    runs = pd.read_parquet(tmp_path / "c" / "runs.parquet")
    assert list(runs["specification"].unique()) == ["none", "orca", "vllm-v1"]
    assert (tmp_path / "c.pdf").read_bytes().startswith(b"%PDF")
    again = quick(*command, "--json")
    assert "12 of 12 runs are done already" in again.err
    data = json.loads(again.out)
    assert data["differences"]["orca"][0]["num_pairs"] == 4


def test_points_of_a_sweep_and_folders_of_runs_are_sources(quick: Command, tmp_path: Path) -> None:
    sizes = ("--policy.kind", "orca", "--grid", "max_bs=1,4")
    assert quick("sweep", *MACHINE, *sizes, "--seeds", 3, "-o", "s").code == 0
    assert quick("run", *MACHINE, "--policy.kind", "orca", "-o", "r").code == 0
    whole = quick("compare", "s", "r", "--seeds", 3, "--metrics", "p50_e2el_ms")
    assert whole.code == 0, whole.err
    assert "6 of 9 runs are done already" in whole.err
    assert "A: s#0\nB: s#1\n" in whole.out
    assert "A: s#0\nB: r\n" in whole.out
    sides = quick("compare", "s#1", "s#0", "--seeds", 2, "--metrics", "p50_e2el_ms", "--json")
    (difference,) = json.loads(sides.out)["differences"]["s#0"]
    assert (difference["num_pairs"], difference["mean"] > 0) == (2, True)
    assert quick("compare", "s#2", "s#0").message() == "s#2: expected a point from 0 to 1 after #"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["none"], "1 specification to compare; expected two or more"),
        (["none", "none"], "none: given twice"),
        (["none", "orka"], "orka: is no file, no folder and no policy (unknown policy 'orka'; nea"),
        (["none", "."], ".: holds no spec.yaml; expected the folder of a run or a sweep"),
        (["none", "seed.yaml"], "seed.yaml: seed 7, but none: seed 0; pairs need the same one"),
        (["none", "orca", "--seeds", "1"], "--seeds 1: expected at least 2, for an interval"),
        (["none", "orca", "--figure", "a.txt"], "--figure a.txt: expected a name that ends in .pn"),
        (["none", "orca", "--figure", "x/a.png"], "--figure x/a.png: there is no folder x"),
        (["none", "orca", "--confidence", "95"], "--confidence 95: expected a number between 0"),
    ],
)
def test_a_wrong_comparison_is_refused(
    quick: Command, tmp_path: Path, words: list[str], message: str
) -> None:
    (tmp_path / "seed.yaml").write_text("seed: 7")
    done = quick("compare", *words)
    assert done.code == 2
    assert done.message().startswith(message)
