"""The tables of a sweep: a row a run, a row a point."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.experiments.grid import Point
from simulator.experiments.store import Store
from simulator.experiments.task import Row, Task

if TYPE_CHECKING:
    import pandas as pd


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
