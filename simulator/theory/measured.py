"""The measured part of a run that a formula describes, and controls that take luck out of it.

**Controls.** Take Poisson arrivals of a known rate and any number f that is known just before each
moment. Then

    sum of f over the arrivals in [w, T]  -  rate * integral of f over [w, T]

has mean 0 (a stopped martingale) where w and T are the times of the k-th and m-th arrival. Likewise
the sum of f (S - E[S]) over steps, with f known when a step starts and S its random duration, or
over arrivals, with f known before them and S the work they bring. This holds for *every* engine and
policy that does not look ahead, right or wrong.

**Bias.** A replication starts empty and counts from the warm-up on, at least five relaxation times
of the system. Both ends of the window are arrivals of fixed numbers, not fixed times: the first
arrival after a fixed time ends a gap that is longer than others, and meets fewer requests. Behind
the last request that counts, others arrive, as many as during a warm-up, without which its batch
would be too small. So mean times, steps per request, and the utilisation, which divides by the
mean length of the window, are without bias. The mean over the batches in the window is not: an
arrival is more likely in a long step, and meets a large batch.
"""

from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from simulator.columns import Columns
from simulator.result import Result
from simulator.stats import Floats
from simulator.theory.laws import Moments
from simulator.theory.replications import Sample
from simulator.theory.spans import Level, Spans, work_before

LEAST_COMPANY = 50
"""Requests at the end of a replication that do not count, or more after a long warm-up."""

Controls = tuple[float, ...]
Members = Callable[[Columns], NDArray[np.bool_]]


