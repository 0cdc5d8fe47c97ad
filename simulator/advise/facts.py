"""What a workload is like when it is served without batching, one request at a time."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from simulator.advise.search import NONE, point_of
from simulator.metrics import Metrics
from simulator.result import Result
from simulator.run import simulate
from simulator.settings import Nested
from simulator.stats import mean_interval
from workloads.statistics import dispersion


@dataclass(frozen=True)
class Figure:
    """A number that stands beside a sentence.

    Attributes
    ----------
    name : str
    mean : float or None
        None where the runs do not bear a value.
    low, high : float or None
        95 % interval over the seeds.
    unit : str
    """

    name: str
    mean: float | None
    low: float | None = None
    high: float | None = None
    unit: str = ""

    def __str__(self) -> str:
        """Return name, value, half of the interval and unit."""
        if self.mean is None:
            return f"{self.name} n/a"
        half = "" if self.high is None else f" ± {significant(self.high - self.mean)}"
        return f"{self.name} {significant(self.mean)}{half}{self.unit and ' ' + self.unit}"


def significant(value: float) -> str:
    """Return a number in three digits.

    Examples
    --------
    >>> [significant(x) for x in (0.12345, 12.345, 123456.0, -1e-9)]
    ['0.123', '12.3', '123456', '0']
    """
    if abs(value) < 1e-6:
        return "0"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"


def over_seeds(
    name: str, values: Iterable[float | int | None], unit: str = "", confidence: float = 0.95
) -> Figure:
    """Return mean and interval over replications.

    Examples
    --------
    >>> str(over_seeds("wait", [1.0, 2.0, 3.0], "s"))
    'wait 2 ± 2.48 s'
    """
    listed = [value if value is not None and np.isfinite(value) else None for value in values]
    known = np.array([value for value in listed if value is not None], float)
    if len(known) < len(listed):
        return Figure(name, None, unit=unit)
    return Figure(name, *mean_interval(known, confidence), unit)


Facts = dict[str, float]
"""Name to value, of one replication."""


def describe_run(result: Result, percent: float) -> Facts:
    """Return what the figures of a run without batching do not say.

    Parameters
    ----------
    result : Result
        A run of the policy `none`.
    percent : float
        Percentile of the latencies that a request has when it never waits.

    Returns
    -------
    dict
        `load`: work that arrives per second, in seconds of one request alone after the other.
        `not_alone`: fraction of requests that find another one in service.
        `gap_cv`, `dispersion`: variation of gaps, and of counts in 10 s (variance over mean).
        `prompt_cv`, `output_cv`: variation of the lengths.
        `alone_ttft_ms`, `alone_tpot_ms`, `alone_e2el_ms`: percentiles without the waiting.
    """
    trace, table = result.trace, result.tables["requests"]
    times = {n: table[n].astype(float) for n in table if n.endswith("_s")}
    wait = times["first_scheduled_s"] - times["arrival_s"]
    alone = times["last_token_s"] - times["first_scheduled_s"]
    first = times["first_token_s"] - times["first_scheduled_s"]
    gaps = np.maximum(table["output_tokens"].astype(float) - 1, 1)
    arrivals = np.sort(times["arrival_s"])
    rate = result.metrics["realised_rate"] or 0.0
    latencies = {"ttft": first, "tpot": (alone - first) / gaps, "e2el": alone}
    facts = {
        "load": rate * float(np.nanmean(alone)) / result.spec.engine.num_replicas,
        "not_alone": float(np.nanmean(wait > 1e-6)),
        "gap_cv": float(trace.cv),
        "dispersion": dispersion(arrivals, 10.0),
        "prompt_cv": _cv(trace.prompt_tokens),
        "output_cv": _cv(trace.output_tokens),
    }
    return facts | {
        f"alone_{name}_ms": float(np.nanpercentile(values, percent)) * 1e3
        for name, values in latencies.items()
    }


def _cv(values: np.ndarray[tuple[int, ...], np.dtype[np.integer]]) -> float:
    return float(np.std(values) / np.mean(values))


def without_batching(
    base: Nested, seeds: int, percent: float, timeout_s: float | None = None
) -> tuple[list[Metrics], list[Facts]]:
    """Simulate the workload one request at a time; return metrics and facts of each replication.

    Raises
    ------
    UserError
        If the specification cannot be run.
    RunError
        If a run fails, or takes longer than `timeout_s`.
    """
    spec = point_of(base, NONE).spec
    metrics, facts = [], []
    for replication in range(seeds):
        result = simulate(spec, replication=replication, timeout_s=timeout_s)
        metrics.append(result.metrics)
        facts.append(describe_run(result, percent))
    return metrics, facts
