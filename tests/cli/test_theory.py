"""`batchlab theory`: the table, the files, and what it refuses."""

import csv
import json
from pathlib import Path

import pytest

from simulator.theory import compare
from tests.cli.process import Command

ONE = ("theory", "--only", "M/D/1 as none: rate 0.5")


def test_the_table_names_case_theory_interval_and_rule_and_the_file_has_the_rows(
    quick: Command, tmp_path: Path
) -> None:
    file = tmp_path / "rows.csv"
    outcome = quick(*ONE, "-o", str(file))
    assert outcome.code == 0
    lines = outcome.out.splitlines()
    assert lines[0].split() == [
        *("case", "policy", "parameters", "value", "theory", "simulated", "+/-", "dev.", "%"),
        *("runs", "inside"),
    ]
    assert lines[2].startswith("M/D/1   none      rate 0.5, S 1  W_q")
    assert lines[2].endswith("yes")
    assert "99.9 % t interval" in outcome.out
    rows = list(csv.DictReader(file.read_text(encoding="utf-8").splitlines()))
    assert [row["quantity"] for row in rows] == ["W_q", "W", "busy"]
    assert tuple(rows[0]) == compare.COLUMNS


@pytest.mark.slow
def test_another_seed_gives_other_numbers_for_the_same_theory(quick: Command) -> None:
    rows, other = (json.loads(quick(*ONE, "--json", "--seed", seed).out) for seed in "05")
    assert [row["theory"] for row in other] == [row["theory"] for row in rows]
    assert [row["simulated"] for row in other] != [row["simulated"] for row in rows]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--only", "M/M/7"), "no case of that name; nearest: M/M/c"),
        (("--seed", "-1"), "--seed -1: expected at least 0"),
        (("--jobs", "0"), "--jobs 0: expected at least 1"),
        (("-o", "rows.txt"), "expected a name that ends in .csv or .json"),
        (("-o", "no/such/folder/rows.csv"), "expected a file in a folder that exists"),
    ],
)
def test_wrong_input_is_refused_in_one_line(
    quick: Command, arguments: tuple[str, ...], said: str
) -> None:
    outcome = quick("theory", *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert said in outcome.err
    assert outcome.err.count("\n") == 1
