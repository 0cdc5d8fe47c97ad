"""The same command in two processes with different hash seeds: the same bytes, everywhere."""

import subprocess
import sys
from pathlib import Path

from tests.cli.process import environment

ROOT = Path(__file__).parents[2]

RUN = """\
workload:
  arrivals: {kind: gamma, request_rate: 12, cv: 2}
  prompt_tokens: {kind: lognormal, mean: 60, cv: 1, max: 500, truncation: clip}
  output_tokens: {kind: lognormal, mean: 12, cv: 1, max: 90, truncation: clip}
  num_requests: 120
policy: {kind: vllm-v1, order: {kind: sjf}}
engine: {num_blocks: 60, num_replicas: 3, router: {kind: power-of-two}}
cost: {kind: exponential, mean_ms: 30}
measure: {goodput: {ttft_ms: 500, tpot_ms: 50}}
"""
"""Short of memory, several replicas, chance in router and machine."""

SUITE = """\
seeds: 2
max_seeds: 2
metrics: {p50_ttft_ms: }
scenarios:
  one: {spec: run.yaml}
  two: {spec: run.yaml, exact: true}
"""

COMMANDS = (
    "run run.yaml -o run",
    "cost --gpu h100 --model llama-3.1-8b --decodes 64 --context 900 --chunk 512",
    "workload generate azure-conv-2023 -o load.jsonl --format jsonl --num-requests 60",
    "workload inspect load.jsonl",
    "regress record suite.yaml",
    "regress check suite.yaml",
    "sweep run.yaml --grid max_num_seqs=4,64 --seeds 2 -o sweep",
    "compare sweep#0 sweep#1 --seeds 2 -o compare --figure moved.svg",
    "capacity run.yaml --slo p50_ttft_ms<=900 --seeds 2 --max-seeds 2 --tolerance 0.5 -o capacity",
)

ALL = """
import sys
from simulator.cli import main
for line in sys.argv[1:]:
    try:
        main(line.split())
    except SystemExit as leave:
        if leave.code:
            raise
"""
"""Runs several command lines one after the other."""


def outcome(folder: Path, seed: str) -> tuple[str, dict[str, bytes]]:
    """Run all commands in a new folder; return standard output and the bytes of all files."""
    folder.mkdir()
    (folder / "run.yaml").write_text(RUN)
    (folder / "suite.yaml").write_text(SUITE)
    done = subprocess.run(
        [sys.executable, "-c", ALL, *COMMANDS],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment(ROOT, PYTHONHASHSEED=seed),
        check=False,
    )
    assert done.returncode == 0, done.stderr
    files = sorted(p for p in folder.rglob("*") if p.is_file() and p.name != "timing.json")
    return done.stdout, {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_the_hash_seed_changes_nothing(tmp_path: Path) -> None:
    """Neither a byte of standard output nor one of a file."""
    first, second = (outcome(tmp_path / seed, seed) for seed in ("1", "2024"))
    assert first[0] == second[0]
    assert first[1] == second[1]
    tables = {f"run/{name}.parquet" for name in ("requests", "steps", "gaps")}
    tables |= {f"{name}/runs.parquet" for name in ("sweep", "compare")} | {"capacity/curve.csv"}
    others = {"run/summary.json", "load.jsonl", "suite.baseline.yaml", "moved.svg"}
    assert tables | others <= set(first[1])
    for heading in (
        "Simulation result",
        "attention",
        "60 requests",
        "scenarios, 1 metrics",
        "passed",
        "Results in sweep",
        "A: sweep#0",
        "Highest request rate",
    ):
        assert heading in first[0]
