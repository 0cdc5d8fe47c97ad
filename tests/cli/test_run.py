"""`batchlab run` as a person types it: what it prints, what it leaves, and that it repeats."""

import gzip
import hashlib
import json
import pty
import resource
import shlex
import subprocess
import termios
from pathlib import Path

import pandas as pd
import pytest

from simulator import RunSpec
from tests.cli.process import FAST, PROGRAM, Command, environment

WINDOW = """\
policy: {kind: window-pull, max_batch_size: 4, max_wait_ms: 5}
workload: {arrivals: 2, prompt_tokens: {mean: 60, cv: 1}, output_tokens: 9, num_requests: 400}
cost: {kind: fixed, step_ms: 10}
measure: {goodput: {ttft_ms: 500}}
"""

TABLES = {"requests.parquet", "steps.parquet", "gaps.parquet"}
FILES = {"spec.yaml", "summary.json", "manifest.json", "phases.parquet", *TABLES}

HEADINGS = (
    "Request rate configured / realised (req/s)",
    "Time to First Token",
    "Time per Output Token",
    "Time between Tokens",
    "End-to-end Latency",
    "Queueing Delay",
    "GPU busy",
)


def contents(folder: Path) -> dict[str, bytes]:
    """Return the bytes of all files in a folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def reproduction(out: str) -> list[str]:
    """Return the words of the command that a report ends with."""
    last = out.splitlines()[-1]
    assert last.startswith("Reproduce: batchlab ")
    return shlex.split(last.removeprefix("Reproduce: batchlab "))


def test_without_arguments_it_demonstrates_itself_in_less_than_three_seconds(
    batchlab: Command,
) -> None:
    """Processor time of the process is what counts, so that a busy machine does not matter."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    outcome = batchlab("run")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert outcome.code == 0
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 3.0
    assert "vllm-v1 (defaults)" in outcome.out
    assert "preset azure-conv-2023; llama-3.1-8b on h100" in outcome.out
    assert [heading for heading in HEADINGS if heading not in outcome.out] == []
    assert outcome.out.splitlines()[-1] == "Reproduce: batchlab run"
    assert outcome.err.startswith("Simulated in ")  # the clock of the wall stays off stdout


def test_another_seed_is_another_run(quick: Command) -> None:
    first, second = (quick("run", *FAST, "--seed", seed) for seed in "01")
    assert first.out != second.out
    assert reproduction(second.out) == ["run", *reproduction(first.out)[1:], "--seed", "1"]


def test_a_flag_on_top_of_a_file_that_holds_the_kind(
    batchlab: Command, quick: Command, tmp_path: Path
) -> None:
    """The flag, the folder, and the repetition byte by byte, also under another hash seed."""
    (tmp_path / "run.yaml").write_text(WINDOW)
    words = ["run", "run.yaml", "--policy.max-wait-ms", "20", "-o", "first"]
    first = batchlab(*words, PYTHONHASHSEED="0")
    assert first.code == 0
    assert "window-pull (max_batch_size=4, max_wait_ms=20.0)" in first.out
    assert "attainment" in first.out
    assert "[ttft <= 500 ms]" in first.out
    folder = tmp_path / "first"
    assert set(contents(folder)) == FILES

    spec = RunSpec.from_yaml((folder / "spec.yaml").read_text())
    assert spec.policy.model_dump(include={"max_batch_size", "max_wait_ms"}) == {
        "max_batch_size": 4,
        "max_wait_ms": 20.0,
    }
    manifest = json.loads((folder / "manifest.json").read_text())
    summary = json.loads((folder / "summary.json").read_text())
    assert manifest["spec_sha256"] == summary["spec_sha256"] == spec.content_hash()
    assert RunSpec.from_dict(summary["spec"]) == spec
    requests, steps, gaps = (
        pd.read_parquet(folder / f"{name}.parquet") for name in ("requests", "steps", "gaps")
    )
    assert len(requests) == summary["metrics"]["num_requests"] == 400
    assert steps["num_steps"].sum() == summary["metrics"]["num_steps"]
    assert gaps["count"].sum() == 400 * 8
    assert summary["metrics"]["completed"] == 400

    again = batchlab("run", "first/spec.yaml", "-o", "second", PYTHONHASHSEED="7")
    assert again.out == first.out
    assert contents(tmp_path / "second") == contents(folder)

    repeated = quick(*reproduction(first.out))
    assert repeated.out == first.out


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        (["--policy.kind", "static", "--policy.max-batch-size", "8"], "static"),
        (["--policy.kind", "window-enqueue", "--policy.max-wait-ms", "2.5"], "window-enqueue"),
        (["--policy.kind", "none", "--goodput", "ttft:500", "tpot:50"], "none"),
        (["--measure.percentiles", "50,95", "--measure.warmup-s", "3"], "vllm-v1"),
        (["--measure.horizon-s", "5", "--request-rate", "8"], "vllm-v1"),
        (["--workload.name", "demo-chat", "--engine.num-blocks", "600"], "vllm-v1"),
    ],
)
def test_the_last_line_reproduces_the_output(quick: Command, options: list[str], kind: str) -> None:
    first = quick("run", *FAST, *options)
    assert first.code == 0, first.err
    assert f": {kind} (" in first.out.splitlines()[0]
    assert quick(*reproduction(first.out)).out == first.out


