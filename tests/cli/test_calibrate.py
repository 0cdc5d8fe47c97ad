"""From timings to a profile to a run, and recorded runs, on the command line."""

import gzip
import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from simulator.cost.profile import DATA_DIRECTORY
from simulator.cost.profile_file import decode_profile, encode_profile
from tests.cli.process import Command
from tests.timings import MINE, physical_rows

OWN = ("--gpu", "mine", "--bf16-tflops", 100, "--hbm-gb-per-s", 1000, "--memory-gib", 40,
       "--num-sms", 100, "--l2-mb", 20)  # fmt: skip
CONFIG = {
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
}


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return physical_rows()


@pytest.fixture
def folder(rows: pd.DataFrame, tmp_path: Path) -> Path:
    """Fill the working folder with timings and a model."""
    rows.to_csv(tmp_path / "mine.csv", index=False)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def test_timings_become_a_profile_that_runs(quick: Command, folder: Path) -> None:
    words = ("--report", "report.txt", "--figure", "errors.png", "--licence", "none")
    done = quick("calibrate", "mine.csv", "-o", "mine.npz", *OWN, *words)
    assert (done.code, done.err) == (0, "")
    assert "mine in bfloat16: 78 linear, 80 decode" in done.out
    assert "linear      extrapolation" in done.out
    assert done.out.endswith("Profile in mine.npz\n")
    assert (folder / "report.txt").read_text() in done.out
    assert (folder / "errors.png").read_bytes()[:4] == b"\x89PNG"
    run = quick("run", "--cost.profile", "mine.npz", "--num-requests", "5", "--json")
    assert run.code == 0, run.err
    assert json.loads(run.out)["spec"]["cost"]["gpu"] == MINE.key
    step = quick("cost", "--profile", "mine.npz", "--decodes", "8", "--context", "512", "--json")
    assert json.loads(step.out)["gpu"] == MINE.key
    small = quick("run", "--cost.profile", "mine.npz", "--model-config", "config.json",
                  "--num-requests", "5", "--json")  # fmt: skip
    assert json.loads(small.out)["spec"]["cost"]["architecture"] == "config.json"


def test_a_rehearsal_goes_from_measurement_to_a_run(quick: Command, folder: Path) -> None:
    words = ("profile-gpu", "--device", "cpu", "--model-config", "config.json", "--tp", "1,2",
             "-o", "cpu.csv")  # fmt: skip
    first, second = quick(*words), quick(*words)
    assert (first.code, second.code) == (0, 0), first.err
    assert ": 57 points measured, 0 were there, 0 failed" in first.out
    assert ": 0 points measured, 57 were there, 0 failed" in second.out
    data = quick("calibrate", "cpu.csv", "--gpu", "h100", "-o", "cpu.npz", "--json")
    assert json.loads(data.out)["rows"]["decode"] == 12
    done = quick("calibrate", "cpu.csv", "--gpu", "h100", "-o", "cpu.npz", "--force")
    assert "57 rows in float32 stand for bfloat16" in done.out
    step = quick("cost", "--profile", "cpu.npz", "--model-config", "config.json", "--chunk", "64")
    assert "Note: 57 rows in float32 stand for bfloat16." in step.out
    run = quick("run", "--cost.profile", "cpu.npz", "--num-requests", "2")
    assert run.code == 0


def test_a_log_of_steps_becomes_a_cost_model(quick: Command, folder: Path) -> None:
    rng = np.random.default_rng(1)
    decodes, tokens = rng.integers(1, 9, 60), rng.integers(0, 65, 60)
    table = pd.DataFrame(
        {"n_prefill": (tokens > 0).astype(int), "prefill_tokens": tokens,
         "prefill_pairs": tokens * 20, "n_decode": decodes, "decode_ctx": decodes * 40,
         "engine_ms": 5 + 0.2 * tokens + 0.3 * decodes}
    )  # fmt: skip
    table.to_csv(folder / "log.csv", index=False)
    words = ("--time", "engine_ms", "--between-steps-us", "100")
    done = quick("calibrate", "--steps", "log.csv", "-o", "log.json", *words)
    assert (done.code, done.err) == (0, "")
    assert "60 steps of log.csv, engine_ms" in done.out
    cost = ("--cost.kind", "step-linear", "--cost.profile", "log.json")
    run = quick("run", *cost, "--num-requests", "5", "--json")
    assert json.loads(run.out)["spec"]["cost"]["profile"] == "log.json"


