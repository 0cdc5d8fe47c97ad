"""Disks that are full or read-only, and damaged results: one line, nothing half written."""

import json
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from simulator import RunSpec, simulate
from simulator.cli import main
from simulator.errors import UserError
from simulator.experiments.grid import make_points
from simulator.experiments.store import Store
from simulator.experiments.sweep import definition
from simulator.result import check_target
from tests.cli.process import FAST

SUITE = """\
seeds: 2
max_seeds: 2
metrics: {mean_ttft_ms: }
base: {cost: {kind: fixed, step_ms: 9}, workload: {name: demo-chat, num_requests: 9}}
scenarios: {one: {}}
"""


def command(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str]:
    """Run a command line in this process; return its code and its message."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as leave:
        main([str(word) for word in words])
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert isinstance(leave.value.code, int)
    message = err.splitlines()[-1] if err else ""
    assert (out == "") == message.startswith("batchlab: error: ")
    return leave.value.code, message


@contextmanager
def small_disk(size: int) -> Iterator[None]:
    """Let no file grow beyond so many bytes."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def suite(folder: Path) -> Path:
    path = folder / "suite.yaml"
    path.write_text(SUITE)
    return path


@pytest.mark.parametrize("size", [0, 500, 3000, 6000])
def test_a_disk_that_fills_up_during_a_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], size: int
) -> None:
    """Specification, summary, manifest or a table is the first that does not fit."""
    with small_disk(size):
        code, message = command(capsys, "run", *FAST, "-o", tmp_path / "out")
    assert code == 2
    assert f"{tmp_path / 'out'}: cannot be written: " in message
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("size", [0, 2000])
@pytest.mark.parametrize(
    "words",
    [
        ("run", *FAST, "--chrome-trace", "trace.json"),
        ("run", *FAST, "--figures", "figures"),
        ("compare", "none", "orca", *FAST, "--seeds", "2", "--figure", "moved.png"),
        ("workload", "inspect", "demo-chat", "--figure", "load.png"),
    ],
)
def test_a_disk_that_fills_up_leaves_no_half_of_a_file(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    size: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    with small_disk(size), pytest.raises(SystemExit) as leave:
        main(words)
    assert leave.value.code == 2
    message = capsys.readouterr().err.splitlines()[-1]
    assert message.startswith(f"batchlab: error: {words[-1]}: cannot be written: ")
    assert list(tmp_path.iterdir()) == []


def test_a_sweep_goes_on_where_the_disk_was_full_from_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("sweep", *FAST, "--grid", "max_num_seqs=1,2", "-o", tmp_path / "s")
    with small_disk(0):
        assert command(capsys, *words)[0] == 2
    (tmp_path / "s" / ".manifest.4711.json").write_text("{ a draft of a process that was kil")
    assert command(capsys, *words)[0] == 0
    assert not list((tmp_path / "s").rglob(".*"))


def test_two_sweeps_into_one_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second is refused, be it the same or another, with `--force` or without."""
    base = RunSpec(workload={"name": "demo-chat", "num_requests": 9})
    point = make_points(base.to_dict(), [{}])
    store = Store(tmp_path / "s", definition(base.to_dict(), point, 1))
    before = {path: path.read_bytes() for path in (tmp_path / "s").iterdir() if path.is_file()}
    for more in ((), ("--force",)):
        words = ("sweep", *FAST, "--grid", "max_num_seqs=1,2", "-o", tmp_path / "s")
        code, message = command(capsys, *words, *more)
        assert code == 2
        assert "s: another process writes its results there; wait for it" in message
    assert {p: p.read_bytes() for p in (tmp_path / "s").iterdir() if p.is_file()} == before
    store.close()
    assert command(capsys, *words, "--force")[0] == 0


@pytest.mark.parametrize("format", ["csv", "jsonl"])
def test_a_disk_that_fills_up_during_generation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], format: str
) -> None:
    words = ["generate", "demo-chat", "-o", tmp_path / "load", "--format", format]
    with small_disk(2000):
        code, message = command(capsys, "workload", *words, "--num-requests", 500)
    assert code == 2
    assert f"{tmp_path / 'load'}: cannot be written: File too large" in message
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fills_up_leaves_a_baseline_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = suite(tmp_path)
    assert command(capsys, "regress", "record", path)[0] == 0
    baseline = tmp_path / "suite.baseline.yaml"
    before = baseline.read_bytes()
    with small_disk(100):
        code, message = command(capsys, "regress", "record", path, "--force")
        checked = command(capsys, "regress", "check", path, "--junit", tmp_path / "junit.xml")
    assert code == checked[0] == 2
    assert f"{baseline}: cannot be written: File too large" in message
    assert "junit.xml: cannot be written: File too large" in checked[1]
    assert baseline.read_bytes() == before
    assert {file.name for file in tmp_path.iterdir()} == {"suite.yaml", "suite.baseline.yaml"}


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="has no file system that refuses")
def test_a_file_system_that_takes_no_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Permissions mean nothing to root, so a file system is used that nobody can write to."""
    path = suite(tmp_path)
    for words in (
        ["run", *FAST, "-o", "/proc/out"],
        ["workload", "generate", "demo-chat", "-o", "/proc/load.csv"],
        ["regress", "record", path, "--baseline", "/proc/baseline.yaml"],
    ):
        capsys.readouterr()
        with pytest.raises(SystemExit) as leave:
            main([str(word) for word in words])
        message = capsys.readouterr().err.splitlines()[-1]
        assert leave.value.code == 2
        assert message.startswith("batchlab: error: /proc/")
        assert "cannot be written" in message


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"{}", b'{"versions": 3}', b"\xff\xfe\x00"])
def test_a_folder_with_a_damaged_manifest_is_not_taken_for_ours(
    tmp_path: Path, damage: bytes
) -> None:
    folder = tmp_path / "out"
    run = RunSpec(workload={"name": "demo-chat", "num_requests": 9})
    simulate(run).save(folder)
    check_target(folder, force=True)
    assert json.loads((folder / "manifest.json").read_text())["kind"] == "run"
    (folder / "manifest.json").write_bytes(damage)
    with pytest.raises(UserError, match="is not a results folder, so --force does not replace it"):
        check_target(folder, force=True)


@pytest.mark.parametrize("damage", ["cut", "zeros", "noise", "footer"])
def test_a_damaged_parquet_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], damage: str
) -> None:
    folder = tmp_path / "out"
    simulate(RunSpec(workload={"name": "demo-chat", "num_requests": 99})).save(folder)
    path = folder / "requests.parquet"
    data = bytearray(path.read_bytes())
    if damage == "cut":
        del data[len(data) // 2 :]
    elif damage == "zeros":
        data[100 : len(data) // 2] = bytes(len(data) // 2 - 100)
    elif damage == "noise":
        data[200:2000] = bytes(7 * number % 256 for number in range(1800))
    else:
        data[-8:-4] = b"\xff\xff\xff\x7f"
    path.write_bytes(data)
    words = ["--trace", path, "--cost.kind", "fixed", "--cost.step-ms", "9"]
    code, message = command(capsys, "run", *words, "--workload.format", "parquet")
    assert code == 2
    assert f"{path}: damaged data: " in message
