"""Interval estimates from independent replications: how long to run, and when to stop.

A test against theory passes if the theoretical value lies in a 99.9 % t interval over replications
(`simulate(spec, replication=i)`) whose half-width is at most 1 % of that value. All budgets live
here.

**Variance.** The estimates use control variates, which need 10 to 100 times fewer requests for the
same interval. Take Poisson arrivals of a known rate and any number f that is known just before each
moment. Then

    sum of f over the arrivals in [w, T]  -  rate * integral of f over [w, T]

has mean 0 (a stopped martingale) where w and T are the times of the k-th and m-th arrival; likewise
the sum of f * (S - E[S]) over the steps, with f known when a step starts and S its random duration.
This holds for *every* engine and policy that does not look ahead, right or wrong. So subtracting a
multiple of it moves no mean, right or wrong; it only takes luck out of it. The multiples are those
of the regression over the replications, at the price of a degree of freedom each (Lavenberg and
Welch 1981).

**Bias.** A replication starts empty and counts from the warm-up on, at least five relaxation times
of the system. Both ends of the window are arrivals of fixed numbers, not fixed times: the first
arrival after a fixed time ends a gap that is longer than others, and meets fewer requests. Behind
the last request that counts, others arrive (`NUM_COMPANY`), without which its batch would be too
small. So mean times and the utilisation, which divides by the mean length of the window, are
without bias: an independent program of ten lines, without an event loop, with the same estimator
put it below 0.001 %. The mean batch size is a ratio, biased by the squared coefficient of variation
of the number of steps, less than 0.06 % here.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from time import process_time
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from simulator import Result, RunSpec, simulate
from simulator.stats import overlap

CONFIDENCE = 0.999
LARGEST_HALF_WIDTH = 0.01
"""Of the theoretical value."""
FEWEST, MOST = 20, 200
"""Replications before the first look, and before giving up."""
GROWTH = 1.25
"""Replications at the next look over those at the last."""
NUM_COMPANY = 200
"""Requests at the end of a replication that do not count."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sample:
    """What one replication says: values by name, and controls whose mean is known to be 0."""

    values: dict[str, float]
    controls: tuple[float, ...] = ()
    num_requests: int = 0


@dataclass(frozen=True)
class Estimate:
    """A mean over replications with the half-width of its interval; `seconds` of one core."""

    value: float
    half_width: float
    theory: float
    num_replications: int
    num_requests: int
    seconds: float

    @property
    def agrees(self) -> bool:
        """Whether theory lies within the interval."""
        return abs(self.value - self.theory) <= self.half_width

    def __str__(self) -> str:
        share = self.half_width / self.theory
        return (
            f"{self.value:.6g} ± {self.half_width:.2g} ({share:.2%}), theory {self.theory:.6g}; "
            f"{self.num_replications} replications, {self.num_requests} requests, "
            f"{self.seconds:.1f} s"
        )


def one_token_run(
    rate: float,
    policy: Any,
    cost: Any,
    *,
    num_requests: int,
    warmup_s: float,
    prompt_tokens: int = 1,
    engine: Any = None,
) -> RunSpec:
    """Return a run of Poisson arrivals that ask for one token each, as queueing theory likes it.

    Runs of different rates, policies or machines have seeds of their own, so that no two tests
    share their luck.
    """
    workload = {"arrivals": rate, "prompt_tokens": prompt_tokens, "output_tokens": 1}
    spec = RunSpec(
        workload=workload | {"num_requests": num_requests},
        policy=policy,
        cost=cost,
        engine=engine or {},
        measure={"warmup_s": warmup_s},
    )
    return spec.model_copy(update={"seed": int(spec.content_hash()[:8], 16)})


def check(name: str, spec: RunSpec, sample: Callable[[Result], Sample], **theory: float) -> None:
    """Fail unless every value agrees with theory; the table of estimates goes to stdout.

    Parameters
    ----------
    name : str
        Of the queueing system, for the table.
    spec : RunSpec
        What is replicated.
    sample : callable
        Takes a result.
    **theory : float
        Name of a value to what it should be.
    """

    def measure(replication: int) -> Sample:
        return sample(simulate(spec, replication=replication))

    estimates = replicate_until(measure, theory)
    for quantity, estimate in estimates.items():
        sys.stdout.write(f"{name} {quantity}: {estimate}\n")
    wrong = {quantity: str(found) for quantity, found in estimates.items() if not found.agrees}
    assert not wrong, wrong


def replicate_until(
    measure: Callable[[int], Sample], theory: dict[str, float]
) -> dict[str, Estimate]:
    """Add replications until every interval is narrow enough.

    Parameters
    ----------
    measure : callable
        Takes the number of the replication.
    theory : dict
        Name of a value to what it should be.

    Returns
    -------
    dict
        Name to estimate; one that is still too wide after `MOST` replications raises.
    """
    started = process_time()
    samples: list[Sample] = []
    look = FEWEST
    while True:
        samples += [measure(number) for number in range(len(samples), look)]
        found = {name: _estimate(samples, name) for name in theory}
        widest = max(half / theory[name] for name, (_, half) in found.items())
        if widest <= LARGEST_HALF_WIDTH:
            break
        assert look < MOST, f"half-width {widest:.2%} after {look} replications"
        look = min(MOST, int(np.ceil(look * GROWTH)))
    seconds = process_time() - started
    number = sum(sample.num_requests for sample in samples)
    return {
        name: Estimate(value, half, theory[name], len(samples), number, seconds)
        for name, (value, half) in found.items()
    }


