"""The form of the figures of a run, and the part of the run that they are measured in.

Latency statistics are in milliseconds under the names of vLLM's benchmark; rates are per second.
Percentiles interpolate linearly; one that has too few samples is None, never a number.
"""

from dataclasses import dataclass

import numpy as np

from simulator.blocks import blocks
from simulator.columns import Columns
from simulator.metrics.description import Description
from simulator.spec import Measure
from simulator.stats import Floats, Ints, min_samples

Metrics = dict[str, float | int | None]
"""Metric name to value; None where the run does not bear a value."""


@dataclass(slots=True)
class Window:
    """The measured part of a run.

    Attributes
    ----------
    start, end : float
        Seconds. Requests count by arrival, tokens and steps by time.
    """

    start: float
    end: float

    @property
    def length(self) -> float:
        """Seconds from start to end."""
        return self.end - self.start

    def per_second(self, amount: int) -> float | None:
        """Return an amount a second; None if the window has no length."""
        return amount / self.length if self.length else None


def measured_window(tables: dict[str, Columns], measure: Measure) -> Window:
    """Return the window from the warm-up (or the first arrival) to the last event or horizon."""
    first, last = np.inf, 0.0
    for block in blocks(tables["requests"], ("arrival_s", "finish_s")):
        arrivals = floats(block, "arrival_s")
        first = min(first, float(arrivals.min(initial=np.inf)))
        last = max(last, float(arrivals.max(initial=0.0)))
        last = max(last, float(np.nanmax(floats(block, "finish_s"), initial=0.0)))
    for block in blocks(tables["steps"], ("end_s",)):
        last = max(last, float(floats(block, "end_s").max(initial=0.0)))
    start = max(measure.warmup_s, first if first < np.inf else 0.0)
    end = last if measure.horizon_s is None else min(last, measure.horizon_s)
    return Window(start, max(start, end))


def levels(measure: Measure) -> Floats:
    """Return the percentiles that latencies are described by: the median first."""
    return np.array([50.0, *measure.percentiles])


def latency_metrics(name: str, found: Description, measure: Measure) -> Metrics:
    """Return mean, std, percentiles and sample count of a latency.

    Parameters
    ----------
    name : str
        Short name, such as ttft.
    found : Description
        Of the latency in milliseconds, with the percentiles of `levels`.
    measure : Measure
        Says which percentiles.
    """
    keys = [f"{stat}_{name}_ms" for stat in ("mean", "std", "median")]
    metrics: Metrics = {f"num_samples_{name}": found.number} | dict.fromkeys(keys)
    asked = {f"p{p:g}_{name}_ms": float(p) for p in measure.percentiles}
    metrics |= dict.fromkeys(asked)
    if found.number == 0:
        return metrics
    metrics |= dict(zip(keys, (found.mean, found.std, float(found.percentiles[0])), strict=True))
    for (key, level), value in zip(asked.items(), found.percentiles[1:], strict=True):
        if found.number >= min_samples(level):
            metrics[key] = float(value)
    return metrics


def floats(table: Columns, name: str) -> Floats:
    """Return a column as float64."""
    return table[name].astype(np.float64, copy=False)


def ints(table: Columns, name: str) -> Ints:
    """Return a column as int64."""
    return table[name].astype(np.int64, copy=False)
