"""`batchlab compare`: which metric moved between specifications, and by how much."""

import json as js
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

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
    check_figure,
)
from simulator.compare import METRICS, Difference
from simulator.compare import compare as compare_runs
from simulator.compare.text import compare_text
from simulator.errors import RunError, UserError
from simulator.experiments.grid import Point, make_points
from simulator.experiments.grid_file import make_plan, split_section
from simulator.experiments.store import TIMING, Store, load_row
from simulator.experiments.sweep import run_sweep
from simulator.experiments.sweep_tables import tables, write_parquet
from simulator.experiments.task import Row, Task
from simulator.metrics import Metrics
from simulator.result import MANIFEST
from simulator.settings import Nested, read_text
from simulator.spec import find_policy, parse_yaml


@dataclass(frozen=True)
class Side:
    """One of the things compared, and a folder in which some of its runs may lie."""

    name: str
    point: Point
    folder: Path | None = None


def compare(
    *sources: str,
    seeds: int = 10,
    metrics: Words = None,
    all_: Annotated[Flag, Parameter(name="--all")] = False,
    confidence: float = 0.95,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    force: Flag = False,
    figure: Path | None = None,
    json: Flag = False,
    where: Where = HERE,
    short: Short = NOTHING,
    settings: Settings = None,
) -> int:
    """Say which metric moved between specifications, on the same seeds.

    Everything is compared with the first. A source is a YAML file, the name of a
    policy, the folder of a run, the folder of a sweep (all its points), or one
    point of a sweep as FOLDER#NUMBER, counted from 0. Runs that a sweep has done
    already are not done again. Options that set keys apply to all.

    For example:

      batchlab compare vllm-v0 vllm-v1 sarathi --request-rate 8
      batchlab compare a.yaml b.yaml --seeds 20 --jobs 2
      batchlab compare results/sweep#0 results/sweep#3 --figure moved.pdf
      batchlab compare results/run a.yaml --request-rate 8 --json

    Parameters
    ----------
    sources
        What is compared, two or more points in all.
    seeds
        Replications; the same for all.
    metrics
        Metrics to compare, instead of the usual ones.
    all_
        Compare every metric.
    confidence
        Probability that all intervals of a table hold.
    out
        Folder for the runs and the differences.
    force
        Replace the results of another comparison.
    figure
        Also draw the differences into this file (png, pdf or svg).
    json
        Print one JSON object instead of tables.
    """
    if seeds < 2:
        raise UserError(f"--seeds {seeds}: expected at least 2, for an interval")
    if not 0 < confidence < 1:
        raise UserError(f"--confidence {confidence:g}: expected a number between 0 and 1")
    sides = _named([side for text in sources for side in _read(text, settings, short)])
    if len(sides) < 2:
        raise UserError(f"{len(sides)} specification to compare; expected two or more")
    _check_seeds(sides)
    check_figure(figure)
    executor = where.executor()
    tasks = [Task(side.point, number) for side in sides for number in range(seeds)]
    folders = {side.point: side.folder for side in sides}
    store = None
    if out is not None:
        store = Store(out, _definition(sides, seeds), kind="compare", force=force)

    def cached(task: Task) -> Row | None:
        folder = folders[task.point]
        return None if folder is None else load_row(folder, task)

    bar = Bar("compare", executor, store.timing() if store else None)
    try:
        rows = run_sweep(tasks, store, executor=executor, watch=bar, cached=cached)
    finally:
        bar.close()
        with suppress(UserError):
            if store is not None:
                store.write_json(TIMING, bar.timing())
    runs = _by_side(sides, tasks, rows, seeds)
    names = _metrics(runs, metrics, every=all_)
    first, *others = sides
    found = {
        other.name: compare_runs(runs[first.name], runs[other.name], names, confidence)
        for other in others
    }
    if store is not None:
        _write(store, tasks, rows, found)
    if figure is not None:
        _draw(found, first.name, figure)
    if json:
        print(js.dumps(_as_dict(sides, seeds, confidence, found), indent=2, allow_nan=False))
    else:
        print(compare_text(first.name, found, seeds, confidence))
    return 0


