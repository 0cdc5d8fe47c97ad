"""Fit a step-level profile to whole steps of an engine, and judge it on steps held out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import nnls

from simulator.calibrate import write_profile
from simulator.cost.step_profile import RANGES, TERMS, StepProfile
from simulator.errors import UserError
from simulator.held_out import FEWEST_ROWS, HELD_OUT, HeldOut, errors_lines, errors_records
from simulator.step_rows import StepLog, read_steps

FEWEST_STEPS = 20
"""Steps that a fit needs."""
DIGITS = 6
"""Significant digits of a coefficient."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class StepCalibration:
    """A step-level profile and its errors on steps that were held out.

    Attributes
    ----------
    profile : StepProfile
        Fitted to all steps.
    num_steps : int
        How many they are.
    held_out : tuple of HeldOut
        Errors by kind of step and split.
    """

    profile: StepProfile
    num_steps: int
    held_out: tuple[HeldOut, ...]

    @property
    def title(self) -> str:
        """What was measured, for a figure."""
        return f"{self.num_steps} steps of an engine"

    def text(self) -> str:
        """Return the coefficients and the table of errors."""
        about = self.profile.about
        lines = [f"{self.num_steps} steps of {', '.join(about['files'])}, {about['time']}"]
        lines += [f"{us:>12.6g} us  {name}" for name, us in self.profile.coefficients_us.items()]
        return "\n".join([*lines, "", *errors_lines(self.held_out)])

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "steps": self.num_steps,
            "about": dict(self.profile.about),
            "coefficients_us": dict(self.profile.coefficients_us),
            "largest": dict(self.profile.largest),
            "errors": errors_records(self.held_out),
        }

    def save(self, path: Path, *, force: bool = False) -> None:
        """Write the profile, for `StepLinearSpec(profile=PATH)`.

        Raises
        ------
        UserError
            If the file exists and `force` is False, or cannot be written.
        """
        write_profile(path, self.profile.encode(), force=force)


def calibrate_steps(
    paths: Sequence[Path],
    *,
    time: str | None = None,
    pauses_us: Mapping[str, float] | None = None,
    source: str = "own measurements",
    licence: str = "",
    seed: int = 0,
) -> StepCalibration:
    """Fit a profile to logs of whole steps.

    Parameters
    ----------
    paths : sequence of pathlib.Path
        CSV files of steps in the documented schema.
    time : str, optional
        Column with the time of a step, ms.
    pauses_us : mapping of str to float, optional
        `PAUSES` that are known from elsewhere, µs; by default what the log shows.
    source, licence : str
        Where the steps come from and under which terms; stored in the profile.
    seed : int
        Seed of the random split.

    Returns
    -------
    StepCalibration
        The profile, fitted to all steps, and its errors when parts of them are held out.

    Raises
    ------
    UserError
        One line that names file and rows.

    Notes
    -----
    Non-negative least squares of the *relative* error over the terms of `StepLinearCost`: no
    part of a step takes less than no time, and short steps count as much as long ones. Pauses
    are medians of what the log shows between two steps, and 0 if it does not.
    """
    if not paths:
        raise UserError("no steps given: expected at least one CSV file")
    logs = [read_steps(path, time) for path in paths]
    table = pd.concat([log.table for log in logs], ignore_index=True)
    if len(table) < FEWEST_STEPS:
        raise UserError(f"{len(table)} steps: a fit needs at least {FEWEST_STEPS}")
    counts, times = counted(table), table["time_ms"].to_numpy() * 1e3
    about = {
        "source": source,
        "licence": licence,
        "files": [log.name for log in logs],
        "steps": len(table),
        "time": logs[0].time,
        "how_made": "batchlab calibrate --steps",
    }
    largest = {name: float(counts[:, list(TERMS).index(name)].max()) for name in RANGES}
    coefficients = dict(zip(TERMS, _rounded(_fit(counts, times)), strict=True))
    profile = StepProfile(coefficients | _pauses(logs) | dict(pauses_us or {}), largest, about)
    return StepCalibration(profile, len(table), _judge(counts, times, seed))


def counted(table: pd.DataFrame) -> Floats:
    """Return how often each of `TERMS` occurs in each step.

    Examples
    --------
    >>> step = {"n_prefill": 1, "prefill_tokens": 4, "prefill_pairs": 10}
    >>> counted(pd.DataFrame([step | {"n_decode": 2, "decode_ctx": 9}])).tolist()
    [[1.0, 4.0, 10.0, 1.0, 2.0, 9.0, 1.0]]
    """
    columns = {
        "step": np.ones(len(table)),
        "prefill_token": table["prefill_tokens"],
        "prefill_pair": table["prefill_pairs"],
        "prefill_chunk": table["n_prefill"],
        "decode": table["n_decode"],
        "context_token": table["decode_ctx"],
        "any_decode": table["n_decode"] > 0,
    }
    return np.column_stack([np.asarray(columns[name], dtype=np.float64) for name in TERMS])


def _fit(counts: Floats, times: Floats) -> Floats:
    """Return coefficients, µs, that minimise the squared relative error."""
    scale = np.maximum(counts.max(axis=0), 1.0)
    found, _ = nnls(counts / scale / times[:, None], np.ones(len(times)))
    return np.asarray(found / scale)


def _rounded(values: Floats) -> list[float]:
    return [float(f"{value:.{DIGITS}g}") for value in values]


def _pauses(logs: Sequence[StepLog]) -> dict[str, float]:
    """Return the medians of what happens between two steps, µs."""
    pauses, first = [], []
    for log in logs:
        table = log.table
        if "t_start_ms" not in table or "n_admitted" not in table:
            continue
        pause = log.pauses_ms()[:-1] * 1e3
        new = table["n_admitted"].to_numpy()[1:]
        pauses.append(pause[new == 0])
        first.append((pause / np.maximum(new, 1))[new > 0])
    if not pauses or not sum(map(len, pauses)):
        return {"between_steps": 0.0, "new_request": 0.0}
    usual = max(float(np.median(np.concatenate(pauses))), 0.0)
    added = np.concatenate(first)
    extra = float(np.median(added)) - usual if len(added) else 0.0
    return {"between_steps": round(usual, 1), "new_request": round(max(extra, 0.0), 1)}


def _judge(counts: Floats, times: Floats, seed: int) -> tuple[HeldOut, ...]:
    """Fit without some steps and predict them: a random fifth, and the largest of a kind."""
    decodes = counts[:, list(TERMS).index("decode")] > 0
    prompts = counts[:, list(TERMS).index("prefill_chunk")] > 0
    kinds = {
        "decodes": decodes & ~prompts,
        "prompts": prompts & ~decodes,
        "mixed": decodes & prompts,
    }
    random = np.random.default_rng(seed).random(len(times)) < HELD_OUT
    fitted, largest = counts @ _fit(counts, times), np.zeros(len(times), dtype=bool)
    for of_kind in kinds.values():
        if of_kind.any():
            largest |= of_kind & (fitted > np.quantile(fitted[of_kind], 1 - HELD_OUT))
    judged = []
    for split, held in (("interior", random), ("extrapolation", largest)):
        found = _fit(counts[~held], times[~held])
        for kind, of_kind in kinds.items():
            chosen = held & of_kind
            if chosen.sum() < FEWEST_ROWS:
                judged.append(HeldOut(kind, split, int(chosen.sum()), np.empty(0), np.empty(0)))
                continue
            predicted = counts[chosen] @ found
            judged.append(HeldOut(kind, split, int(chosen.sum()), times[chosen], predicted))
    return tuple(judged)
