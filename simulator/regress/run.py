"""The runs of a regression suite, and what is kept of each."""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from simulator.errors import RunError, UserError
from simulator.experiments.executors import begin_worker
from simulator.recorder import DecisionLog
from simulator.regress.suite import Scenario, check_metrics
from simulator.result import Result
from simulator.run import simulate
from simulator.spec import RunSpec

DIGITS = 10
"""Significant digits that are kept: fewer than may differ from one NumPy to the next."""

_COMPARED = {
    "requests": (
        *("request_id", "arrival_s", "first_scheduled_s", "first_token_s", "last_token_s"),
        *("finish_s", "prompt_tokens", "output_tokens", "recomputed_tokens", "cached_tokens"),
        *("num_preemptions", "state", "replica"),
    ),
    "steps": ("replica", "start_s", "end_s", "num_steps", "useful_tokens", "kv_blocks_used"),
}
"""Columns that an exact scenario compares, besides the decisions."""

Job = tuple[Scenario, int]
"""A scenario and the index of the replication."""


@dataclass(frozen=True)
class Sample:
    """What is kept of one run.

    Attributes
    ----------
    workload : str
        Hash of the requests, 12 hexadecimal digits.
    behaviour : str
        Hash of decisions and times of an exact scenario; empty for others.
    values : dict
        Metric to value; None where the run does not bear one.
    error : str
        Why the run failed; empty if it did not.
    """

    workload: str = ""
    behaviour: str = ""
    values: dict[str, float | None] = field(default_factory=dict)
    error: str = ""


def run_jobs(
    jobs: Sequence[Job],
    num_workers: int = 1,
    progress: Callable[[int], object] = lambda _: None,
    timeout_s: float | None = None,
) -> list[Sample]:
    """Run all jobs; the samples do not depend on the number of workers.

    A run that fails, or takes longer than `timeout_s`, is a sample with its error; wrong input
    ends the whole.
    """
    samples: list[Sample] = []
    for sample in _execute(jobs, num_workers, timeout_s):
        samples.append(sample)
        progress(1)
    return samples


def _execute(jobs: Sequence[Job], num_workers: int, timeout_s: float | None) -> Iterator[Sample]:
    if num_workers == 1 or len(jobs) < 2:
        yield from (measure(scenario, number, timeout_s) for scenario, number in jobs)
        return
    from joblib import Parallel, delayed

    pool = Parallel(
        n_jobs=num_workers, return_as="generator", initializer=begin_worker, initargs=(os.getpid(),)
    )
    yield from pool(delayed(measure)(scenario, number, timeout_s) for scenario, number in jobs)


def measure(scenario: Scenario, replication: int, timeout_s: float | None = None) -> Sample:
    """Run a scenario once."""
    try:
        if scenario.exact:
            return _observe(scenario.spec, replication, timeout_s)
        result = simulate(scenario.spec, replication=replication, timeout_s=timeout_s)
        metrics = result.metrics
    except RunError as error:
        return Sample(error=f"{scenario.name}, seed {replication}: {error}")
    except UserError as error:
        raise UserError(f"scenario {scenario.name}: {error}") from None
    check_metrics(scenario, metrics)
    values = {name: rounded(metrics[name]) for name in scenario.rules}
    return Sample(workload=_workload(result), values=values)


def rounded(value: float | None) -> float | None:
    """Return a number with the digits that are kept.

    Examples
    --------
    >>> rounded(1 / 3), rounded(None)
    (0.3333333333, None)
    """
    return None if value is None else float(f"{value:.{DIGITS}g}")


def _workload(result: Result) -> str:
    return result.trace.content_hash()[:12]


def _observe(spec: RunSpec, replication: int, timeout_s: float | None) -> Sample:
    """Run with the stepper that defines what a run means, and hash all that it did."""
    log = DecisionLog()
    result = simulate(
        spec,
        replication=replication,
        observers=(log,),
        stepper="reference",
        timeout_s=timeout_s,
    )
    total = hashlib.sha256("\n".join(log.lines).encode())
    for table, columns in _COMPARED.items():
        for name in columns:
            values = result.tables[table][name].tolist()
            total.update(f"\n{table} {name} {json.dumps(values)}".encode())
    return Sample(workload=_workload(result), behaviour=total.hexdigest())
