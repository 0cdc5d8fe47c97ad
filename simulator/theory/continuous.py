"""Requests of many tokens: static batches against continuous ones."""

from collections.abc import Sequence

import numpy as np
from scipy.stats import binom, poisson

from simulator.errors import UserError
from simulator.theory.batch_service import Batches
from simulator.theory.chains import stationary
from simulator.theory.single_server import check_stable


def static_efficiency(batch: int, lengths: Sequence[float] | None = None) -> float:
    """Return the share of useful rows of static batches that run to their longest member.

    Continuous batching, which fills a seat as soon as it is free, has the efficiency 1 while
    requests wait.

    Parameters
    ----------
    batch : int
        Requests in a batch, at least 1.
    lengths : sequence of float, optional
        Equally likely lengths. None: exponential ones, whatever the mean.

    Raises
    ------
    UserError
        If the batch holds nobody.

    Notes
    -----
    E[D] / E[max(D_1, ..., D_b)]; for exponential lengths 1 / (1 + 1/2 + ... + 1/b).

    Examples
    --------
    >>> round(static_efficiency(8), 6), static_efficiency(2, [1.0, 3.0])
    (0.367937, 0.8)
    """
    if batch < 1:
        raise UserError(f"batch {batch}: expected at least 1")
    if lengths is None:
        return 1 / sum(1 / k for k in range(1, batch + 1))
    ordered = np.sort(np.asarray(lengths, dtype=float))
    below = np.arange(len(ordered) + 1) / len(ordered)
    return float(ordered.mean() / (ordered @ np.diff(below**batch)))


def continuous_batches(
    rate: float, alpha: float, tau0: float, mean_tokens: float, seats: int
) -> Batches:
    """Solve continuous batching of geometric lengths, with steps of `alpha * m + tau0`.

    Every one of the m requests in a step gets a token. A request that finishes leaves at once, and
    waiting ones take the free seats before the next step.

    Parameters
    ----------
    rate : float
        Arrivals per unit of time, a Poisson process.
    alpha, tau0 : float
        Time for each request in a step, and for the step.
    mean_tokens : float
        Mean of the geometric lengths, steps; 1: the capped batch of `linear_batches`.
    seats : int
        Largest number of requests in a step.

    Raises
    ------
    UserError
        If the queue grows for ever.

    Notes
    -----
    Chain at the ends of steps, with the number n of those still present: as in `linear_batches`,
    but of the m in a step a binomial number leaves. As steps become short, it tends to M/M/c where
    `alpha` is 0, and to processor sharing where `tau0` is 0 and seats abound.

    Examples
    --------
    >>> found = continuous_batches(1.6, 0.0, 0.01, 100, 2)  # M/M/2: 2.777778
    >>> round(found.sojourn, 3)
    2.772
    """
    check_stable(rate * mean_tokens * (alpha + tau0 / seats))
    states = _enough_seated(rate, alpha, tau0, mean_tokens, seats)
    queue = np.arange(states)
    present = np.maximum(queue, 1)
    batch = np.minimum(present, seats)
    time = alpha * batch + tau0
    moves = np.zeros((states, states))
    for q in queue:
        m = int(batch[q])
        stay = binom.pmf(np.arange(m + 1), m, 1 - 1 / mean_tokens)
        arrivals = poisson.pmf(queue, rate * time[q])
        left = present[q] - m
        moves[q, left:] = np.convolve(stay, arrivals)[: states - left]
    chance = stationary(moves)
    mean_time = chance @ time
    cycle = mean_time + chance[0] / rate
    number = chance @ (present * time + rate * time**2 / 2) / cycle
    return Batches(float(chance @ batch), float(number / rate), float(mean_time / cycle))


def _enough_seated(rate: float, alpha: float, tau0: float, tokens: float, seats: int) -> int:
    """Return a number of states beyond which nobody is ever found."""
    load = rate * tokens * (alpha + tau0 / seats)
    alone = 1.0 if alpha == 0 else min(1.0, tau0 / (alpha * seats))
    return int(40 + 2 * seats * alone + (20 + 4 * rate * (alpha + tau0)) / (1 - load))
