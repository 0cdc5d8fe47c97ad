"""`batchlab report`, and the figures and traces that `batchlab run` leaves."""

import gzip
import json
from pathlib import Path

import pytest

from tests.cli.process import FAST, Command

SWEEP = (
    "sweep", *FAST[:4], "--workload.num-requests", "40", "--policy.kind", "window-pull",
    "--grid", "max_wait_ms=0,200", "max_batch_size=2,8", "--seeds", 2, "-o", "s",
)  # fmt: skip


def test_a_run_leaves_figures_and_a_trace(quick: Command, tmp_path: Path) -> None:
    done = quick(
        "run",
        *FAST[:4],
        "--num-requests",
        5,
        "-o",
        "r",
        "--figures",
        "f",
        "--format",
        "pdf",
        "--chrome-trace",
        "t.json.gz",
    )
    assert done.code == 0, done.err
    figures = sorted(path.name for path in (tmp_path / "f").glob("*.pdf"))
    assert figures == [
        "f10-gantt.pdf", "f11-breakdown.pdf", "f4-e2e-cdf.pdf", "f4-tbt-cdf.pdf", "f4-ttft-cdf.pdf",
        "f6-steps.pdf", "f7-capacity.pdf", "f8-batches.pdf", "f9-arrivals.pdf",
    ]  # fmt: skip
    assert all((tmp_path / "f" / name).read_bytes().startswith(b"%PDF") for name in figures)
    assert json.loads(gzip.decompress((tmp_path / "t.json.gz").read_bytes()))["traceEvents"]
    assert (tmp_path / "r" / "phases.parquet").is_file()
    plain = quick("run", *FAST[:4], "--num-requests", 5)
    assert plain.out == done.out  # watching changes nothing


def test_the_report_of_a_sweep(quick: Command, tmp_path: Path) -> None:
    assert quick(*SWEEP).code == 0
    done = quick("report", "s", "--question", "How long?", "--figures", "f", "--format", "png")
    assert done.code == 0, done.err
    text = (tmp_path / "s" / "report.html").read_text(encoding="utf-8")
    assert "How long?" in text
    assert "max_wait_ms=200, max_batch_size=8" in text
    assert "batchlab sweep spec.yaml -o results/again" in text
    names = {path.name for path in (tmp_path / "f").glob("*.png")}
    # 40 requests bear no P99
    maps = {"f5-map-p50-ttft-ms.png", "f5-map-p50-e2el-ms.png"}
    assert names == {"f2-tokens-per-s-per-user.png", *maps}
    rows = (tmp_path / "f" / "table.csv").read_text(encoding="utf-8").splitlines()
    assert len(rows) == 5
    assert rows[0].startswith("max_wait_ms,max_batch_size,rate (req/s),")
    assert "$\\pm$" in (tmp_path / "f" / "table.tex").read_text(encoding="utf-8")
    assert quick(*SWEEP).code == 0  # the folder is still that of the sweep
    again = quick("report", "s", "--question", "How long?", "-o", "again.html")
    assert again.out == "Report in again.html\n"
    assert (tmp_path / "again.html").read_text(encoding="utf-8") == text
    assert quick("report", "s", "-o", "again.html").code == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["report", "none"], "none: there is no such folder"),
        (["report", "."], "manifest.json: cannot be read: No such file or directory"),
        (["run", *FAST, "--chrome-trace", "t.txt"], "--chrome-trace t.txt: expected a name that"),
        (["run", *FAST, "--chrome-trace", "no/t.json"], "--chrome-trace no/t.json: there is no"),
        (["run", *FAST, "--figures", "here"], "here: exists already; choose another folder"),
        (["run", *FAST, "--figures", "f", "--format", "gif"], "Invalid value"),
    ],
)
def test_wrong_places_are_refused(
    quick: Command, tmp_path: Path, words: list[str], message: str
) -> None:
    (tmp_path / "here").mkdir()
    done = quick(*words)
    assert done.code == 2
    assert message in done.message()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here"]
