"""Arrivals made of arrivals: batches, and several processes at once."""

from typing import Literal

import numpy as np
from pydantic import Field

from workloads.arrivals import ArrivalProcess
from workloads.base import FloatArray, IntArray, Spec
from workloads.length_spec import LengthSpec
from workloads.simple import SimpleArrivalSpec
from workloads.streams import split
from workloads.windows import WindowedArrivals


class BatchArrivals(Spec):
    """Several requests at each arrival of another process.

    Examples
    --------
    >>> law = BatchArrivals.model_validate({"arrivals": 2, "batch_size": 3})
    >>> times = law.times(5, np.random.default_rng(1))
    >>> law.rate, np.unique(times).size
    (6.0, 2)
    """

    kind: Literal["batch"] = "batch"
    arrivals: SimpleArrivalSpec
    """Law of the batches' times; a bare number is the rate of a Poisson process."""
    batch_size: LengthSpec
    """Law of the number of requests in a batch; a bare number is always the same."""

    def times(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Return the first `n` arrival times in seconds; the last batch may be cut."""
        for_times, for_sizes = split(rng, 2)
        sizes = self.batch_size.sample(n, for_sizes)
        batches = int(np.searchsorted(np.cumsum(sizes), n)) + 1 if n else 0
        times = self.arrivals.times(batches, for_times)
        return np.repeat(times, sizes[:batches])[:n]

    @property
    def rate(self) -> float:
        """Mean number of arrivals per second."""
        return self.arrivals.rate * self.batch_size.mean


class SuperposedArrivals(Spec):
    """Several independent processes at once, such as a steady and a bursty one."""

    kind: Literal["superposed"] = "superposed"
    parts: tuple[SimpleArrivalSpec, ...] = Field(min_length=1)
    """The processes; each has a stream of its own."""

    def times(self, n: int, rng: np.random.Generator) -> FloatArray:
        """Return the first `n` arrival times in seconds."""
        return superpose(self.parts, n, rng)[0]

    @property
    def rate(self) -> float:
        """Sum of the rates."""
        return sum(part.rate for part in self.parts)


def superpose(
    parts: tuple[ArrivalProcess, ...], n: int, rng: np.random.Generator
) -> tuple[FloatArray, IntArray]:
    """Return the first `n` arrivals of several processes, and which of them each belongs to.

    Parameters
    ----------
    parts : tuple of ArrivalProcess
        The processes.
    n : int
        Number of arrivals.
    rng : numpy.random.Generator
        Root of one stream a process, so that a process is the same whatever the others are.

    Returns
    -------
    times : array of float
        Times in seconds, ascending; ties in the order of the parts.
    part : array of int
        Number of the process.
    """
    seeds = rng.integers(0, 2**63, (len(parts), 2)).tolist()
    horizon = (n + 2) / sum(part.rate for part in parts)
    while True:
        streams = (np.random.default_rng(np.random.SeedSequence(seed)) for seed in seeds)
        drawn = [until(part, horizon, rng) for part, rng in zip(parts, streams, strict=True)]
        if sum(times.size for times in drawn) >= n:
            break
        horizon *= 1.5
    times = np.concatenate(drawn)
    member = np.repeat(np.arange(len(parts)), [part.size for part in drawn])
    order = np.argsort(times, kind="stable")[:n]
    return times[order], member[order]


def until(process: ArrivalProcess, horizon: float, rng: np.random.Generator) -> FloatArray:
    """Return the arrivals of a process before a time, which is not included."""
    if isinstance(process, WindowedArrivals):
        return process.until(horizon, rng)
    number = int(1.2 * process.rate * horizon) + 16
    state = rng.bit_generator.state
    while True:
        times = process.times(number, rng)
        if times[-1] >= horizon:
            return times[: np.searchsorted(times, horizon)]
        number *= 2
        rng.bit_generator.state = state