def _read(text: str, settings: Nested | None, short: Short) -> list[Side]:
    """Return what a word of the command line stands for."""
    path, mark, number = text.partition("#")
    folder = Path(path)
    data, section = split_section(_data(path), path)
    points = make_points(base_of(data, settings, short), make_plan(section).combinations())
    names = [f"{path}#{index}" for index in range(len(points))] if len(points) > 1 else [path]
    kept = folder if (folder / MANIFEST).is_file() else None
    sides = [
        Side(name, replace(point, values=(("specification", name),)), kept)
        for name, point in zip(names, points, strict=True)
    ]
    if not mark:
        return sides
    if not number.isdecimal() or int(number) >= len(points):
        raise UserError(f"{text}: expected a point from 0 to {len(points) - 1} after #")
    return [sides[int(number)]]


def _data(name: str) -> Nested:
    """Return the settings in a file or folder, or those of a policy of that name."""
    path = Path(name)
    if path.is_dir():
        if not (path / "spec.yaml").is_file():
            raise UserError(f"{name}: holds no spec.yaml; expected the folder of a run or a sweep")
        path = path / "spec.yaml"
    if path.exists():
        return parse_yaml(read_text(path), str(path))
    try:
        find_policy(name)
    except ValueError as error:
        raise UserError(f"{name}: is no file, no folder and no policy ({error})") from None
    return {"policy": name}


def _named(sides: list[Side]) -> list[Side]:
    """Check that nothing is there twice."""
    for index, side in enumerate(sides):
        if side.name in {other.name for other in sides[:index]}:
            raise UserError(f"{side.name}: given twice")
    return sides


def _check_seeds(sides: list[Side]) -> None:
    """Check that equal replications mean equal random numbers."""
    first = sides[0]
    for side in sides:
        if side.point.spec.seed != first.point.spec.seed:
            raise UserError(
                f"{side.name}: seed {side.point.spec.seed}, but {first.name}: seed "
                f"{first.point.spec.seed}; pairs need the same one (--seed sets it for all)"
            )


def _definition(sides: Sequence[Side], seeds: int) -> dict[str, Any]:
    return {
        "base": sides[0].point.spec.to_dict(),
        "specs": {side.name: side.point.spec.content_hash() for side in sides},
        "seeds": seeds,
    }


def _by_side(
    sides: Sequence[Side], tasks: Sequence[Task], rows: Sequence[Row], seeds: int
) -> dict[str, list[Metrics]]:
    for task, row in zip(tasks, rows, strict=True):
        if "error" in row:
            raise RunError(f"{task.point.title}, replication {task.replication}: {row['error']}")
    metrics = [row["metrics"] for row in rows]
    return {side.name: metrics[i * seeds : (i + 1) * seeds] for i, side in enumerate(sides)}


def _metrics(
    runs: dict[str, list[Metrics]], words: list[str] | None, *, every: bool
) -> Sequence[str]:
    first = next(iter(runs.values()))
    if words:
        return [name for text in words for name in text.split(",")]
    if every:
        return list(first[0])
    return [name for name in METRICS if any(run.get(name) is not None for run in first)]


def _as_dict(
    sides: Sequence[Side], seeds: int, confidence: float, found: dict[str, list[Difference]]
) -> dict[str, Any]:
    return {
        "first": sides[0].name,
        "seeds": seeds,
        "confidence": confidence,
        "specs": {side.name: side.point.spec.to_dict() for side in sides},
        "differences": {name: [d.to_dict() for d in rows] for name, rows in found.items()},
    }


def _write(
    store: Store, tasks: list[Task], rows: list[Row], found: dict[str, list[Difference]]
) -> None:
    import pandas as pd

    done, _ = tables(tasks, rows)
    write_parquet(store, "runs.parquet", done)
    frame = pd.DataFrame(
        {"specification": name} | d.to_dict() for name, rows_ in found.items() for d in rows_
    )
    store.write("differences.csv", lambda path: frame.to_csv(path, index=False))
    store.prune(tasks)
    print(f"Results in {store.folder}", file=sys.stderr)


def _draw(found: dict[str, list[Difference]], first: str, path: Path) -> None:
    from simulator import plots
    from simulator.plots import compare as plots_compare

    plots.save_whole(plots_compare.forest(found, first), path)
