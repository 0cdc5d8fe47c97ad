"""Kernel timings from CSV files of several layouts, brought into one form."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from simulator.calibrate.layouts import LAYOUTS
from simulator.cost.gpus import Gpu
from simulator.cost.models import Dtype
from simulator.errors import UserError

KEYS = {
    "linear": ("out_features", "in_features", "tokens"),
    "decode": ("q_heads", "kv_heads", "head_size", "batch", "context"),
    "prefill": ("q_heads", "kv_heads", "head_size", "past", "tokens"),
    "elementwise": ("num_bytes",),
    "all_reduce": ("num_gpus", "num_bytes"),
}
"""Operator to the columns that tell its measurements apart, the size last."""

MAY_BE_ZERO = ("past",)


@dataclass(frozen=True)
class Timings:
    """Timings of one GPU in one number format.

    Attributes
    ----------
    frames : dict of str to DataFrame
        Operator to its rows: the columns of `KEYS`, `time_us`, `curve` (rows of one curve share
        it), and where each comes from (`file`, `row`; the header is row 1).
    ignored : dict of str to int
        Reason to the number of rows that it left out.
    stand_ins : dict of str to int
        What stands for what, to the number of rows.
    files : tuple of str
        Names of the files, without folders.
    """

    frames: dict[str, pd.DataFrame]
    ignored: dict[str, int]
    stand_ins: dict[str, int]
    files: tuple[str, ...]


def read_timings(paths: Sequence[Path], gpu: Gpu, dtype: Dtype) -> Timings:
    """Read CSV files of kernel timings; the header tells which layout each has.

    Parameters
    ----------
    paths : sequence of pathlib.Path
        CSV files, possibly compressed (`.gz`).
    gpu : Gpu
        Rows of other GPUs are left out, where the layout names the GPU.
    dtype : {"bfloat16", "fp8"}
        Rows of other number formats are left out.

    Returns
    -------
    Timings
        The rows by operator.

    Raises
    ------
    UserError
        If a file cannot be read, has no known layout, or a cell is no number.
    """
    frames: dict[str, list[pd.DataFrame]] = {}
    ignored: dict[str, int] = {}
    stand_ins: dict[str, int] = {}
    for path in paths:
        table = _read(path)
        layout = next((known for known in LAYOUTS if known.needs <= set(table.columns)), None)
        if layout is None:
            raise UserError(
                f"{path.name}: unknown columns: expected operator and time_us, or a table of "
                "AIConfigurator or Vidur"
            )
        found = layout.read(table, gpu, dtype)
        for total, counts in ((ignored, found.ignored), (stand_ins, found.stand_ins)):
            for reason, count in counts.items():
                total[reason] = total.get(reason, 0) + count
        for operator, frame in found.frames.items():
            if len(frame):
                frames.setdefault(operator, []).append(_numeric(frame, operator, path.name))
    together = {
        operator: pd.concat(frames[operator], ignore_index=True)
        for operator in KEYS
        if operator in frames
    }
    return Timings(together, ignored, stand_ins, tuple(path.name for path in paths))


def merge_repeats(frame: pd.DataFrame, operator: str) -> pd.DataFrame:
    """Return one row per measurement point: the median over curves that share it.

    Parameters
    ----------
    frame : DataFrame
        Rows of one operator.
    operator : str
        A key of `KEYS`.

    Returns
    -------
    DataFrame
        Columns of `KEYS` and `time_us`, sorted.

    Examples
    --------
    >>> rows = pd.DataFrame({"num_bytes": [8, 8, 4], "time_us": [3.0, 5.0, 1.0]})
    >>> merge_repeats(rows, "elementwise").to_numpy().tolist()
    [[4.0, 1.0], [8.0, 4.0]]
    """
    return frame.groupby(list(KEYS[operator]), sort=True)["time_us"].median().reset_index()


def where(rows: pd.DataFrame, limit: int = 5) -> str:
    """Name the file and the first rows of what is wrong.

    Examples
    --------
    >>> where(pd.DataFrame({"file": ["a.csv"] * 2, "row": [3, 9]}))
    'a.csv: rows 3, 9'
    """
    name = rows["file"].iloc[0]
    numbers = rows.loc[rows["file"] == name, "row"].tolist()
    shown = ", ".join(str(number) for number in numbers[:limit])
    more = f" and {len(numbers) - limit} more" if len(numbers) > limit else ""
    return f"{name}: row{'s' if len(numbers) > 1 else ''} {shown}{more}"


def _read(path: Path) -> pd.DataFrame:
    """Read a file; `row` counts its lines, the header being the first."""
    try:
        table: pd.DataFrame = pd.read_csv(path, skip_blank_lines=False, low_memory=False)
    except OSError as error:
        raise UserError(f"{path}: cannot read timings: {error.strerror or error}") from error
    except (ValueError, EOFError) as error:
        raise UserError(f"{path.name}: not a CSV file: {error}") from error
    table["row"] = range(2, len(table) + 2)
    return table


def _numeric(frame: pd.DataFrame, operator: str, name: str) -> pd.DataFrame:
    """Return the columns of an operator as numbers, or name the rows that hold something else."""
    columns = [*KEYS[operator], "time_us"]
    missing = [column for column in columns if column not in frame]
    if missing:
        raise UserError(f"{name}: column {missing[0]} is missing for {operator} rows")
    numbers = pd.DataFrame(
        {column: pd.to_numeric(frame[column], errors="coerce") for column in columns}, dtype=float
    )
    numbers["file"] = name
    numbers["row"] = frame["row"]
    numbers["curve"] = frame["curve"]
    bad = ~numbers[columns].abs().lt(float("inf")).all(axis=1)
    if bad.any():
        rows = numbers[bad]
        column = next(c for c in columns if not rows[c].abs().lt(float("inf")).iloc[0])
        raise UserError(f"{where(rows)}: {column} is not a finite number ({operator})")
    return numbers
