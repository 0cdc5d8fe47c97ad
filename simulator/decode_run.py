"""A run of decode steps in which nothing happens: when each of them ends, all at once.

Nobody may end in such a step, and the step after it has to find its blocks; what comes after that
is an ordinary step again. Durations are the ones that the machine gives for one step after the
other, to the last bit.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
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
    next_duration : float
        Duration of the next step, which is not one of them.
    """

    now: float
    ends: list[float]
    durations: list[float]
    kv_block_ticks: int
    next_duration: float


def eventless_steps(
    cohort: Cohort,
    charged: StepWork,
    cost: RunCostModel | None,
    duration_of: Callable[[StepWork], float],
    start: float,
    limit: float,
) -> DecodeRun | None:
    """Return the steps of a cohort that end before `limit` and in which nothing happens.

    None if the next step is known to be none of them and has not been timed.

    Parameters
    ----------
    cohort : Cohort
        Its state is read, not changed.
    charged : StepWork
        What the machine is charged for in the first step.
    cost : RunCostModel, optional
        Asked for whole runs. None: it cannot time them.
    duration_of : callable
        Duration of a step in seconds on the grid.
    start, limit : float
        Seconds.
    """
    most = cohort.num_eventless_steps()
    if not most:
        return None
    size, context = len(cohort.members), cohort.context_tokens
    if charged.num_decodes != size or charged.num_rows != size:
        cost = None
    if cost is None:
        times = _one_by_one(charged, context, size, duration_of)
    else:
        times = cost.decode_times(size, context)
    due, clock, used, block_ticks, now = cohort.due, cohort.clock, cohort.kv_used, 0, start
    cycle = len(due)
    ends: list[float] = []
    durations: list[float] = []
    for done, seconds in enumerate(times):
        ticks = ceil(seconds * TICKS_PER_SECOND)
        duration = ticks / TICKS_PER_SECOND
        end = now + duration
        if end >= limit or done == most:
            return DecodeRun(now, ends, durations, block_ticks, duration)
        ends.append(end)
        durations.append(duration)
        used += due[clock % cycle]
        block_ticks += used * ticks
        clock += 1
        now = end
        if cost is not None and done == LOOK - 1 and min(most, (limit - start) / duration) > LONG:
            break
    assert cost is not None, "only arrays go on from here"
    run = DecodeRun(now, ends, durations, block_ticks, 0.0)
    _in_arrays(run, cohort, cost, most, used, limit)
    return run


def times_runs(cost: CostModel) -> TypeGuard[RunCostModel]:
    """Whether the model can time whole runs."""
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
    done = steps = 0
    while done == steps:
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
