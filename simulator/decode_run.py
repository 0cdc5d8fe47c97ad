"""A run of decode steps in which nothing happens: when each of them ends, all at once.

Nobody may end in such a step, and the step after it has to find its blocks; what comes after that
is an ordinary step again. Durations are the ones that the machine gives for one step after the
other, to the last bit.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from simulator.clock import TICKS_PER_SECOND
from simulator.cohort import Cohort
from simulator.cost.base import CostModel, StepWork

LONG: Final = 16
"""Steps from which on arrays are faster than a loop."""
BLOCK: Final = 1024
"""Most steps computed ahead at a time."""


@dataclass(slots=True)
class DecodeRun:
    """Steps that were found to be eventless.

    Attributes
    ----------
    now : float
        Start of the next step, seconds.
    ends, durations : list of float
        When each step ends, and how long it takes, seconds.
    kv_block_ticks : int
        Integral of the held blocks over the run, in clock ticks.
    next_duration : float, optional
        Duration of the next step, where it is known already.
    """

    now: float
    ends: list[float] = field(default_factory=list)
    durations: list[float] = field(default_factory=list)
    kv_block_ticks: int = 0
    next_duration: float | None = None


def eventless_steps(
    cohort: Cohort,
    charged: StepWork,
    cost: CostModel,
    duration_of: Callable[[StepWork], float],
    start: float,
    limit: float,
) -> DecodeRun:
    """Return the steps of a cohort that end before `limit` and in which nothing happens.

    Parameters
    ----------
    cohort : Cohort
        Its state is read, not changed.
    charged : StepWork
        What the machine is charged for in the first step.
    cost : CostModel
        Asked for whole runs where it can time them.
    duration_of : callable
        Duration of a step in seconds on the grid.
    start, limit : float
        Seconds.
    """
    run = DecodeRun(start)
    last = cohort.next_end
    if last is None:
        return run
    size, context, clock = len(cohort), cohort.context_tokens, cohort.clock
    rows, due = charged.num_decodes, cohort.due
    used, free = cohort.kv_used, cohort.kv_free
    in_arrays = getattr(cost, "supports_runs", False) and rows == size == charged.num_rows
    while clock + 1 < last:
        growth = due[clock % len(due)]
        if growth + due[(clock + 1) % len(due)] > free:
            break
        attended = context if rows == size else context * rows // size
        duration = duration_of(StepWork(rows, attended, (), rows, charged.num_rows))
        if run.now + duration >= limit:
            run.next_duration = duration
            break
        run.now += duration
        run.ends.append(run.now)
        run.durations.append(duration)
        free -= growth
        used += growth
        run.kv_block_ticks += used * int(duration * TICKS_PER_SECOND)
        clock += 1
        context += size
        if in_arrays and len(run.ends) >= LONG // 2:
            left = min(last - clock - 1, int(min((limit - run.now) / duration, BLOCK)) + 1)
            if left >= LONG:
                steps = _in_arrays(run, cohort, cost, (clock, context, used, free), left, limit)
                if steps < left:
                    break
                grown = _growth(cohort, clock, left)
                used, free = used + grown, free - grown
                clock, context = clock + left, context + left * size
    return run


def _growth(cohort: Cohort, clock: int, steps: int) -> int:
    due = cohort.due
    cycles, rest = divmod(steps, len(due))
    return cycles * sum(due) + sum(due[(clock + step) % len(due)] for step in range(rest))


def _in_arrays(
    run: DecodeRun,
    cohort: Cohort,
    cost: CostModel,
    state: tuple[int, int, int, int],
    steps: int,
    limit: float,
) -> int:
    """Append the eventless ones of the next `steps` steps; return how many they are."""
    clock, context, used, free = state
    size = len(cohort)
    raw = cost.decode_run(size, context, steps)  # type: ignore[attr-defined]
    durations = np.ceil(raw * TICKS_PER_SECOND) / TICKS_PER_SECOND
    ends = run.now + np.cumsum(durations)
    ring = np.array(cohort.due)
    grown = np.cumsum(ring[(clock + np.arange(steps + 1)) % len(ring)])
    fits = int(np.searchsorted(grown[1:], free, side="right"))
    done = min(int(np.searchsorted(ends, limit, side="left")), fits)
    if done < steps:
        run.next_duration = float(durations[done])
        cost.take_back(size, context + (done + 1) * size, steps - done - 1)  # type: ignore[attr-defined]
    if done:
        ticks = (durations[:done] * TICKS_PER_SECOND).astype(np.int64)
        run.kv_block_ticks += int(np.dot(used + grown[:done], ticks))
        run.ends += ends[:done].tolist()
        run.durations += durations[:done].tolist()
        run.now = run.ends[-1]
    return done
