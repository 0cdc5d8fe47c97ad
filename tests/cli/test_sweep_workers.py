"""Sweeps whose workers or parent are killed, here and on a Dask cluster: the same bytes."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.cli.process import PROGRAM, Command, environment

pytestmark = pytest.mark.slow

WORDS = (
    "sweep", "--num-requests", "600", "--grid", "max_num_seqs=8,16,32,64", "--seeds", "5",
)  # fmt: skip


SHORT = (
    "sweep", "--num-requests", "150", "--grid", "max_num_seqs=8,16,32,64", "--seeds", "20",
)  # fmt: skip


def start(folder: Path, *words: str, sweep: Sequence[str] = WORDS) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [PROGRAM, *sweep, *words], cwd=folder, env=environment(), text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened"
        time.sleep(0.02)


def kept(folder: Path) -> int:
    return len(list((folder / "points").glob("[!.]*.json")))


def children(process: int) -> list[int]:
    """Return the workers of a process (Linux)."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            parent = int(path.read_text().rpartition(")")[2].split()[1])
            command = (path.parent / "cmdline").read_text()
        except OSError:
            continue
        if parent == process and "loky" in command and "tracker" not in command:
            found.append(int(path.parent.name))
    return found


def is_running(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Do the sweep in one process, undisturbed."""
    folder = tmp_path_factory.mktemp("whole")
    with start(folder, "-o", "s") as process:
        assert process.wait() == 0
    return folder / "s"


def same(one: Path, other: Path) -> bool:
    """Whether two folders are equal, but for the wall clock."""
    names = {str(p.relative_to(one)) for p in one.rglob("*") if p.is_file()} - {"timing.json"}
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in names) and (
        names == {str(p.relative_to(other)) for p in other.rglob("*") if p.is_file()}
        - {"timing.json"}
    )  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="looks for the workers in /proc")
def test_a_killed_worker_is_replaced(whole: Path, tmp_path: Path) -> None:
    with start(tmp_path, "--jobs", "2", "-o", "s") as process:
        wait_for(lambda: kept(tmp_path / "s") >= 6)
        before = kept(tmp_path / "s")
        os.kill(children(process.pid)[0], signal.SIGKILL)
        _, errors = process.communicate()
    assert before < 20
    assert process.returncode == 0, errors
    assert same(whole, tmp_path / "s")


@pytest.mark.skipif(sys.platform != "linux", reason="looks for the workers in /proc")
def test_a_killed_gate_leaves_no_workers(tmp_path: Path) -> None:
    """Not even with a policy that never comes back."""
    (tmp_path / "endless.py").write_text("""
from policies import Policy, PolicySpec


class _Endless(Policy):
    def decide(self, view, trigger=None):
        while True:
            pass


class Endless(PolicySpec):
    def build(self):
        return _Endless()
""")
    (tmp_path / "suite.yaml").write_text(
        "{seeds: 2, max_seeds: 2, metrics: {mean_ttft_ms: }, "
        "scenarios: {one: {spec: {policy: 'endless:Endless'}}}}"
    )
    words = [PROGRAM, "regress", "record", "suite.yaml", "--jobs", "2"]
    with subprocess.Popen(words, cwd=tmp_path, env=environment(tmp_path)) as process:
        wait_for(lambda: len(children(process.pid)) == 2)
        time.sleep(1)
        workers = children(process.pid)
        process.kill()
    wait_for(lambda: not any(map(is_running, workers)), 20)


@pytest.mark.skipif(sys.platform != "linux", reason="looks for the workers in /proc")
def test_a_killed_parent_leaves_whole_points_and_no_workers(whole: Path, tmp_path: Path) -> None:
    with start(tmp_path, "--jobs", "2", "-o", "s") as process:
        wait_for(lambda: kept(tmp_path / "s") >= 6)
        workers = children(process.pid)
        process.kill()
        process.wait()
    before = kept(tmp_path / "s")
    assert before < 20
    assert workers
    wait_for(lambda: not any(map(is_running, workers)), 20)
    with start(tmp_path, "--jobs", "2", "-o", "s") as process:
        _, errors = process.communicate()
    assert f"{before} of 20 runs are done already" in errors
    assert same(whole, tmp_path / "s")


@pytest.mark.skipif(sys.platform != "linux", reason="looks for the workers in /proc")
def test_fifty_kills_lose_nothing_and_double_nothing(tmp_path: Path) -> None:
    """Kill -9 the parent, or a worker, at random moments; finished runs stay as they are."""
    with start(tmp_path, "-o", "whole", sweep=SHORT) as process:
        assert process.wait() == 0
    rng, folder = np.random.default_rng(0), tmp_path / "s"
    finished: dict[str, bytes] = {}
    kills = 0
    while kills < 50:
        with start(tmp_path, "--jobs", "2", "-o", "s", sweep=SHORT) as process:
            time.sleep(rng.uniform(0.2, 2.5))
            workers = children(process.pid)
            victim = rng.choice(workers) if workers and rng.random() < 0.5 else process.pid
            if process.poll() is None:
                os.kill(int(victim), signal.SIGKILL)
                kills += 1
            if victim == process.pid:
                process.wait()
            else:
                time.sleep(rng.uniform(0, 0.5))
                process.kill()
            for worker in workers:
                wait_for(lambda worker=worker: not is_running(worker))
        runs = {path.name: path.read_bytes() for path in (folder / "points").glob("[!.]*.json")}
        assert runs.items() >= finished.items(), "a finished run was lost or written again"
        finished = runs
        if len(finished) == 80:  # begin again: the rest of the kills meet other moments
            shutil.rmtree(folder)
            finished = {}
    with start(tmp_path, "--jobs", "2", "-o", "s", sweep=SHORT) as process:
        assert process.wait() == 0
    assert len(list((folder / "points").glob("[!.]*.json"))) == 80
    assert same(tmp_path / "whole", folder)


def test_an_interrupted_sweep_says_so_and_goes_on(whole: Path, tmp_path: Path) -> None:
    with start(tmp_path, "--jobs", "2", "-o", "s") as process:
        wait_for(lambda: kept(tmp_path / "s") >= 6)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate()
    assert process.returncode == 130
    assert errors.splitlines()[-1] == "batchlab: interrupted"
    with start(tmp_path, "--jobs", "2", "-o", "s") as process:
        assert process.wait() == 0
    assert same(whole, tmp_path / "s")


def test_workers_that_die_again_and_again_stop_the_sweep(tmp_path: Path) -> None:
    (tmp_path / "deadly.py").write_text("""
import os
import shutil
import signal

from policies import VllmV1


class Deadly(VllmV1):
    def build(self):
        if self.max_num_seqs == 16:
            os.kill(os.getpid(), signal.SIGKILL)
        return VllmV1(max_num_seqs=self.max_num_seqs).build()
""")
    words = [PROGRAM, "sweep", "--policy.kind", "deadly:Deadly", "--jobs", "2", "-o", "s",
             "--num-requests", "30", "--grid", "max_num_seqs=8,16,9,10,17,18"]  # fmt: skip
    done = subprocess.run(words, cwd=tmp_path, env=environment(tmp_path), text=True,
                          capture_output=True, check=False)  # fmt: skip
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].startswith("batchlab: error: workers died 3 times without")
    assert 1 <= kept(tmp_path / "s") <= 5


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[tuple[str, list["subprocess.Popen[bytes]"]]]:
    """Start a scheduler and two workers, each a process of its own."""
    pytest.importorskip("distributed", reason="Dask is not installed (extra dask)")
    file = tmp_path / "scheduler.json"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": tmp_path}
    module = [sys.executable, "-m", "distributed.cli"]
    scheduler = [*module[:2], f"{module[2]}.dask_scheduler", "--scheduler-file", str(file),
                 "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]  # fmt: skip
    worker = [*module[:2], f"{module[2]}.dask_worker", "--scheduler-file", str(file),
              "--nthreads", "1", "--no-nanny", "--no-dashboard"]  # fmt: skip
    processes = [subprocess.Popen(scheduler, **quiet)]
    try:
        wait_for(lambda: file.exists() and '"address"' in file.read_text())
        processes += [subprocess.Popen(worker, **quiet) for _ in range(2)]
        yield json.loads(file.read_text())["address"], processes[1:]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def test_a_dask_cluster_that_loses_a_worker_gives_the_same_bytes(
    whole: Path, tmp_path: Path, cluster: tuple[str, list["subprocess.Popen[bytes]"]]
) -> None:
    address, workers = cluster
    with start(tmp_path, "--scheduler", address, "-o", "s") as process:
        wait_for(lambda: kept(tmp_path / "s") >= 6)
        workers[0].kill()
        before = kept(tmp_path / "s")
        _, errors = process.communicate()
    assert before < 20
    assert process.returncode == 0, errors
    assert "on 2 workers" in errors
    assert same(whole, tmp_path / "s")


def test_a_scheduler_that_does_not_answer_is_a_message(quick: Command) -> None:
    pytest.importorskip("distributed", reason="Dask is not installed (extra dask)")
    done = quick(*WORDS, "--scheduler", "127.0.0.1")
    assert done.code == 2
    assert done.err.splitlines()[-1].startswith("batchlab: error: --scheduler 127.0.0.1: ")
