"""`--timeout`: an endless policy is a failed run, in every command that does many of them."""

from pathlib import Path

import pandas as pd
import pytest

from tests.cli.process import FAST, Command

POLICY = '''
from pathlib import Path

from policies import Decision, Policy, Trigger, View, VllmV1


class _Endless(Policy):
    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        while True:
            pass


class Sticks(VllmV1):
    """Never comes back with 7 sequences while there is a file of the name `stuck`."""

    def build(self):
        if self.max_num_seqs == 7 and Path("stuck").exists():
            return _Endless()
        return super().build()
'''
STICKS = (*FAST, "--policy.kind", "sticky:Sticks")
LIMIT = ("--timeout", "1")
"""Many times what one of these runs needs on a busy machine."""

SHORT = ("--timeout", "0.5")
SAID = "TimeUp: no end after 1 s of wall-clock time (timeout); the run stood at 0.000000 s of sim"


@pytest.fixture
def stuck(tmp_path: Path) -> Path:
    """Return the file that makes the policy stick; the module lies beside it."""
    (tmp_path / "sticky.py").write_text(POLICY)
    (tmp_path / "stuck").touch()
    return tmp_path / "stuck"


def contents(folder: Path) -> dict[str, bytes]:
    """Return all files but the wall-clock times."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != "timing.json"]
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


@pytest.mark.parametrize(("jobs", "sizes"), [(1, "7,4,5,6,8"), (2, "4,7,5,6,8")])
def test_an_endless_point_of_a_sweep_fails_and_is_tried_again(
    batchlab: Command, quick: Command, tmp_path: Path, stuck: Path, jobs: int, sizes: str
) -> None:
    """It is the first to be timed before the others, or one for a worker."""
    words = ("sweep", *STICKS, "--grid", f"max_num_seqs={sizes}")
    start = quick if jobs == 1 else batchlab
    failed = start(*words, *LIMIT, "--jobs", jobs, "-o", "s", path=tmp_path)
    assert failed.code == 3, failed.err
    message = failed.err.splitlines()[-1]
    assert message.startswith(f"batchlab: a run failed: max_num_seqs=7, replication 0: {SAID}")
    failures = pd.read_parquet(tmp_path / "s" / "failures.parquet")
    assert list(failures["max_num_seqs"]) == [7]
    assert failures["error"][0].startswith(SAID)
    runs = pd.read_parquet(tmp_path / "s" / "runs.parquet")
    assert [str(size) for size in runs["max_num_seqs"]] == sizes.replace("7,", "").split(",")
    assert len(list((tmp_path / "s" / "points").iterdir())) == 4
    stuck.unlink()
    again = quick(*words, *LIMIT, "-o", "s", path=tmp_path)
    assert again.code == 0, again.err
    assert "4 of 5 runs are done already" in again.err
    assert quick(*words, "-o", "whole", path=tmp_path).code == 0
    assert contents(tmp_path / "s") == contents(tmp_path / "whole")


def test_a_comparison_finishes_the_others_and_keeps_them(
    quick: Command, tmp_path: Path, stuck: Path
) -> None:
    words = ("compare", "sticky:Sticks", "vllm-v1", *FAST, "--policy.max-num-seqs", "7",
             "--seeds", "2", "-o", "c", *SHORT)  # fmt: skip
    failed = quick(*words, path=tmp_path)
    assert (failed.code, failed.out) == (3, "")
    message = failed.err.splitlines()[-1]
    assert message.startswith("batchlab: error: specification=sticky:Sticks, replication 0: TimeUp")
    assert len(list((tmp_path / "c" / "points").iterdir())) == 2
    stuck.unlink()
    again = quick(*words, path=tmp_path)
    assert again.code == 0, again.err
    assert "2 of 4 runs are done already" in again.err
    assert "equal" in again.out


def test_a_search_for_the_capacity_says_which_run_took_too_long(
    quick: Command, tmp_path: Path, stuck: Path
) -> None:
    words = ("capacity", *STICKS, "--grid", "max_num_seqs=4,7", "--slo", "p50_ttft_ms<=500",
             "--seeds", "2", "--max-seeds", "2", "--tolerance", "0.5", "--low", "0.5", "--high",
             "64", "-o", "c", *SHORT)  # fmt: skip
    failed = quick(*words, path=tmp_path)
    assert (failed.code, failed.out) == (3, "")
    message = failed.err.splitlines()[-1]
    assert message.startswith("batchlab: error: max_num_seqs=7 request_rate=")
    assert "replication 0: TimeUp: no end after 0.5 s" in message
    assert len(list((tmp_path / "c" / "points").iterdir())) == 2
    stuck.unlink()
    assert quick(*words, path=tmp_path).code == 0


SUITE = """\
seeds: 2
max_seeds: 2
metrics: {mean_ttft_ms: }
base: {cost: {kind: fixed, step_ms: 9}, workload: {name: demo-chat, num_requests: 9}}
scenarios:
  usual: {}
  mine: {spec: {policy: {kind: "sticky:Sticks", max_num_seqs: 7}}}