def test_a_model_that_does_not_fit_says_by_how_much(quick: Command, folder: Path) -> None:
    large = CONFIG | {"hidden_size": 8192, "intermediate_size": 28672, "num_hidden_layers": 80,
                      "num_attention_heads": 64, "head_dim": 128}  # fmt: skip
    (folder / "large.json").write_text(json.dumps(large))
    message = quick("run", "--model-config", "large.json", "--num-requests", "5").message()
    assert message.startswith("large on 1 x h100 lacks ")
    assert message.endswith("GB per GPU (77.0 GB usable): tp 4 would fit")


WRONG = {
    "calibrate mine.csv --gpu h10 -o x.npz": ["unknown gpu 'h10'", "did you mean h100"],
    "calibrate mine.csv -o x.npz": ["--gpu: expected the key"],
    "calibrate --gpu h100 -o x.npz": ["no timing files given"],
    "calibrate mine.csv --gpu mine --l2-mb 6 -o x.npz": ["needs --bf16-tflops, --hbm-gb-per-s"],
    "calibrate mine.csv --gpu h100 -o config.json": ["config.json exists", "--force"],
    "calibrate mine.csv --gpu h100 -o none/x.npz": ["there is no folder none"],
    "calibrate mine.csv --gpu h100 -o x.npz --figure a.xyz": ["a.xyz", "png, pdf or svg"],
    "calibrate fast.csv --gpu h100 -o x.npz": ["fast.csv: row 2: ", "above the peak of 989"],
    "calibrate same.csv --gpu h100 -o x.npz": ["same.csv: row 3: repeats an earlier row"],
    "calibrate nan.csv --gpu h100 -o x.npz": ["nan.csv: row 2: time_us is not a finite number"],
    "calibrate zero.csv --gpu h100 -o x.npz": ["zero.csv: row 2: time_us is not above 0"],
    "calibrate down.csv --gpu h100 -o x.npz": ["down.csv: row 3: tokens is smaller than in"],
    "calibrate --steps log.csv --gpu h100 -o x.json": ["--steps: takes the place"],
    "calibrate mine.csv --gpu h100 --time cpu_ms -o x.npz": ["belong to --steps"],
    "calibrate --steps mine.csv -o x.json": ["mine.csv: column n_prefill is missing"],
    "calibrate --steps mine.csv --new-request-us -1 -o x.json": ["--new-request-us -1.0"],
    "profile-gpu --device cpu --model x -o x.csv": ["unknown model 'x'"],
    "profile-gpu --device cpu --tp two -o x.csv": ["--tp two: expected whole numbers"],
    "profile-gpu --device cpu --tp 3 -o x.csv": ["tp 3: expected one of 1, 2, 4, 8"],
    "profile-gpu --device cpu --model x --model-config y -o x.csv": ["expected one of them"],
    "profile-gpu --device cpu --model-config short.json -o x.csv": ["field vocab_size is missing"],
    "run --model-config short.json": ["cost.architecture: short.json: field vocab_size is missing"],
    "run --model-config none.json": ["cost.architecture: none.json: cannot read model"],
    "run --model-config config.json --model qwen3-8b": ["cost.model: qwen3-8b contradicts the"],
    "run --cost.profile cut.npz": ["cost.profile: cut.npz: not a cost profile, or truncated"],
    "run --cost.profile old.npz": ["cost.profile: old.npz: format version 0, expected 1"],
    "run --cost.profile edited.npz": ["cost.profile: edited.npz: contents do not match"],
    "run --gpu h1000": ["cost.gpu: unknown gpu 'h1000'", "did you mean h100"],
    "cost --gpu h1000 --chunk 5": ["gpu: unknown gpu 'h1000'", "did you mean h100"],
    "run --cost.kind step-linear --cost.profile x": ["cost.profile: unknown step profile 'x'"],
    "run --cost.kind step-linear --cost.slowness 0": ["cost.slowness", "greater than 0"],
    "check-vllm": ["expected at least one recording"],
    "check-vllm --json mine.csv": ["belong to --timing"],
    "check-vllm --timing mine.csv": ["mine.csv: no file of a run"],
    "check-vllm --timing a.head.json": ["a.head.json: cannot read run"],
    "check-vllm --timing a.head.json --profile gpu": ["unknown step profile 'gpu'"],
    "check-vllm head.jsonl.gz": ["line 1: field config.max_num_batched_tokens is missing"],
}


