"""Whole programs, with the most memory they take: `make bench`. The long ones take minutes."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.test_speed import AZURE, Bench

PEER = [
    "--workload.kind=synthetic",
    "--workload.arrivals.kind=poisson",
    "--workload.arrivals.request-rate=30",
    "--workload.prompt-tokens=512",
    "--workload.output-tokens=128",
]


def program(benchmark: Bench, *arguments: str) -> None:
    """Time a command once, and note the CPU seconds and the memory of its process."""
    usage: list[Any] = []

    def command() -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "simulator", *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        _, status, spent = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        usage.append(spent)

    benchmark.pedantic(command, rounds=1)
    benchmark.extra_info["cpu_s"] = round(usage[-1].ru_utime + usage[-1].ru_stime, 2)
    benchmark.extra_info["peak_mb"] = round(usage[-1].ru_maxrss / 1024)


@pytest.mark.parametrize("number", [10_000, 100_000])
def test_peer_program(benchmark: Bench, number: int) -> None:
    program(benchmark, "run", *PEER, f"--num-requests={number}")


@pytest.mark.skipif(not AZURE.exists(), reason="needs the published trace beside the checkout")
def test_azure_trace_program(benchmark: Bench) -> None:
    program(benchmark, "run", "--trace", str(AZURE))


def test_a_million_conversations(benchmark: Bench) -> None:
    program(benchmark, "run", "--num-requests=1000000", "--request-rate=12.8")


def test_a_day_of_traffic(benchmark: Bench) -> None:
    """24 simulated hours of a preset that follows the day."""
    workload = ["--workload.name=chat-mid", "--num-requests=260000", "--request-rate=3"]
    program(benchmark, "run", *workload)


@pytest.mark.parametrize("number", [1_000_000, 10_000_000])
def test_conversations_in_bounded_memory(benchmark: Bench, number: int, tmp_path: Path) -> None:
    out = ["--stream", "--out", str(tmp_path / "run")]
    program(benchmark, "run", f"--num-requests={number}", "--request-rate=12.8", *out)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_sweep_of_500_runs(benchmark: Bench, jobs: int, tmp_path: Path) -> None:
    """10 x 10 points, 5 seeds, 10,000 requests each."""
    seats = ",".join(str(8 * 2**k) for k in range(10))
    rates = ",".join(f"{1 + 1.2 * k:.1f}" for k in range(10))
    grid = ["--grid", f"max_num_seqs={seats}", "--grid", f"request_rate={rates}"]
    size = ["--seeds", "5", "--num-requests", "10000"]
    program(benchmark, "sweep", *grid, *size, "--jobs", str(jobs), "-o", str(tmp_path / "sweep"))
