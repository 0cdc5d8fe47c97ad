"""Sweeps: many runs, on all cores, kept one by one, continued where they were interrupted."""

import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.errors import RunError, UserError
from simulator.grid import Point
from simulator.result import MANIFEST, check_target, dump_json, versions
from simulator.spec import RunSpec

if TYPE_CHECKING:
    import pandas as pd

Row = dict[str, Any]


@dataclass(frozen=True)
class Task:
    """One run of a sweep."""

    point: Point
    replication: int

    @property
    def key(self) -> str:
        """Content hash of everything that determines the row: data, code and specification."""
        parts = [self.point.spec.content_hash(), str(self.replication), *versions().values()]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def run_task(spec: RunSpec, replication: int) -> Row:
    """Simulate one run; a run that fails is a row with its error."""
    from simulator.run import simulate

    try:
        return {"metrics": simulate(spec, replication=replication).metrics}
    except (RunError, UserError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


class Store:
    """The folder of a sweep: a file for every finished run.

    Parameters
    ----------
    folder : path
        New, or of the same sweep.
    definition : dict
        Points and seeds; a folder belongs to one definition.
    force : bool
        Replace the results of another sweep.

    Raises
    ------
    UserError
        If the folder belongs to something else or cannot be written.
    """

    def __init__(self, folder: Path, definition: dict[str, Any], *, force: bool = False) -> None:
        self.folder = folder
        manifest = folder / MANIFEST
        mine = {"kind": "sweep", "definition": definition, "versions": versions()}
        if manifest.exists() and _load(manifest) == mine:
            return
        check_target(folder, force)
        try:
            (folder / "points").mkdir(parents=True, exist_ok=True)
            dump_json(manifest, mine)
        except OSError as error:
            raise UserError(f"{folder}: cannot be written: {error.strerror}") from None

    def load(self, task: Task) -> Row | None:
        """Return the row of a finished run, or None; a damaged file counts as not finished."""
        row = _load(self.folder / "points" / f"{task.key}.json")
        return row if isinstance(row, dict) and ("metrics" in row or "error" in row) else None

    def keep(self, task: Task, row: Row) -> None:
        """Write the row of a finished run, all of it or nothing."""
        target = self.folder / "points" / f"{task.key}.json"
        try:
            handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".")
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(row, file, allow_nan=False)
            os.replace(temporary, target)
        except OSError as error:
            raise UserError(f"{target}: cannot be written: {error.strerror}") from None


def _load(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None


def run_sweep(
    tasks: Sequence[Task],
    store: Store | None = None,
    *,
    jobs: int = 1,
    progress: Callable[[int], object] = lambda done: None,
) -> list[Row]:
    """Run all tasks that are not in the store; return all rows in the order of the tasks.

    Parameters
    ----------
    tasks : sequence of Task
        The runs.
    store : Store, optional
        Keeps every row as soon as it is there.
    jobs : int
        Number of worker processes. The rows do not depend on it.
    progress : callable
        Told how many runs have been finished since the last call.
    """
    rows: dict[int, Row] = {}
    for index, task in enumerate(tasks):
        row = store.load(task) if store is not None else None
        if row is not None:
            rows[index] = row
    progress(len(rows))
    open_tasks = [(index, task) for index, task in enumerate(tasks) if index not in rows]
    # The longest runs first, so that no worker is left alone with one at the end.
    open_tasks.sort(key=lambda item: -_size(item[1].point.spec))
    for index, row in _execute(open_tasks, jobs):
        if store is not None:
            store.keep(tasks[index], row)
        rows[index] = row
        progress(1)
    return [rows[index] for index in range(len(tasks))]


def _size(spec: RunSpec) -> int:
    return getattr(spec.workload, "num_requests", None) or 20_000


def _execute(tasks: Sequence[tuple[int, Task]], jobs: int) -> Iterator[tuple[int, Row]]:
    if jobs == 1 or len(tasks) < 2:
        for index, task in tasks:
            yield index, run_task(task.point.spec, task.replication)
        return
    from joblib import Parallel, delayed

    pool = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
    yield from pool(delayed(_indexed)(i, t.point.spec, t.replication) for i, t in tasks)


def _indexed(index: int, spec: RunSpec, replication: int) -> tuple[int, Row]:
    return index, run_task(spec, replication)


def tables(tasks: Sequence[Task], rows: Sequence[Row]) -> tuple["pd.DataFrame", "pd.DataFrame"]:
    """Return the finished runs (parameters and all metrics) and the failed ones."""
    import pandas as pd

    done: list[Row] = []
    failed: list[Row] = []
    for task, row in zip(tasks, rows, strict=True):
        head = dict(task.point.values) | {
            "policy": task.point.spec.policy_kind,
            "replication": task.replication,
        }
        if "error" in row:
            failed.append(head | {"error": row["error"]})
        else:
            done.append(head | row["metrics"])
    return pd.DataFrame(done), pd.DataFrame(failed)


def write_tables(
    folder: Path, done: "pd.DataFrame", failed: "pd.DataFrame", summary: "pd.DataFrame"
) -> None:
    """Write the runs, the failed ones and the summary of the points.

    Raises
    ------
    UserError
        If a file cannot be written.
    """
    try:
        done.to_parquet(folder / "runs.parquet", compression="zstd", index=False)
        summary.to_csv(folder / "summary.csv", index=False)
        if len(failed):
            failed.to_parquet(folder / "failures.parquet", compression="zstd", index=False)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror}") from None


def summarise_points(frame: "pd.DataFrame", axes: Sequence[str]) -> "pd.DataFrame":
    """Return one row a point: mean over seeds of every metric, with a 95 % interval.

    Columns `X`, `X_ci_low` and `X_ci_high` for each metric X; the bounds are missing for a single
    seed.
    """
    import pandas as pd

    from simulator.stats import mean_interval

    keys = list(dict.fromkeys(["policy", *axes]))
    metrics = [name for name in frame if name not in (*keys, "replication")]
    rows: list[Row] = []
    for values, group in frame.groupby(keys, sort=False, dropna=False):
        row: Row = dict(zip(keys, values, strict=True))
        row["num_seeds"] = len(group)
        for name in metrics:
            sample = pd.to_numeric(group[name]).dropna().to_numpy(float)
            mean, low, high = mean_interval(sample)
            row.update({str(name): mean, f"{name}_ci_low": low, f"{name}_ci_high": high})
        rows.append(row)
    return pd.DataFrame(rows)
