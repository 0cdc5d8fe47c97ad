"""Whole steps from the log of an engine, read and checked."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simulator.errors import UserError

COLUMNS = ("n_prefill", "prefill_tokens", "prefill_pairs", "n_decode", "decode_ctx")
"""What has to stand in a log of steps, besides the time."""
TIMES = ("cpu_ms", "wall_ms")
"""Columns with the time of a step; the first that is there is taken."""
BETWEEN = ("t_start_ms", "wall_ms", "n_admitted")
"""Columns that show what happens between two steps."""


@dataclass(frozen=True)
class StepLog:
    """Steps of one log.

    Attributes
    ----------
    name : str
        Name of the file.
    time : str
        Column that the times come from.
    table : DataFrame
        `COLUMNS` and `time_ms`, and `step` and those of `BETWEEN` where the log has them.
    """

    name: str
    time: str
    table: pd.DataFrame

    def pauses_ms(self) -> NDArray[np.float64]:
        """Return what lies between the end of each step and the next start, ms; NaN at the end.

        The start times may be on the wall clock although the times of the steps are not; then
        the wall time of the step tells where it ends.
        """
        period = self.table["t_start_ms"].shift(-1) - self.table["t_start_ms"]
        pauses: NDArray[np.float64] = (period - self.table["time_ms"]).to_numpy()
        if "wall_ms" in self.table:
            by_the_wall = (period - self.table["wall_ms"]).to_numpy()
            if np.nanmedian(by_the_wall) >= 0:
                return by_the_wall
        return pauses


def read_steps(path: Path, time: str | None = None) -> StepLog:
    """Read a log of steps.

    Parameters
    ----------
    path : pathlib.Path
        CSV file, plain or gzip (see docs/cost-model.md for the columns).
    time : str, optional
        Column with the times, ms; by default the first of `TIMES` that is there.

    Returns
    -------
    StepLog
        Its rows.

    Raises
    ------
    UserError
        One line that names file and rows: a cell that is no number, a time of zero or less, a
        step that holds nothing or contradicts itself, a step that is repeated or out of order.
    """
    raw = _read(path)
    column = time or next((name for name in TIMES if name in raw), TIMES[-1])
    for name in (*COLUMNS, column):
        if name not in raw:
            raise UserError(f"{path.name}: column {name} is missing in a log of steps")
    kept = [name for name in ("step", *COLUMNS, *BETWEEN) if name in raw]
    table = pd.DataFrame({name: pd.to_numeric(raw[name], errors="coerce") for name in kept})
    table["time_ms"] = pd.to_numeric(raw[column], errors="coerce")
    named = {"time_ms": column}
    for name in [*kept, "time_ms"]:
        _refuse(path, ~table[name].abs().lt(float("inf")), f"{named.get(name, name)} is no number")
    _refuse(path, table["time_ms"] <= 0, f"{column} is not above 0")
    _check_contents(path, table)
    if "step" in table:
        step = table["step"]
        _refuse(path, step.duplicated(), "repeats an earlier step")
        _refuse(path, step.diff() < 0, "step is smaller than in the row before")
    if "t_start_ms" in table:
        _refuse(path, table["t_start_ms"].diff() <= 0, "t_start_ms is not after the row before")
    return StepLog(path.name, column, table)


def _check_contents(path: Path, table: pd.DataFrame) -> None:
    """Refuse steps that cannot be."""
    for name in COLUMNS:
        wrong = (table[name] < 0) | (table[name] % 1 != 0)
        _refuse(path, wrong, f"{name} is not a whole number of at least 0")
    chunks, tokens, decodes = (table[name] for name in ("n_prefill", "prefill_tokens", "n_decode"))
    _refuse(path, chunks + decodes == 0, "the step holds nothing")
    _refuse(path, tokens < chunks, "fewer prefill_tokens than n_prefill")
    _refuse(path, (chunks == 0) & (tokens > 0), "prefill_tokens without n_prefill")
    _refuse(path, table["prefill_pairs"] < tokens, "fewer prefill_pairs than prefill_tokens")
    _refuse(path, table["decode_ctx"] < decodes, "decode_ctx is smaller than n_decode")


def _refuse(path: Path, wrong: "pd.Series[bool]", why: str, limit: int = 5) -> None:
    """Stop at rows that are wrong; the header is row 1."""
    rows = [int(index) + 2 for index in wrong.index[wrong]]
    if rows:
        shown = ", ".join(map(str, rows[:limit]))
        more = f" and {len(rows) - limit} more" if len(rows) > limit else ""
        raise UserError(f"{path.name}: row{'s' if len(rows) > 1 else ''} {shown}{more}: {why}")


def _read(path: Path) -> pd.DataFrame:
    try:
        table: pd.DataFrame = pd.read_csv(path, skip_blank_lines=False, low_memory=False)
    except OSError as error:
        raise UserError(f"{path}: cannot read steps: {error.strerror or error}") from error
    except (ValueError, EOFError) as error:
        raise UserError(f"{path.name}: not a CSV file: {error}") from error
    if table.empty:
        raise UserError(f"{path.name}: no steps")
    return table