def test_json_is_one_object_with_metrics_warnings_and_specification(quick: Command) -> None:
    outcome = quick("run", *FAST, "--json")
    found = json.loads(outcome.out)
    assert set(found) == {"metrics", "warnings", "spec_sha256", "spec"}
    assert found["metrics"]["completed"] == 40
    assert found["metrics"]["p99_ttft_ms"] is None  # 40 requests do not bear a P99
    assert RunSpec.from_dict(found["spec"]).content_hash() == found["spec_sha256"]


def test_no_escape_sequences_and_no_progress_bar_outside_a_terminal(quick: Command) -> None:
    outcome = quick("run", *FAST)
    assert "\x1b" not in outcome.out + outcome.err
    assert outcome.err.count("\n") == 1


def test_a_terminal_shows_a_progress_bar(tmp_path: Path) -> None:
    reader, terminal = pty.openpty()
    termios.tcsetwinsize(terminal, (24, 80))
    with open(reader, "rb", buffering=0) as screen, open(terminal, "wb") as stderr:
        subprocess.run(
            [PROGRAM, "run", *FAST],
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            cwd=tmp_path,
            env=environment(),
            check=True,
        )
        shown = screen.read(65_536).decode()
    assert "run: " in shown
    assert "req" in shown
    assert shown.rstrip().splitlines()[-1].lstrip().startswith("Simulated in ")


@pytest.fixture
def azure(tmp_path: Path) -> Path:
    """A trace as Azure publishes it: CRLF, seven fractional digits, no newline at the end."""
    rows = [f"2023-11-16 18:15:{s:02}.{s * 76543:07},{100 + 7 * s},{1 + s % 9}" for s in range(60)]
    path = tmp_path / "conv.csv"
    path.write_bytes("\r\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows]).encode())
    with gzip.open(tmp_path / "conv.csv.gz", "wb") as file:
        file.write(path.read_bytes())
    return path


def test_a_trace_file_is_replayed_as_recorded(batchlab: Command, azure: Path) -> None:
    words = ["--policy.max-num-seqs", "128", "--gpu", "a100", "--model", "qwen2.5-7b"]
    outcome = batchlab("run", "--trace", azure.name, *words, "-o", "out")
    assert outcome.code == 0, outcome.err
    assert "conv.csv; qwen2.5-7b on a100" in outcome.out
    requests = pd.read_parquet(azure.parent / "out" / "requests.parquet")
    seconds = range(60)
    assert requests["arrival_s"].to_numpy() == pytest.approx(
        [s + s * 76543 / 1e7 for s in seconds], abs=1e-9
    )
    assert requests["prompt_tokens"].tolist() == [100 + 7 * s for s in seconds]
    assert requests["output_tokens"].tolist() == [1 + s % 9 for s in seconds]
    assert (requests["state"] == "finished").all()
    manifest = json.loads((azure.parent / "out" / "manifest.json").read_text())
    assert manifest["workload"]["rows_kept"] == 60
    assert manifest["workload"]["sha256"] == hashlib.sha256(azure.read_bytes()).hexdigest()
    assert reproduction(outcome.out)[1:5] == [
        "--workload.kind",
        "trace",
        "--workload.path",
        "conv.csv",
    ]


def test_a_compressed_trace_is_the_same_trace(quick: Command, azure: Path) -> None:
    runs = [
        quick(
            "run",
            "--trace",
            f"conv.csv{end}",
            "--cost.kind",
            "fixed",
            "--cost.step-ms",
            "9",
            "--json",
        )
        for end in ("", ".gz")
    ]
    plain, packed = (json.loads(run.out)["metrics"] for run in runs)
    assert plain == packed
    assert plain["realised_rate"] == pytest.approx(59 / (59 * 1.0076543))


def test_a_trace_can_be_stretched_to_another_rate(quick: Command, azure: Path) -> None:
    words = ["--trace", azure.name, "--rate", "4", "--num-requests", "50", "--json"]
    metrics = json.loads(quick("run", *words).out)["metrics"]
    assert metrics["num_requests"] == 50
    assert metrics["request_rate"] == 4
    assert metrics["realised_rate"] == pytest.approx(4)


def test_bad_rows_are_dropped_and_counted_where_asked(quick: Command, azure: Path) -> None:
    with open(azure, "ab") as file:
        file.write(b"\r\n2023-11-16 18:16:00.0000000,0,7\r\nlater,5,5")
    words = ["run", "--trace", azure.name, "--cost.kind", "fixed", "--cost.step-ms", "9"]
    assert "line 62" in quick(*words).message()
    outcome = quick(*words, "--workload.strict", "false", "-o", "out")
    assert outcome.code == 0, outcome.err
    workload = json.loads((azure.parent / "out" / "manifest.json").read_text())["workload"]
    assert (workload["rows_read"], workload["rows_kept"]) == (62, 60)
    assert sorted(workload["dropped"].values()) == [1, 1]
    assert "--workload.strict false" in outcome.out.splitlines()[-1]


@pytest.mark.shared
def test_the_published_trace(batchlab: Command, shared: Path) -> None:
    path = shared / "traces" / "azure_llm_2023" / "AzureLLMInferenceTrace_conv.csv.gz"
    words = ["--trace", path, "--num-requests", "500", "--policy.max-num-seqs", "128"]
    outcome = batchlab("run", *words, "--gpu", "h100", "--model", "llama-3.1-8b", "--json")
    assert outcome.code == 0, outcome.err
    metrics = json.loads(outcome.out)["metrics"]
    assert metrics["completed"] == 500
    assert metrics["num_samples_itl"] == metrics["total_output_tokens"] - 500
    assert metrics["p99_ttft_ms"] is not None
