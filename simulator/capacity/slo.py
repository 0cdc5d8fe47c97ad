"""Service-level objectives on the metrics of runs, and what some replications say about them."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from simulator.errors import UserError
from simulator.explain import nearest
from simulator.metrics import Metrics
from simulator.stats import mean_interval

Verdict = Literal["meets", "misses", "unresolved"]

ATTAINMENT = "slo_attainment"

LATENCY = re.compile(r"(mean|std|median|p\d+(?:\.\d+)?)_(ttft|tpot|itl|e2el|queue|norm)_ms")
_FORM = re.compile(r"\s*([A-Za-z_0-9.]+)\s*(<=|>=)\s*(\S+)\s*")


@dataclass(frozen=True)
class Objective:
    """A bound on the mean of a metric over replications.

    Examples
    --------
    >>> str(parse_objective("p99_ttft_ms<=500"))
    'p99_ttft_ms <= 500'
    """

    metric: str
    sign: Literal["<=", ">="]
    limit: float

    def __str__(self) -> str:
        return f"{self.metric} {self.sign} {self.limit:g}"

    def met_by(self, value: float) -> bool:
        """Whether a value keeps the bound."""
        return value <= self.limit if self.sign == "<=" else value >= self.limit

    @property
    def worst(self) -> float:
        """The value of a run that has none, because requests were not served."""
        return np.inf if self.sign == "<=" else -np.inf


def parse_objective(text: str, known: Iterable[str] = ()) -> Objective:
    """Return the objective written as ``metric<=number`` or ``metric>=number``.

    Parameters
    ----------
    text : str
        Such as ``p99_ttft_ms<=500``.
    known : iterable of str
        Other metrics than latencies that exist.

    Raises
    ------
    UserError
        If it is something else.
    """
    match = _FORM.fullmatch(text)
    if match is None:
        raise UserError(f"--slo {text}: expected METRIC<=NUMBER or METRIC>=NUMBER")
    metric, sign, number = match.groups()
    names = {f"{stat}_{name}_ms" for stat in ("mean", "p50", "p90", "p99")
             for name in ("ttft", "tpot", "itl", "e2el", "queue", "norm")} | set(known)  # fmt: skip
    if not LATENCY.fullmatch(metric) and metric not in names:
        raise UserError(f"--slo {text}: no metric {metric!r}; {nearest(metric, names)}")
    level = re.match(r"p(\d+(?:\.\d+)?)_", metric)
    if level and metric.endswith("_ms") and not 0 < float(level[1]) < 100:
        raise UserError(f"--slo {text}: expected a percentile between 0 and 100")
    try:
        limit = float(number)
    except ValueError:
        raise UserError(f"--slo {text}: {number!r} is not a number") from None
    if not np.isfinite(limit):
        raise UserError(f"--slo {text}: expected a finite number")
    found = next(s for s in get_args(Objective.__annotations__["sign"]) if s == sign)
    return Objective(metric, found, limit)


def percentiles_of(objectives: Iterable[Objective]) -> set[float]:
    """Return the percentiles that have to be measured for some objectives."""
    matches = (re.match(r"p(\d+(?:\.\d+)?)_.*_ms$", o.metric) for o in objectives)
    return {float(match[1]) for match in matches if match}


@dataclass(frozen=True)
class Judgement:
    """What some replications say about one objective.

    Attributes
    ----------
    mean, low, high : float or None
        Mean over the replications and its interval.
    verdict : {"meets", "misses", "unresolved"}
        Unresolved: the limit lies in the interval.
    """

    objective: Objective
    mean: float
    low: float | None
    high: float | None
    verdict: Verdict


def judge(objective: Objective, runs: Sequence[Metrics], confidence: float) -> Judgement:
    """Compare the mean of a metric over replications with its bound.

    Parameters
    ----------
    objective : Objective
    runs : sequence of dict
        Metrics of the replications.
    confidence : float
        Of the two-sided t interval that has to lie on one side of the limit.

    Raises
    ------
    UserError
        If the metric has no value although all requests were served.

    Examples
    --------
    >>> slo = parse_objective("p99_ttft_ms<=500")
    >>> judge(slo, [{"p99_ttft_ms": value} for value in (410.0, 420.0, 430.0)], 0.95).verdict
    'meets'
    """
    values = np.array([_value(objective, metrics) for metrics in runs])
    if not np.isfinite(values).all():
        return Judgement(objective, objective.worst, None, None, "misses")
    mean, low, high = mean_interval(values, confidence)
    assert mean is not None
    if low is None or high is None:
        return Judgement(objective, mean, low, high, "unresolved")
    sides = {objective.met_by(low), objective.met_by(high)}
    resolved: Verdict = "meets" if objective.met_by(mean) else "misses"
    return Judgement(objective, mean, low, high, resolved if len(sides) == 1 else "unresolved")


def _value(objective: Objective, metrics: Metrics) -> float:
    value = metrics.get(objective.metric)
    if value is not None:
        return float(value)
    if metrics.get("unfinished") or metrics.get("rejected") or not metrics.get("completed", 1):
        return objective.worst
    raise UserError(
        f"{objective.metric}: has no value with {metrics.get('num_requests')} requests; "
        "raise --num-requests"
    )