@pytest.fixture
def damaged(folder: Path) -> Path:
    """Add timings, profiles and models that cannot be used."""
    first = ("linear", "bfloat16", 4096, 4096, 64)
    head = "operator,dtype,out_features,in_features,tokens,time_us\n"
    files = {
        "fast.csv": [(*first, 1)],
        "same.csv": [(*first, 100), (*first, 101)],
        "nan.csv": [(*first, "nan")],
        "zero.csv": [(*first, 0)],
        "down.csv": [(*first, 100), (*first[:-1], 32, 99)],
    }
    for name, lines in files.items():
        text = head + "".join(",".join(map(str, line)) + "\n" for line in lines)
        (folder / name).write_text(text)
    short = {key: value for key, value in CONFIG.items() if key != "vocab_size"}
    (folder / "short.json").write_text(json.dumps(short))
    shipped = (DATA_DIRECTORY / "rtx4090.npz").read_bytes()
    arrays, metadata = decode_profile(shipped, "")
    assert metadata["format_version"] == 1
    (folder / "cut.npz").write_bytes(shipped[:-100])
    (folder / "edited.npz").write_bytes(_with_new_sums(shipped.replace(b"MIT", b"GPL", 1)))
    old = encode_profile(arrays, metadata).replace(b'"format_version": 1', b'"format_version": 0')
    (folder / "old.npz").write_bytes(_with_new_sums(old))
    header = {"format": "vllm-sched-golden/1", "config": {}, "requests": [], "arrival_time": "x"}
    text = "\n".join(map(json.dumps, (header, {"end": 1})))
    (folder / "head.jsonl.gz").write_bytes(gzip.compress(text.encode()))
    return folder


def _with_new_sums(data: bytes) -> bytes:
    """Return an archive whose metadata were exchanged, with checksums that fit again."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as archive, zipfile.ZipFile(buffer, "w") as new:
        for info in archive.infolist():
            start = info.header_offset + 30 + len(info.filename)
            content = data[start : start + info.file_size]
            new.writestr(info.filename, content)
    return buffer.getvalue()


@pytest.mark.parametrize("command", WRONG)
def test_what_cannot_be_used_is_refused_in_one_line(
    quick: Command, damaged: Path, command: str
) -> None:
    before = sorted(damaged.rglob("*"))
    outcome = quick(*command.split())
    message = outcome.message()
    assert outcome.code == 2
    assert [part for part in WRONG[command] if part not in message] == [], message
    assert sorted(damaged.rglob("*")) == before


@pytest.mark.shared
def test_recorded_runs_are_checked(quick: Command, shared: Path) -> None:
    runs = shared / "goldens" / "vllm_cpu_engine"
    done = quick("check-vllm", "--timing", runs / "F_burst.r1.head.json")
    assert done.code == 0
    assert "1 runs, step profile cpu" in done.out
    assert done.out.count("PASS") == 7
    missed = quick("check-vllm", "--timing", runs / "F_50.rcpu.steps.csv.gz", "--json")
    assert missed.code == 1
    assert [level["reached"] for level in json.loads(missed.out)["levels"]].count(False) > 0