"""


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_the_gate_judges_the_others(
    batchlab: Command, quick: Command, tmp_path: Path, stuck: Path, jobs: int
) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE)
    call = quick if jobs == 1 else batchlab
    words = ("suite.yaml", "--jobs", jobs, *SHORT)
    failed = call("regress", "record", *words, path=tmp_path)
    assert failed.code == 3
    assert failed.err.splitlines()[-1].startswith(
        "batchlab: error: mine, seed 0: no end after 0.5 s of wall-clock time"
    )
    assert failed.err.endswith("no baseline was written\n")
    stuck.unlink()
    assert call("regress", "record", *words, path=tmp_path).code == 0
    stuck.touch()
    checked = call("regress", "check", *words, path=tmp_path)
    assert checked.code == 3
    assert "**incomplete**: 2 runs failed" in checked.out
    assert "Run failed: mine, seed 1: no end after 0.5 s of wall-clock time" in checked.out
    assert "| identical | usual" in checked.out
    before = (tmp_path / "suite.baseline.yaml").read_bytes()
    refused = call("regress", "accept", *words, "--reason", "none", path=tmp_path)
    assert refused.code == 3
    assert (tmp_path / "suite.baseline.yaml").read_bytes() == before


def test_advice_does_not_leave_out_what_took_too_long(quick: Command, tmp_path: Path) -> None:
    words = ("advise", *FAST, "--goodput", "ttft:500", "--request-rate", "2", "--seeds", "2",
             "--search-seeds", "1", "-o", "a")  # fmt: skip
    done = quick(*words, "--timeout", "0.0001")
    assert (done.code, done.out) == (3, "")
    assert "no end after 0.0001 s of wall-clock time" in done.err.splitlines()[-1]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--timeout", "0"), "timeout 0: expected seconds, greater than 0"),
        (("--timeout", "nan"), "timeout nan: expected seconds, greater than 0"),
        (("--timeout", "1", "--scheduler", "tcp://x:1"), "--timeout: does not apply with --sched"),
    ],
)
@pytest.mark.parametrize(
    "command",
    [
        ("sweep",),
        ("compare", "none", "orca"),
        ("capacity", "--slo", "p50_ttft_ms<=9"),
        ("advise", "--goodput", "ttft:9"),
    ],
)
def test_a_limit_that_cannot_be_kept_is_refused_before_anything_is_run(
    quick: Command, tmp_path: Path, command: tuple[str, ...], words: tuple[str, ...], message: str
) -> None:
    done = quick(*command, *FAST, *words)
    assert done.code == 2
    assert done.message().startswith(message)
    assert list(tmp_path.iterdir()) == []


def test_the_gate_refuses_such_a_limit_as_well(quick: Command, tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE.split("  mine")[0])
    done = quick("regress", "record", "suite.yaml", "--timeout", "-1")
    assert (done.code, done.message()) == (2, "timeout -1: expected seconds, greater than 0")


@pytest.mark.parametrize(
    "command",
    ["run", "sweep", "compare", "capacity", "advise", "regress record", "regress check",
     "regress accept"],
)  # fmt: skip
def test_every_command_calls_it_the_same(quick: Command, command: str) -> None:
    shown = " ".join(quick(*command.split(), "--help").out.split())
    assert "--timeout FLOAT: Let a run fail after so many seconds of wall-clock time" in shown
