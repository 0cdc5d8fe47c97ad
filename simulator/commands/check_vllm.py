"""`batchlab check-vllm`: recordings of the real vLLM, replayed through our engine and policy."""

import json as js
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from simulator.errors import UserError

Flag = Annotated[bool, Parameter(negative="")]


def check_vllm(
    *files: Path, timing: Flag = False, profile: str | None = None, json: Flag = False
) -> int:
    """Replay recordings of the real vLLM: decisions, or times with --timing.

    Without --timing: compares every field of every decision; prints `equal`, or the
    first step and field that differ. With it, replays whole runs twice: with the
    measured durations of the steps (every token has to come when it came), and with
    a step profile scaled by how slow the machine was in the run (mean latencies are
    compared). Exit code 1 if anything differs or a level is missed.

    For example:

      batchlab check-vllm recordings/*.jsonl.gz
      batchlab check-vllm --timing runs/ --profile cpu

    Parameters
    ----------
    files
        Recordings in the format vllm-sched-golden/1, plain or gzip. With --timing:
        files of runs (NAME.head.json, NAME.steps.csv.gz, NAME.requests.jsonl.gz,
        NAME.sched.jsonl.gz; one of them is enough), or folders of runs.
    timing
        Check the times of whole runs.
    profile
        Step profile for --timing: cpu (default), or a file of `calibrate --steps`.
    json
        Print one JSON object instead of a table; for --timing.
    """
    if not files:
        raise UserError("check-vllm: expected at least one recording")
    if timing:
        return _check_times(files, profile or "cpu", as_json=json)
    if profile is not None or json:
        raise UserError("--profile and --json: belong to --timing")
    return _check_decisions(files)


def _check_decisions(files: tuple[Path, ...]) -> int:
    from simulator.vllm_recording import check_recording

    differences = [(path, check_recording(path)) for path in files]
    for path, difference in differences:
        print(f"{path}: {difference or 'equal'}")
    return 1 if any(difference for _, difference in differences) else 0


def _check_times(files: tuple[Path, ...], name: str, *, as_json: bool) -> int:
    from tqdm import tqdm

    from simulator.cost.step_profile import read_step_profile
    from simulator.engine_check import check_run, levels, table_lines, to_dict
    from simulator.engine_run import find_runs, read_run

    profile, stems = read_step_profile(name), find_runs(files)
    bar = tqdm(stems, desc="check-vllm", unit="run", disable=None, leave=False)
    checks = [check_run(read_run(stem), profile) for stem in bar]
    if as_json:
        print(js.dumps(to_dict(checks), indent=2, allow_nan=False))
    else:
        print("\n".join(table_lines(checks)))
        print(f"\n{len(checks)} runs, step profile {name}")
        print("\n".join(map(str, levels(checks))))
    return 0 if all(level.reached for level in levels(checks)) else 1
