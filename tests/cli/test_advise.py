"""`batchlab advise`: text, files, equal output on any number of jobs, messages."""

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.cli.process import Command

BASE = ("advise", "--cost.kind", "fixed", "--cost.step-ms", "1", "--num-requests", "20",
        "--seeds", "2", "--search-seeds", "1", "--request-rate", "2")  # fmt: skip


def test_advice_is_printed_and_leaves_files(quick: Command, tmp_path: Path) -> None:
    command = (*BASE, "--goodput", "ttft:500", "tpot:50")
    done = quick(*command, "-o", "a")
    assert done.code == 0, done.err
    assert "VERDICT: batching is " in done.out
    assert "advise, search" in done.err
    answer = json.loads((tmp_path / "a" / "advice.json").read_text())
    assert answer["objectives"] == "ttft <= 500 ms and tpot <= 50 ms for 90% of the requests"
    assert (tmp_path / "a" / "advice.txt").read_text() == done.out
    assert {"search", "as it is"} < set(pd.read_csv(tmp_path / "a" / "settings.csv")["stage"])
    again = quick("run", "a/recommended.yaml", "--json")
    assert again.code == 0, again.err
    assert "exists already" in quick(*command, "-o", "a").message()


@pytest.mark.slow
def test_advice_is_the_same_on_any_number_of_jobs(batchlab: Command) -> None:
    command = (*BASE, "--goodput", "ttft:500", "tpot:50")
    first = batchlab(*command)
    assert first.code == 0, first.err
    assert batchlab(*command, "--jobs", "2").out == first.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "no objective: give --goodput ttft:500 tpot:50"),
        (("--goodput", "ttfft:5"), "--goodput ttfft:5: expected ttft:MS, tpot:MS or e2el:MS"),
        (("--goodput", "ttft:500", "--attainment", "1.5"),
         "--attainment 1.5: expected a fraction between 0 and 1"),
        (("--goodput", "ttft:500", "--seeds", "1"), "--seeds 1: expected at least 2"),
        (("--goodput", "ttft:500", "--load-change", "1"),
         "--load-change 1: expected a fraction between 0 and 1"),
        (("--goodput", "ttft:500", "--jobs", "0"), "--jobs 0: expected at least 1"),
        (("--goodput", "ttft:500", "--trace", "none.csv"), "none.csv"),
    ],
)  # fmt: skip
def test_wrong_input_is_one_line(quick: Command, words: tuple[str, ...], message: str) -> None:
    done = quick(*BASE[:1], *words)
    assert done.code == 2
    assert message in done.message()
