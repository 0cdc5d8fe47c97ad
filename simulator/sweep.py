"""Sweeps: many runs, on all cores, kept one by one, continued where they were interrupted."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.executors import Executor, Local
from simulator.grid import Point
from simulator.store import Store
from simulator.task import Done, Row, Task, perform

if TYPE_CHECKING:
    import pandas as pd

PROBE_S = 0.5
"""Runs are timed one by one for about this long before the others start, seconds."""

MAX_PROBES = 3
"""And no more than this many."""


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
    """
    watch = watch or Watch()
    rows: dict[int, Row] = {}
    for index, task in enumerate(tasks):
        row = (store.load(task) if store is not None else None) or cached(task)
        if row is not None:
            rows[index] = row
    todo = [(index, task) for index, task in enumerate(tasks) if index not in rows]
    watch.begin(tasks, [task for _, task in todo])
    for done in _execute(todo, executor or Local(), watch):
        if store is not None:
            store.keep(tasks[done.index], done.row)
        rows[done.index] = done.row
        watch.done(tasks[done.index], done.seconds)
    return [rows[index] for index in range(len(tasks))]


def _execute(todo: list[tuple[int, Task]], executor: Executor, watch: Watch) -> Iterator[Done]:
    """Time a few cheap runs here, say how fast they went, then hand out the others."""
    rest = dict(todo)
    probes: list[Done] = []
    for index, task in _cheapest(todo):
        if sum(done.seconds for done in probes) >= PROBE_S:
            break
        probes.append(perform(index, task.spec, task.replication))
        del rest[index]
        yield probes[-1]
    if rest and probes:
        size = sum(task.size for index, task in todo if index not in rest)
        seconds = sum(done.seconds for done in probes)
        watch.estimate(list(rest.values()), seconds / size, len(probes))
    # The longest first, so that no worker is left alone with one at the end.
    yield from executor.run(sorted(rest.items(), key=lambda item: -item[1].size))


def _cheapest(todo: list[tuple[int, Task]]) -> list[tuple[int, Task]]:
    """Return a few runs of the smallest size, from different ends of the list."""
    if len(todo) <= MAX_PROBES:
        return []
    least = min(task.size for _, task in todo)
    small = [item for item in todo if item[1].size == least]
    places = dict.fromkeys((0, len(small) - 1, len(small) // 2))
    return [small[place] for place in places]


def tables(tasks: Sequence[Task], rows: Sequence[Row]) -> tuple["pd.DataFrame", "pd.DataFrame"]:
    """Return the finished runs and the failed ones, a row for every point and seed.

    Columns: `policy` and the axes under their short names, `replication` and `point` (counted from
    0), all metrics (of a failed run its error), all keys of the specification under their full
    names.
    """
    import pandas as pd

    done: list[Row] = []
    failed: list[Row] = []
    heads = point_columns([task.point for task in tasks])
    numbers: dict[Point, int] = {}
    for task, row in zip(tasks, rows, strict=True):
        number = numbers.setdefault(task.point, len(numbers))
        head = heads[task.point] | {"replication": task.replication, "point": number}
        keys = flat(task.spec.to_dict())
        if "error" in row:
            failed.append(head | {"error": row["error"]} | keys)
        else:
            done.append(head | row["metrics"] | keys)
    return pd.DataFrame(done), pd.DataFrame(failed)


def point_columns(points: Iterable[Point]) -> dict[Point, Row]:
    """Return policy and axes of each point, the same columns for all: None where one is left out.

    Examples
    --------
    >>> from simulator.spec import RunSpec
    >>> list(point_columns([Point((("max_wait_ms", 5.0),), RunSpec())]).values())
    [{'policy': 'vllm-v1', 'max_wait_ms': 5.0}]
    """
    points = list(dict.fromkeys(points))
    axes: Row = dict.fromkeys(n for point in points for n, _ in point.values if n != "policy")
    return {
        point: {"policy": point.spec.policy_kind} | axes | dict(point.values) for point in points
    }


def flat(data: Mapping[str, Any], prefix: str = "") -> Row:
    """Return nested data as one level with dotted names; lists become JSON.

    Examples
    --------
    >>> flat({"measure": {"percentiles": [50, 99]}, "seed": 0})
    {'measure.percentiles': '[50, 99]', 'seed': 0}
    """
    found: Row = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = json.dumps(value) if isinstance(value, list) else value
    return found


def write_tables(
    store: Store, done: "pd.DataFrame", failed: "pd.DataFrame", summary: "pd.DataFrame"
) -> None:
    """Write the runs, the failed ones and the summary of the points.

    Raises
    ------
    UserError
        If a file cannot be written.
    """
    write_parquet(store, "runs.parquet", done)
    store.write("summary.csv", lambda path: summary.to_csv(path, index=False))
    if len(failed):
        write_parquet(store, "failures.parquet", failed)
    else:
        (store.folder / "failures.parquet").unlink(missing_ok=True)


def write_parquet(store: Store, name: str, frame: "pd.DataFrame") -> None:
    """Write a table as Parquet."""

    def writer(path: Path) -> None:
        frame.to_parquet(path, compression="zstd", index=False)

    store.write(name, writer)


def summarise_points(frame: "pd.DataFrame", axes: Sequence[str]) -> "pd.DataFrame":
    """Return one row a point: mean over seeds of every metric, with a 95 % interval.

    Columns `X`, `X_ci_low` and `X_ci_high` for each metric X; the bounds are missing for a single
    seed.
    """
    import pandas as pd

    from simulator.stats import mean_interval

    keys = list(dict.fromkeys(["point", "policy", *axes]))
    skipped = {*keys, "replication", "seed"}
    metrics = [str(name) for name in frame if name not in skipped and "." not in str(name)]
    rows: list[Row] = []
    for _, group in frame.groupby("point", sort=True):
        row: Row = {key: group[key].iloc[0] for key in keys}
        row["num_seeds"] = len(group)
        for name in metrics:
            sample = pd.to_numeric(group[name]).dropna().to_numpy(float)
            mean, low, high = mean_interval(sample)
            row.update({name: mean, f"{name}_ci_low": low, f"{name}_ci_high": high})
        rows.append(row)
    return pd.DataFrame(rows)