class Measured:
    """The measured part of a run under Poisson arrivals.

    It starts behind the request that arrives at the end of the warm-up in the mean, and ends with
    the arrival of the last request that counts; the requests behind that only keep it company.

    Parameters
    ----------
    result : Result
        Of a run of `synthetic` requests.
    """

    def __init__(self, result: Result) -> None:
        self._table, self._steps = result.tables["requests"], result.tables["steps"]
        self._arrivals, self._scheduled, self._finishes = (
            self._column(name) for name in ("arrival_s", "first_scheduled_s", "finish_s")
        )
        self._starts, self._ends = (
            self._steps[name].astype(float) for name in ("start_s", "end_s")
        )
        self._rate = result.spec.workload.arrivals.rate  # type: ignore[union-attr]
        first = int(self._rate * result.spec.measure.warmup_s)
        last = len(self._arrivals) - max(first, LEAST_COMPANY)
        self._counts = slice(first + 1, last + 1)
        self._times = self._arrivals[self._counts]
        self._low, self._high = float(self._arrivals[first]), float(self._arrivals[last])
        self._inside = (self._starts > self._low) & (self._starts <= self._high)

    def sojourn(self) -> float:
        """Return the mean time in the system, seconds."""
        return float((self._finishes - self._arrivals)[self._counts].mean())

    def ttft(self) -> float:
        """Return the mean time to the first token, seconds."""
        return float((self._column("first_token_s") - self._arrivals)[self._counts].mean())

    def wait(self) -> float:
        """Return the mean time until the first step, seconds."""
        return float((self._scheduled - self._arrivals)[self._counts].mean())

    def wait_of(self, priority: int) -> float:
        """Return the mean time until the first step of the requests of a priority, seconds."""
        return self._mean_of(priority, self._scheduled - self._arrivals)

    def sojourn_of(self, priority: int) -> float:
        """Return the mean time in the system of the requests of a priority, seconds."""
        return self._mean_of(priority, self._finishes - self._arrivals)

    def _mean_of(self, priority: int, values: Floats) -> float:
        mine = self._table["priority"][self._counts] == priority
        return float(values[self._counts][mine].mean())

    def batches(self) -> float:
        """Return the number of steps per request: the inverse of the mean batch, of one token."""
        return float(self._number("num_steps")[self._inside].sum()) / len(self._times)

    def utilisation(self) -> float:
        """Return the busy share of the time, per mean length of the window."""
        busy = Spans(self._starts, self._ends).area(self._low, self._high)
        return float(busy * self._rate / len(self._times))

    def number_controls(self) -> Controls:
        """Return martingales of the arrivals: f = 1, the number waiting, the number served."""
        waiting = Spans(self._arrivals, self._scheduled)
        served = Spans(self._starts, self._ends, self._rows)
        low, high, times = self._low, self._high, self._times
        return (
            self._martingale(np.ones(len(times)), high - low),
            self._martingale(waiting.before(times), waiting.area(low, high)),
            self._martingale(served.before(times), served.area(low, high)),
        )

    def rest_controls(self) -> Controls:
        """Return the martingale of the arrivals with f = the rest of the steps under way.

        Only where a row of the steps table is one step, whose end is known when it starts.
        """
        steps = Spans(self._starts, self._ends)
        found = steps.rest_before(self._times)
        return (self._martingale(found, steps.rest_area(self._low, self._high)),)

    def service_controls(self, mean: float, second_moment: float) -> Controls:
        """Return martingales of steps of random duration.

        Time minus its mean, the same times the number waiting, and the square minus its mean.

        Parameters
        ----------
        mean, second_moment : float
            Of the duration of a step, seconds and seconds squared.
        """
        luck = (self._ends - self._starts)[self._inside] - mean
        waiting = self._number("num_waiting")[self._inside]
        squares = (luck + mean) ** 2 - second_moment
        sums = luck.sum(), (waiting * luck).sum(), squares.sum()
        return tuple(float(total) / len(self._times) for total in sums)

    def finish_controls(self, mean: float) -> Controls:
        """Return martingales of geometric output lengths: any token is the last with 1 / mean.

        Finished requests less their expected number in each step, alone, times the number
        waiting and times the number running; for one replica.

        Parameters
        ----------
        mean : float
            Of the output lengths, tokens.
        """
        finished = np.unique(self._finishes, return_counts=True)
        index = np.minimum(np.searchsorted(finished[0], self._ends), len(finished[0]) - 1)
        number = np.where(finished[0][index] == self._ends, finished[1][index], 0)
        luck = (number - self._rows * self._number("num_steps") / mean)[self._inside]
        waiting, running = (
            self._number(name)[self._inside] for name in ("num_waiting", "num_running")
        )
        sums = luck.sum(), (waiting * luck).sum(), (running * luck).sum()
        return tuple(float(total) / len(self._times) for total in sums)

    def replica_controls(self) -> Controls:
        """Return the martingale of the arrivals with f = the sum of squares of replica loads."""
        replica = self._table["replica"]
        loads = [
            Level.of(self._arrivals[replica == number], self._finishes[replica == number])
            for number in np.unique(replica)
        ]
        squares = Level.total([load.squared() for load in loads])
        found = squares.before(self._times)
        return (self._martingale(found, squares.area(self._low, self._high)),)

    def tokens(self, column: str) -> Floats:
        """Return a column of lengths, all requests, tokens."""
        return self._column(column)

    def services(self) -> Floats:
        """Return the time from the first step of each request to its end, all requests, seconds."""
        return self._finishes - self._scheduled

    def work_controls(self, services: Floats, moments: Moments) -> Controls:
        """Return martingales of the work that requests bring to one server that never idles.

        The known moments of the work, alone and times the work and the number present; the
        arrivals with f = the work and the number present.

        Parameters
        ----------
        services : array of shape (n,)
            Work of each request, seconds.
        moments : Moments
            Of the work.
        """
        present = work_before(self._arrivals, services)
        high = present + services
        low = np.maximum(high[:-1] - np.diff(self._arrivals), 0.0)
        areas = (high[:-1] ** 2 - low**2) / 2  # from each arrival to the next
        window = slice(self._counts.start - 1, self._counts.stop - 1)
        found = present[self._counts]
        system = Spans(self._arrivals, self._finishes)
        number = system.before(self._times)
        return (
            *self._marks(services, moments, found, number),
            self._martingale(found, float(areas[window].sum())),
            self._martingale(number, system.area(self._low, self._high)),
        )

    def class_controls(self, services: Floats, moments: Moments, belongs: Members) -> Controls:
        """Return martingales of a class of requests whose work is one step each.

        With f = the rest of the step under way and the work of the members that wait: what a
        member finds before it, if members go first.

        Parameters
        ----------
        services : array of shape (n,)
            Work of each request, seconds.
        moments : Moments
            Of the members' work.
        belongs : callable
            Takes the requests table, returns who is a member.
        """
        member = belongs(self._table)
        waiting = Spans(self._arrivals, self._scheduled, services * member)
        steps = Spans(self._starts, self._ends)
        found = waiting.before(self._times) + steps.rest_before(self._times)
        area = waiting.area(self._low, self._high) + steps.rest_area(self._low, self._high)
        luck = member[self._counts] - moments.share
        sums = luck.sum(), (found * luck).sum()
        return (
            *self._marks(services * member, moments, found),
            *(float(total) / len(luck) for total in sums),
            self._martingale(found, area),
        )

    def draw_controls(self, services: Floats, mean: float, belongs: Members) -> Controls:
        """Return the martingale of the members' work that is drawn as it starts, f = the wait.

        Parameters
        ----------
        services : array of shape (n,)
            Work of each request, seconds.
        mean : float
            Of the work, seconds.
        belongs : callable
            Takes the requests table, returns who is a member.
        """
        luck = (services - mean) * belongs(self._table) * (self._scheduled - self._arrivals)
        return (float(luck[self._counts].sum()) / len(self._times),)

    def _marks(self, services: Floats, moments: Moments, *found: Floats) -> Controls:
        """Return the martingales of what arrivals bring: with f = 1 and others, and of squares."""
        mine = services[self._counts]
        luck = mine - moments.first
        sums = luck.sum(), (mine**2 - moments.second).sum(), *((f * luck).sum() for f in found)
        return tuple(float(total) / len(mine) for total in sums)

    @cached_property
    def _rows(self) -> Floats:
        """Requests in each step."""
        return self._number("decode_rows") + self._number("prefill_chunks")

    def _number(self, name: str) -> Floats:
        return self._steps[name].astype(float)

    def _column(self, name: str) -> Floats:
        return self._table[name].astype(float)

    def _martingale(self, found: Floats, integral: float) -> float:
        return float(found.sum() - self._rate * integral) / len(self._times)


def look(
    values: Mapping[str, Callable[[Measured], float]], *controls: Callable[[Measured], Controls]
) -> Callable[[Result], Sample]:
    """Return a function that takes values and controls from a result.

    Parameters
    ----------
    values : mapping
        Name to what is measured.
    *controls : callable
        Each gives some numbers of mean 0.
    """

    def sample(result: Result) -> Sample:
        seen = Measured(result)
        taken = {name: value(seen) for name, value in values.items()}
        luck = tuple(number for control in controls for number in control(seen))
        return Sample(taken, luck, len(result.trace))

    return sample
