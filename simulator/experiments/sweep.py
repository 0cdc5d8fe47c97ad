"""Sweeps: many runs, on all cores, kept one by one, continued where they were interrupted."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.errors import RunError
from simulator.experiments.executors import Executor, Local
from simulator.experiments.grid import Point, Values, make_points
from simulator.experiments.grid_file import Plan
from simulator.experiments.store import Store
from simulator.experiments.sweep_tables import tables
from simulator.experiments.task import Done, Row, Task
from simulator.settings import Nested
from simulator.spec import RunSpec
from simulator.wall_limit import check_limit

if TYPE_CHECKING:
    import pandas as pd

PROBE_S = 0.5
"""Time of the runs from which the time of the others is estimated, seconds."""

MAX_PROBES = 3
"""And no more than so many runs."""


class Watch:
    """Told about the course of a sweep; does nothing by itself."""

    def begin(self, tasks: Sequence[Task], todo: Sequence[Task]) -> None:
        """Hear of all runs, and of those that have to be done."""

    def estimate(self, todo: Sequence[Task], seconds_per_size: float, num_probes: int) -> None:
        """Hear how fast some runs went, before the others are done."""

    def done(self, task: Task, seconds: float) -> None:
        """Hear that a run is finished."""


def run_sweep(
    tasks: Sequence[Task],
    store: Store | None = None,
    *,
    executor: Executor | None = None,
    watch: Watch | None = None,
    cached: Callable[[Task], Row | None] = lambda task: None,
) -> list[Row]:
    """Run all tasks that are not in the store; return all rows in the order of the tasks.

    Parameters
    ----------
    tasks : sequence of Task
        The runs.
    store : Store, optional
        Keeps every row as soon as it is there.
    executor : Local or Dask, optional
        Where the runs are done; in this process if left out. The rows do not depend on it.
    watch : Watch, optional
        Told what happens.
    cached : callable, optional
        Another place where the row of a task may be found.

    Raises
    ------
    UserError
        If the executor has a limit that cannot be kept here (`check_limit`).
    """
    watch, executor = watch or Watch(), executor or Local()
    check_limit(executor.timeout_s)
    rows: dict[int, Row] = {}
    for index, task in enumerate(tasks):
        row = (store.load(task) if store is not None else None) or cached(task)
        if row is not None:
            rows[index] = row
    todo = [(index, task) for index, task in enumerate(tasks) if index not in rows]
    watch.begin(tasks, [task for _, task in todo])
    for done in _execute(todo, executor, watch):
        if store is not None:
            store.keep(tasks[done.index], done.row)
        rows[done.index] = done.row
        watch.done(tasks[done.index], done.seconds)
    return [rows[index] for index in range(len(tasks))]


def _execute(todo: list[tuple[int, Task]], executor: Executor, watch: Watch) -> Iterator[Done]:
    """Have the runs done, and say once how fast the first of them went."""
    rest = dict(todo)
    seconds, size, is_told = 0.0, 0, len(todo) <= MAX_PROBES
    for number, done in enumerate(executor.run(_in_order(todo)), start=1):
        seconds, size = seconds + done.seconds, size + rest.pop(done.index).size
        yield done
        if not is_told and (seconds >= PROBE_S or number == MAX_PROBES):
            watch.estimate(list(rest.values()), seconds / size, number)
            is_told = True


def _in_order(todo: list[tuple[int, Task]]) -> list[tuple[int, Task]]:
    """Return a few runs of the smallest size, to be timed, then the others.

    The longest of those come first, so that no worker is left alone with one at the end.
    """
    least = min((task.size for _, task in todo), default=0)
    small = [index for index, task in todo if task.size == least]
    early = {small[place] for place in (0, len(small) - 1, len(small) // 2)} if small else set()
    return sorted(todo, key=lambda item: (item[0] not in early, -item[1].size))


def sweep_table(
    base: RunSpec | Nested,
    grid: Mapping[str, Sequence[Any]] | None = None,
    points: Sequence[Values] = (),
    *,
    seeds: int = 1,
    jobs: int = 1,
    folder: str | Path | None = None,
    timeout_s: float | None = None,
) -> "pd.DataFrame":
    """Run a specification at every point of a grid, and return a row for every point and seed.

    Parameters
    ----------
    base : RunSpec or dict
        What all points share.
    grid : dict, optional
        Key of the specification to list of values; all combinations are run.
    points : sequence of dict, optional
        Explicit points.
    seeds : int
        Replications of every point, with the same random numbers at all points.
    jobs : int
        Worker processes.
    folder : path, optional
        Keeps finished runs, as `batchlab sweep -o` does.
    timeout_s : float, optional
        Wall-clock time that a run may take, seconds.

    Returns
    -------
    pandas.DataFrame
        See `tables`.

    Raises
    ------
    RunError
        If a run fails, or takes too long.

    Examples
    --------
    >>> base = {"cost": {"kind": "fixed", "step_ms": 10}, "workload": {"name": "demo-chat",
    ...         "num_requests": 20}}
    >>> frame = sweep_table(base, {"max_num_seqs": [1, 8]}, seeds=2)
    >>> frame[["max_num_seqs", "replication"]].to_numpy().tolist()
    [[1, 0], [1, 1], [8, 0], [8, 1]]
    """
    data = base.to_dict() if isinstance(base, RunSpec) else {**RunSpec().to_dict(), **base}
    axes = {name: list(values) for name, values in (grid or {}).items()}
    plan = Plan(axes, points=[dict(point) for point in points])
    found = make_points(data, plan.combinations())
    tasks = [Task(point, number) for point in found for number in range(seeds)]
    store = None if folder is None else Store(Path(folder), definition(data, found, seeds))
    try:
        rows = run_sweep(tasks, store, executor=Local(jobs, timeout_s))
    finally:
        if store is not None:
            store.close()
    done, failed = tables(tasks, rows)
    if len(failed):
        raise RunError(str(failed["error"].iloc[0]))
    return done


def definition(base: Nested, points: Sequence[Point], seeds: int) -> Row:
    """Return what a folder of a sweep belongs to."""
    return {
        "base": base,
        "points": [dict(point.values) for point in points],
        "spec_sha256": [point.spec.content_hash() for point in points],
        "seeds": seeds,
    }
