"""`batchlab sweep`: many runs over axes of a specification, on all cores, resumable."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from simulator.errors import UserError
from simulator.grid import Point, combine, make_points, parse_axis, product, read_points, zipped
from simulator.report import sweep_text
from simulator.settings import Nested, merge, read_text
from simulator.spec import RunSpec, parse_yaml
from simulator.sweep import Store, Task, run_sweep, summarise_points, tables, write_tables

Words = Annotated[list[str] | None, Parameter(consume_multiple=True)]
Flag = Annotated[bool, Parameter(negative="")]


def sweep(
    spec: Path | None = None,
    /,
    *,
    grid: Words = None,
    zip_: Annotated[Words, Parameter(name="--zip")] = None,
    points: Path | None = None,
    seeds: int = 1,
    jobs: int = 1,
    out: Annotated[Path, Parameter(name=["--out", "-o"])] = Path("results/sweep"),
    dry_run: Flag = False,
    max_points: int = 1000,
    force: Flag = False,
    settings: Annotated[Nested | None, Parameter(parse=False)] = None,
) -> int:
    """Run a specification at every point of a grid, for several seeds.

    A key may be written in full (policy.max_wait_ms) or by its last part. `policy`,
    `workload` and `router` choose by name. An axis that means nothing under a policy
    collapses to one point there. Every finished run is kept at once: after an
    interruption the same command goes on where it stopped.

    For example:

      batchlab sweep --policy.kind window-pull --grid max_wait_ms=0,5,20 max_batch_size=1,8,32
      batchlab sweep base.yaml --grid policy=static,vllm-v1 request_rate=1,2,4 --seeds 10 --jobs 2

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
    jobs
        Worker processes. The results do not depend on it.
    out
        Folder for the results.
    dry_run
        Print the points and stop.
    max_points
        Refuse more points than this.
    force
        Replace the results of another sweep.
    """
    name = str(spec) if spec is not None else ""
    data = parse_yaml(read_text(spec), name) if spec is not None else {}
    base = merge({**RunSpec().to_dict(), **data}, settings or {})
    found = _points(base, grid or [], zip_ or [], points)
    if len(found) > max_points:
        raise UserError(f"{len(found)} points are more than --max-points {max_points}")
    if seeds < 1 or jobs < 1:
        raise UserError("--seeds and --jobs: expected at least 1")
    print(f"{len(found)} points x {seeds} seeds = {len(found) * seeds} runs", file=sys.stderr)
    if dry_run:
        for point in found:
            print("  ".join(f"{key}={value}" for key, value in point.values) or "(base)")
        return 0
    tasks = [Task(point, number) for point in found for number in range(seeds)]
    return _run(tasks, found, base, out, jobs, force)


def _points(base: Nested, grid: list[str], together: list[str], file: Path | None) -> list[Point]:
    axes = [parse_axis(text) for text in grid]
    explicit = read_points(read_text(file), str(file)) if file is not None else [{}]
    pairs = zipped([parse_axis(text) for text in together])
    wanted = combine(list(product(axes)), pairs)
    return make_points(base, [values | more for values in explicit for more in wanted])


def _run(
    tasks: list[Task], points: list[Point], base: Nested, out: Path, jobs: int, force: bool
) -> int:
    from tqdm import tqdm

    definition = {"points": [dict(p.values) for p in points], "base": base, "runs": len(tasks)}
    store = Store(out, definition, force=force)
    with tqdm(total=len(tasks), desc="sweep", unit="run", disable=None) as bar:
        rows = run_sweep(tasks, store, jobs=jobs, progress=bar.update)
    done, failed = tables(tasks, rows)
    axes = list(dict.fromkeys(key for point in points for key, _ in point.values))
    summary = summarise_points(done, axes) if len(done) else done
    write_tables(out, done, failed, summary)
    print(sweep_text(summary, axes))
    print(f"Results in {out}")
    for error in failed.get("error", [])[:3]:
        print(f"batchlab: a run failed: {error}", file=sys.stderr)
    return 3 if len(failed) else 0
