"""`batchlab sweep`: many runs over axes of a specification, on all cores, resumable."""

import sys
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import yaml
from cyclopts import Parameter

from simulator.commands.base import (
    HERE,
    NOTHING,
    Bar,
    Flag,
    Settings,
    Short,
    Where,
    Words,
    base_of,
    read_file,
)
from simulator.errors import UserError
from simulator.experiments.executors import Executor
from simulator.experiments.fingerprint import inputs
from simulator.experiments.grid import Point, make_points, parse_axis, read_points
from simulator.experiments.grid_file import SECTION, Plan, make_plan, split_section
from simulator.experiments.store import TIMING, Store
from simulator.experiments.sweep import definition, run_sweep
from simulator.experiments.sweep_tables import summarise_points, tables, write_tables
from simulator.experiments.task import Row, Task
from simulator.report import sweep_text
from simulator.settings import Nested, read_text


def sweep(
    spec: Path | None = None,
    /,
    *,
    grid: Words = None,
    zip_: Annotated[Words, Parameter(name="--zip")] = None,
    points: Path | None = None,
    seeds: int | None = None,
    out: Annotated[Path, Parameter(name=["--out", "-o"])] = Path("results/sweep"),
    dry_run: Flag = False,
    max_points: int | None = None,
    yes: Flag = False,
    force: Flag = False,
    where: Where = HERE,
    short: Short = NOTHING,
    settings: Settings = None,
) -> int:
    """Run a specification at every point of a grid, for several seeds.

    A key may be written in full (policy.max_wait_ms) or by its last part.
    `policy`, `workload` (preset or trace file) and `router` choose by name. An
    axis that means nothing under a policy collapses to one point there. All
    points meet the same random numbers. Every finished run is kept at once:
    after an interruption the same command goes on where it stopped. Axes and
    seeds may also stand in the file, in a section `sweep`.

    For example:

      batchlab sweep --policy.kind window-pull --grid max_wait_ms=0,5,20
      batchlab sweep base.yaml --grid request_rate=1,2,4 --seeds 10
      batchlab sweep base.yaml --grid max_batch_size=1,8,32 --jobs 2 -o results/b

    Parameters
    ----------
    spec
        YAML file with the specification that all points share.
    grid
        Axes NAME=VALUE,VALUE,...; all combinations are run.
    zip_
        Axes of equal length that vary together.
    points
        JSON file with a list of objects, one for each point.
    seeds
        Replications of every point; the same at all points.
    out
        Folder for the results.
    dry_run
        Print the points and stop.
    max_points
        Ask before more points than this are run (1000).
    yes
        Do not ask.
    force
        Replace the results of another sweep.
    """
    data, name = read_file(spec)
    data, section = split_section(data, name)
    base = base_of(data, settings, short)
    explicit = read_points(read_text(points), str(points)) if points is not None else []
    axes = [[parse_axis(text) for text in texts or ()] for texts in (grid, zip_)]
    plan = make_plan(section, axes[0], axes[1], explicit)
    number = section.seeds if seeds is None else seeds
    if number < 1:
        raise UserError(f"--seeds {number}: expected at least 1")
    executor = where.executor()
    _confirm(plan, section.max_points if max_points is None else max_points, yes or dry_run)
    found = make_points(base, plan.combinations())
    print(f"{len(found)} points x {number} seeds = {len(found) * number} runs", file=sys.stderr)
    if dry_run:
        print("\n".join(point.title for point in found))
        return 0
    store = Store(out, definition(base, found, number), force=force)
    tasks = [Task(point, index) for point in found for index in range(number)]
    code = _run(tasks, found, store, executor)
    _write_inputs(store, base, plan, tasks)
    return code


def _confirm(plan: Plan, most: int, yes: bool) -> None:
    """Ask on a terminal, or else refuse, before more points than wanted are run."""
    number = plan.count()
    if number <= most or yes:
        return
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise UserError(f"{number} points are more than --max-points {most}; add --yes to run them")
    print(f"{number} points are more than --max-points {most}. Run them? [y/N] ",
          end="", file=sys.stderr, flush=True)  # fmt: skip
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        raise UserError("not confirmed; nothing was run")


def _run(tasks: list[Task], points: list[Point], store: Store, executor: Executor) -> int:
    bar = Bar("sweep", executor, store.timing())
    try:
        rows = run_sweep(tasks, store, executor=executor, watch=bar)
    finally:
        bar.close()
        with suppress(UserError):  # of an error before it, which matters more
            store.write_json(TIMING, bar.timing())
    done, failed = tables(tasks, rows)
    axes = list(dict.fromkeys(key for point in points for key, _ in point.values))
    summary = summarise_points(done, axes) if len(done) else done
    write_tables(store, done, failed, summary)
    print(sweep_text(summary, axes))
    print(f"Results in {store.folder}")
    _tell_failures(tasks, rows)
    return 3 if len(failed) else 0


def _tell_failures(tasks: list[Task], rows: list[Row]) -> None:
    failed = [(task, row["error"]) for task, row in zip(tasks, rows, strict=True) if "error" in row]
    for task, error in failed[:3]:
        what = f"{task.point.title}, replication {task.replication}"
        print(f"batchlab: a run failed: {what}: {error}", file=sys.stderr)
    if len(failed) > 3:
        print(f"batchlab: and {len(failed) - 3} more", file=sys.stderr)


def _write_inputs(store: Store, base: Nested, plan: Plan, tasks: list[Task]) -> None:
    """Write the file that repeats the sweep, and the hashes of all files that went into it."""
    seeds = 1 + max(task.replication for task in tasks)
    section = {"grid": plan.grid, "zip": plan.zip, "points": plan.points, "seeds": seeds}
    kept = {key: value for key, value in section.items() if value}
    text = yaml.safe_dump({**base, SECTION: kept}, sort_keys=False, allow_unicode=True)
    store.write_text("spec.yaml", text)
    files: dict[str, str] = {}
    for task in tasks:
        files |= inputs(task.spec)
    store.write_json("inputs.json", dict(sorted(files.items())))
    store.prune(tasks)
