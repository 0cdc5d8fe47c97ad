"""One run of a sweep, and what a worker does with it. Workers load no more than this needs."""

import time
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from simulator.errors import RunError, TimeUp, UserError
from simulator.experiments.fingerprint import run_key
from simulator.experiments.grid import Point
from simulator.spec import RunSpec

Row = dict[str, Any]
"""What a run leaves: its `metrics`, or its `error`; `transient` marks an error not to be kept."""

DEFAULT_SIZE = 20_000
"""Requests assumed where a workload does not say how many it has."""


@dataclass(frozen=True)
class Task:
    """One run: a point of a sweep and the index of the replication."""

    point: Point
    replication: int

    @property
    def spec(self) -> RunSpec:
        """What is simulated."""
        return self.point.spec

    @cached_property
    def key(self) -> str:
        """Content hash of everything that determines the row."""
        return run_key(self.spec, self.replication)

    @property
    def size(self) -> int:
        """Expected amount of work: the number of requests."""
        return getattr(self.spec.workload, "num_requests", None) or DEFAULT_SIZE


@dataclass(frozen=True)
class Done:
    """A finished task: its place in the list, its row, and how long it took in seconds."""

    index: int
    row: Row
    seconds: float


def perform(
    index: int,
    spec: RunSpec,
    replication: int,
    key: str | None = None,
    timeout_s: float | None = None,
) -> Done:
    """Simulate one run; a run that fails is a row with its error.

    Parameters
    ----------
    index : int
        Returned with the row.
    spec : RunSpec
    replication : int
    key : str, optional
        Key of the run where it was ordered. A machine on which it differs has other code, data or
        libraries, so its result would be another.
    timeout_s : float, optional
        Wall-clock time that the run may take, seconds.
    """
    started = time.perf_counter()
    if key is not None and run_key(spec, replication) != key:
        text = "a worker has other code, data files or library versions"
        return Done(index, {"error": text, "transient": True}, 0.0)
    return Done(index, run_row(spec, replication, timeout_s), time.perf_counter() - started)


def run_row(spec: RunSpec, replication: int, timeout_s: float | None = None) -> Row:
    """Simulate one run and return its row."""
    from simulator.run import simulate

    try:
        return {"metrics": simulate(spec, replication=replication, timeout_s=timeout_s).metrics}
    except TimeUp as error:  # says nothing of what the run depends on, so it is not kept
        return {"error": f"{type(error).__name__}: {error}", "transient": True}
    except (RunError, UserError) as error:
        return {"error": f"{type(error).__name__}: {error}"}
    except Exception as error:
        return {"error": f"unexpected {type(error).__name__}: {error}", "transient": True}
