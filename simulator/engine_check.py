"""How well we reproduce recorded runs of a real engine: token by token, and in the mean.

*Mechanics*: our engine and policy get the measured durations of the steps instead of a cost
model; then every token has to come when it came. *Timing*: they get a step-level profile, scaled
by how slow the machine was in that run, and the means of the latencies are compared.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.calibrate.steps import counted
from simulator.clock import to_grid
from simulator.cost.base import StepWork
from simulator.cost.step_linear import StepLinearCost
from simulator.cost.step_profile import TERMS, StepProfile
from simulator.engine_run import EngineRun, simulate_run

Floats = NDArray[np.float64]

MECHANICS_MS = 0.2
"""Furthest that a token may come from where it came."""
LEVELS = {"e2e": (0.02, 0.06), "tpot": (0.015, 0.05), "ttft": (0.05, 0.12)}
"""Latency to the greatest error of its mean in the median run, and in nine runs of ten."""

HANDLING = 0.25
"""Part of the pause between two steps after which a token is out, without adding requests."""
LONGEST_PAUSE_MS = 0.6
"""Pauses longer than that are idle time; then the engine takes its usual pause first."""


@dataclass(frozen=True)
class RunCheck:
    """What was found for one run.

    Attributes
    ----------
    name : str
        Name of the run.
    mechanics_ms : float
        Furthest distance of a token from where it came, ms; infinite if a step or the number of
        tokens differs.
    different_step : int or None
        First step whose contents differ.
    slowness : float
        Measured time of all steps over the time that the profile gives for the same steps.
    measured_ms, simulated_ms : dict of str to float
        Means of TTFT, TPOT and E2E.
    """

    name: str
    mechanics_ms: float
    different_step: int | None
    slowness: float
    measured_ms: dict[str, float]
    simulated_ms: dict[str, float]

    def error(self, latency: str) -> float:
        """Return the signed relative error of a mean latency."""
        return self.simulated_ms[latency] / self.measured_ms[latency] - 1.0


@dataclass(frozen=True)
class Level:
    """A level, what was reached, and how many runs bear on it."""

    name: str
    greatest: float
    found: float
    unit: str

    @property
    def reached(self) -> bool:
        """Whether the level is reached."""
        return self.found <= self.greatest

    def __str__(self) -> str:
        """Return it as a line."""
        scale = 100.0 if self.unit == "%" else 1.0
        verdict = "PASS" if self.reached else "FAIL"
        found, most = self.found * scale, self.greatest * scale
        return f"{self.name:<32}{found:>8.2f} {self.unit:<3}(at most {most:g})  {verdict}"


def check_run(run: EngineRun, profile: StepProfile) -> RunCheck:
    """Replay a run in both ways.

    Parameters
    ----------
    run : EngineRun
        The recording.
    profile : StepProfile
        Step times, fitted to other steps of the same engine on the same machine.
    """
    furthest, different = mechanics(run)
    slowness = slowness_of(run, profile)
    cost = StepLinearCost(profile, slowness)
    times = simulate_run(run, cost, run.arrival_ms / 1e3)
    simulated = [np.array(tokens) * 1e3 for tokens in times]
    return RunCheck(
        run.name,
        furthest,
        different,
        slowness,
        _means(run, run.token_ms),
        _means(run, simulated),
    )


def slowness_of(run: EngineRun, profile: StepProfile) -> float:
    """Return the time of all steps of a run over what the profile gives for the same steps."""
    coefficients = np.array([profile.coefficients_us[name] for name in TERMS])
    predicted_us = counted(run.steps.table) @ coefficients
    return float(run.steps.table["time_ms"].sum() * 1e3 / predicted_us.sum())


def mechanics(run: EngineRun) -> tuple[float, int | None]:
    """Simulate a run with the measured durations of its steps.

    Returns
    -------
    furthest : float
        Greatest distance of a token from where it came, ms.
    different : int or None
        First step that does not hold what it held.

    Notes
    -----
    A step lasts from the end of the step before, or from the arrival that ends an idle time, to
    its own end: its start plus its time plus a quarter of the pause that follows, in which the
    engine hands out the tokens. A request that arrives in a pause and is still added to the next
    step is submitted at the end of the step before.
    """
    ends = _ends(run)
    arrivals = np.array([to_grid(ms / 1e3) for ms in run.arrival_ms])
    starts = np.concatenate([[0.0], ends[:-1]])
    last_token = np.array([tokens[-1] for tokens in run.token_ms])
    t_starts = run.steps.table["t_start_ms"].to_numpy()
    for step in np.unique(run.added_before):
        group = run.added_before == step
        before = run.added_before < step
        t_start = t_starts[step]
        if not (last_token[before] > t_start).any():  # the engine was idle
            starts[step] = max(starts[step], arrivals[group].min())
        group &= run.arrival_ms <= t_start
        arrivals[group] = np.minimum(arrivals[group], starts[step])
    cost = _Measured(run, ends - starts)
    times = simulate_run(run, cost, arrivals, fast=False)
    if any(len(found) != len(real) for found, real in zip(times, run.token_ms, strict=True)):
        return float("inf"), cost.different
    distances = [
        np.abs(np.array(found) * 1e3 - real).max()
        for found, real in zip(times, run.token_ms, strict=True)
    ]
    return float(max(distances)), cost.different


def levels(checks: Sequence[RunCheck]) -> list[Level]:
    """Return the levels over all runs, and what was reached."""
    found = [Level("furthest token", MECHANICS_MS, max(c.mechanics_ms for c in checks), "ms")]
    for latency, (median, most) in LEVELS.items():
        errors = np.abs([check.error(latency) for check in checks])
        for greatest, share, words in ((median, 0.5, "median run"), (most, 0.9, "nine of ten")):
            reached = float(np.quantile(errors, share, method="inverted_cdf"))
            found.append(Level(f"mean {latency.upper()}, {words}", greatest, reached, "%"))
    return found


def table_lines(checks: Sequence[RunCheck]) -> list[str]:
    """Return what was found, one line a run; measured means in ms, errors in percent."""
    latencies = ("ttft", "tpot", "e2e")
    lines = [
        f"{'run':<18}{'token ms':>9}{'slowness':>9}"
        + "".join(f"{latency.upper() + ' ms':>10}{'error %':>8}" for latency in latencies)
    ]
    for check in checks:
        line = f"{check.name:<18}{check.mechanics_ms:>9.3f}{check.slowness:>9.3f}"
        for latency in latencies:
            line += f"{check.measured_ms[latency]:>10.1f}{check.error(latency) * 100:>+8.1f}"
        if check.different_step is not None:
            line += f"  step {check.different_step} differs"
        lines.append(line)
    return lines


def to_dict(checks: Sequence[RunCheck]) -> dict[str, Any]:
    """Return everything as plain data; None stands for no number."""
    runs = [asdict(check) for check in checks]
    for row, check in zip(runs, checks, strict=True):
        row["mechanics_ms"] = check.mechanics_ms if np.isfinite(check.mechanics_ms) else None
        row["errors"] = {latency: check.error(latency) for latency in LEVELS}
    return {
        "runs": runs,
        "levels": [
            asdict(level)
            | {"reached": level.reached}
            | {"found": level.found if np.isfinite(level.found) else None}
            for level in levels(checks)
        ],
    }


class _Measured:
    """The measured durations of the steps, one after the other."""

    supports_runs = False
    num_extrapolated = 0

    def __init__(self, run: EngineRun, durations: Floats) -> None:
        table = run.steps.table
        self._durations = durations.tolist()
        self._held = table[["n_decode", "prefill_tokens"]].to_numpy(dtype=np.int64).tolist()
        self._next = 0
        self.different: int | None = None

    def step_time(self, work: StepWork) -> float:
        """Return the duration of the next step, seconds; note the first that differs."""
        number, self._next = self._next, self._next + 1
        held = [work.num_decodes, work.num_tokens - work.num_decodes]
        same = number < len(self._held) and self._held[number] == held
        if not same and self.different is None:
            self.different = number
        return float(self._durations[min(number, len(self._durations) - 1)])


def _ends(run: EngineRun) -> Floats:
    """Return when the tokens of each step were out, seconds on the grid."""
    table = run.steps.table
    added = np.zeros(len(table) + 1)
    np.add.at(added, run.added_before, run.added_ms)
    pause = run.steps.pauses_ms() - added[1:]
    busy = pause <= LONGEST_PAUSE_MS
    usual = float(np.median(pause[busy])) if busy.any() else 0.0
    pause = np.maximum(np.where(busy, pause, usual), 0.0)
    ends = table["t_start_ms"] + table["time_ms"] + HANDLING * pause
    return np.array([to_grid(ms / 1e3) for ms in ends])


def _means(run: EngineRun, token_ms: Sequence[Floats]) -> dict[str, float]:
    """Return mean latencies, ms; a request of one token has no TPOT."""
    first = np.array([tokens[0] for tokens in token_ms])
    last = np.array([tokens[-1] for tokens in token_ms])
    several = run.output_tokens > 1
    return {
        "ttft": float((first - run.arrival_ms).mean()),
        "tpot": float(((last - first)[several] / (run.output_tokens[several] - 1)).mean()),
        "e2e": float((last - run.arrival_ms).mean()),
    }
