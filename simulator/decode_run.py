"""A run of decode steps in which nothing happens: when each of them ends, all at once.

Nobody may end in such a step, and the step after it has to find its blocks; what comes after that
is an ordinary step again. Durations are the ones that the machine gives for one step after the
other, to the last bit.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import ceil
from typing import Final, TypeGuard

import numpy as np

from simulator.clock import TICKS_PER_SECOND
from simulator.cohort import Cohort
from simulator.cost.base import CostModel, RunCostModel, StepWork

LONG: Final = 64
"""Steps from which on arrays are faster than a loop."""
LOOK: Final = 8
"""Steps after which it is known how many are to come."""
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
        Duration of the next step; None where it is known beforehand not to be eventless.
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
    most = cohort.num_eventless_steps()
    if not most:
        return run
    size, context = len(cohort), cohort.context_tokens
    whole_runs = _times_runs(cost) and charged.num_decodes == size == charged.num_rows
    if whole_runs:
        assert _times_runs(cost)
        times = cost.decode_times(size, context)
    else:
        times = _one_by_one(charged, context, size, duration_of)
    due, clock, used, block_ticks, now = cohort.due, cohort.clock, cohort.kv_used, 0, start
    cycle = len(due)
    ends, durations = run.ends, run.durations
    for done, seconds in enumerate(times):
        ticks = ceil(seconds * TICKS_PER_SECOND)
        duration = ticks / TICKS_PER_SECOND
        end = now + duration
        if end >= limit or done == most:
            run.next_duration = duration
            break
        ends.append(end)
        durations.append(duration)
        used += due[clock % cycle]
        block_ticks += used * ticks
        clock += 1
        now = end
        if done == LOOK - 1 and whole_runs and min(most, (limit - start) / duration) > LONG:
            break
    run.now, run.kv_block_ticks = now, block_ticks
    if run.next_duration is None and _times_runs(cost):
        _in_arrays(run, cohort, cost, most, used, limit)
    return run


def _times_runs(cost: CostModel) -> TypeGuard[RunCostModel]:
    return getattr(cost, "supports_runs", False)


def _one_by_one(
    charged: StepWork, context: int, size: int, duration_of: Callable[[StepWork], float]
) -> Iterator[float]:
    """Yield the durations of steps that are charged `charged.num_decodes` rows for `size`."""
    rows, num_rows = charged.num_decodes, charged.num_rows
    while True:
        attended = context if rows == size else context * rows // size
        yield duration_of(StepWork(rows, attended, (), rows, num_rows))
        context += size


def _in_arrays(
    run: DecodeRun, cohort: Cohort, cost: RunCostModel, most: int, used: int, limit: float
) -> None:
    """Lengthen a run to at most `most` steps, a block of steps at a time."""
    size, ring = len(cohort), np.array(cohort.due)
    while run.next_duration is None:
        past = len(run.ends)
        steps = min(most - past + 1, BLOCK)
        context = cohort.context_tokens + past * size
        raw = cost.decode_run(size, context, steps)
        ticks = np.ceil(raw * TICKS_PER_SECOND)
        durations = ticks / TICKS_PER_SECOND
        ends = run.now + np.cumsum(durations)
        grown = used + np.cumsum(ring[(cohort.clock + past + np.arange(steps)) % len(ring)])
        done = min(int(np.searchsorted(ends, limit, side="left")), most - past)
        if done < steps:
            run.next_duration = float(durations[done])
            cost.take_back(size, context + (done + 1) * size, steps - done - 1)
        if done:
            run.kv_block_ticks += int(np.dot(grown[:done], ticks[:done].astype(np.int64)))
            run.ends += ends[:done].tolist()
            run.durations += durations[:done].tolist()
            run.now, used = run.ends[-1], int(grown[done - 1])