def _estimate(samples: Sequence[Sample], name: str) -> tuple[float, float]:
    """Return mean and half-width of a value, freed of its regression on the controls."""
    values = np.array([sample.values[name] for sample in samples])
    controls = np.array([sample.controls for sample in samples])
    design = np.column_stack([np.ones(len(values)), controls / controls.std(axis=0)])
    # The first row of the inverse gives the mean at controls of 0. Controls may say the same twice.
    inverse = np.linalg.pinv(design, rcond=1e-6)
    rest = values - design @ (inverse @ values)
    freedom = len(values) - np.linalg.matrix_rank(design, tol=1e-6 * len(values) ** 0.5)
    error = np.sqrt(rest @ rest / freedom * (inverse[0] @ inverse[0]))
    half_width = student.ppf((1 + CONFIDENCE) / 2, freedom) * error
    return float(inverse[0] @ values), float(half_width)


class Measured:
    """The measured part of a run of one-token requests under Poisson arrivals.

    It starts behind the request that arrives at the end of the warm-up in the mean, and ends with
    the arrival of the last request that counts; the requests behind that only keep it company.

    Parameters
    ----------
    result : Result
    """

    def __init__(self, result: Result) -> None:
        table, steps = result.tables["requests"], result.tables["steps"]
        names = ("arrival_s", "first_scheduled_s", "first_token_s", "finish_s")
        self._arrivals, self._scheduled, self._first_tokens, self._finishes = (
            table[name].astype(float) for name in names
        )
        self._starts, self._ends = (steps[name].astype(float) for name in ("start_s", "end_s"))
        self._rows = steps["prefill_chunks"].astype(float)
        self._rate = result.spec.workload.arrivals.rate  # type: ignore[union-attr]
        first = int(self._rate * result.spec.measure.warmup_s)
        last = len(self._arrivals) - NUM_COMPANY
        self._counts = slice(first + 1, last + 1)
        self._times = self._arrivals[self._counts]
        self._low, self._high = float(self._arrivals[first]), float(self._arrivals[last])
        self._inside = (self._starts > self._low) & (self._starts <= self._high)

    def sojourn(self) -> float:
        """Return the mean time in the system, seconds."""
        return float((self._finishes - self._arrivals)[self._counts].mean())

    def ttft(self) -> float:
        """Return the mean time to the first token, seconds."""
        return float((self._first_tokens - self._arrivals)[self._counts].mean())

    def wait(self) -> float:
        """Return the mean time until the first step, seconds."""
        return float((self._scheduled - self._arrivals)[self._counts].mean())

    def batch_size(self) -> float:
        """Return the mean number of requests in a step."""
        return float(self._rows[self._inside].mean())

    def utilisation(self) -> float:
        """Return the busy share of the time, per mean length of the window."""
        busy = overlap(self._starts, self._ends, self._low, self._high).sum()
        return float(busy * self._rate / len(self._times))

    def arrival_controls(self) -> tuple[float, ...]:
        """Return the martingales of the arrivals.

        With f = 1, the number waiting, the number in service, and the rest of the step under way.
        """
        times, low, high = self._times, self._low, self._high
        last = np.searchsorted(self._starts, times) - 1  # the step under way, or the last; -1: none
        rest = np.where(last >= 0, np.maximum(self._ends[last] - times, 0.0), 0.0)
        first, end = (np.clip(moments, low, high) for moments in (self._starts, self._ends))
        sums = (
            len(times),
            self._waiting_at(times, "left").sum(),
            self._rows[last[rest > 0]].sum(),
            rest.sum(),
        )
        integrals = (
            high - low,
            overlap(self._arrivals, self._scheduled, low, high).sum(),
            (self._rows * (end - first)).sum(),
            ((self._ends - first) ** 2 - (self._ends - end) ** 2).sum() / 2,
        )
        pairs = zip(sums, integrals, strict=True)
        return tuple(float(total - self._rate * area) / len(times) for total, area in pairs)

    def service_controls(self, mean: float, second_moment: float) -> tuple[float, ...]:
        """Return the martingales of random step times.

        Time minus its mean, the same times the number waiting, and the square minus its mean.
        """
        luck = (self._ends - self._starts)[self._inside] - mean
        waiting = self._waiting_at(self._starts[self._inside], "right")
        squares = (luck + mean) ** 2 - second_moment
        sums = luck.sum(), (waiting * luck).sum(), squares.sum()
        return tuple(float(total) / len(self._times) for total in sums)

    def _waiting_at(self, times: Floats, side: Literal["left", "right"]) -> NDArray[np.int64]:
        """Return how many wait just before each time, or after."""
        scheduled = np.sort(self._scheduled)
        return np.searchsorted(self._arrivals, times, side) - np.searchsorted(
            scheduled, times, side
        )
