"""Servers of batches: linear, random, capped and threshold batches, and timers.

Where no closed form exists, the embedded Markov chain is solved numerically.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.stats import poisson

from simulator.errors import UserError
from simulator.theory.chains import stationary
from simulator.theory.single_server import check_stable


class Batches(NamedTuple):
    """Steady state of a server of batches.

    Attributes
    ----------
    size : float
        Mean number of requests in a batch, or in a step.
    sojourn : float
        Mean time of a request in the system, its service included.
    utilisation : float
        Share of the time in which the server is busy.
    """

    size: float
    sojourn: float
    utilisation: float


def linear_batches(
    rate: float, alpha: float, tau0: float, largest: int | None = None, smallest: int = 1
) -> Batches:
    """Solve a server whose batch of m requests takes `alpha * m + tau0`.

    A free server takes all that wait, at most `largest`; where fewer than `smallest` wait, it
    waits for them first.

    Parameters
    ----------
    rate : float
        Arrivals per unit of time, a Poisson process.
    alpha, tau0 : float
        Time for each request in a batch, and for the batch.
    largest : int, optional
        Largest batch; None: no limit.
    smallest : int
        Smallest batch, at most `largest`.

    Raises
    ------
    UserError
        If the queue grows for ever, or the smallest batch exceeds the largest.

    Notes
    -----
    Chain at the ends of batches, with the queue q left behind. The next batch starts when
    p = max(q, smallest) are present, holds m = min(p, largest), takes H = H(m) and leaves
    p - m + Poisson(rate * H). A cycle lasts (p - q) / rate + H; the integral of the number present
    over it is (q + ... + (p - 1)) / rate + p H + rate H² / 2. Mean number and, by Little's law,
    mean time follow as ratios.

    References
    ----------
    Y. Inoue, "Queueing analysis of GPU-based inference servers with dynamic batching: a
    closed-form characterization", Performance Evaluation 147 (2021), arXiv 1912.06322, for batches
    without a limit.

    Examples
    --------
    >>> found = linear_batches(0.5, 1.0, 1.0)
    >>> [round(value, 6) for value in found]
    [1.597353, 4.417357, 0.813018]
    >>> round(linear_batches(1.5, 0.25, 1.0, largest=8, smallest=4).size, 6)
    4.380297
    """
    if largest is not None and not 1 <= smallest <= largest:
        raise UserError(f"smallest {smallest}: expected 1 to largest {largest}")
    check_stable(rate * (alpha if largest is None else alpha + tau0 / largest))
    states = _enough_states(rate, alpha, tau0, largest) + smallest
    queue = np.arange(states)
    present = np.maximum(queue, smallest)
    batch = present if largest is None else np.minimum(present, largest)
    time = alpha * batch + tau0
    moves = np.zeros((states, states))
    for q in queue:
        left = present[q] - batch[q]
        moves[q, left:] = poisson.pmf(queue[: states - left], rate * time[q])
    chance = stationary(moves)
    mean_time = chance @ time
    cycle = mean_time + chance @ (present - queue) / rate
    gathering = (present * (present - 1) - queue * (queue - 1)) / (2 * rate)
    number = chance @ (gathering + present * time + rate * time**2 / 2) / cycle
    return Batches(float(chance @ batch), float(number / rate), float(mean_time / cycle))


def inoue_bounds(rate: float, alpha: float, tau0: float) -> tuple[float, float]:
    """Return Inoue's two upper bounds of the mean time, for batches without a limit.

    The first is the lower one, and close, at light load: where rate * (alpha + tau0) is at most 1.

    Parameters
    ----------
    rate, alpha, tau0 : float
        As for `linear_batches`.

    Raises
    ------
    UserError
        If the queue grows for ever.

    References
    ----------
    As for `linear_batches`.

    Examples
    --------
    >>> [round(bound, 6) for bound in inoue_bounds(0.9, 1.0, 1.0)]
    [28.526316, 22.631579]
    """
    x = rate * alpha
    check_stable(x)
    light = 1 + 2 * rate * tau0 + (1 - rate * tau0) / (1 + x)
    light *= (alpha + tau0) / (2 * (1 - x))
    heavy = 3 * tau0 / (2 * (1 - x)) + alpha / 2 * (x + 2) / (1 - x**2)
    return light, heavy


def exponential_batches(rate: float, service_rate: float, largest: int) -> Batches:
    """Solve M/M^[1,b]/1: a batch takes an exponential time whatever its size.

    Parameters
    ----------
    rate : float
        Arrivals per unit of time, a Poisson process.
    service_rate : float
        Batches per unit of time.
    largest : int
        b, the largest batch; 1 is M/M/1.

    Raises
    ------
    UserError
        If the queue grows for ever.

    Notes
    -----
    With r in (0, 1) the root of μ r^(b+1) - (λ + μ) r + λ = 0, the chance of a busy server and n
    waiting is C r^n, and that of an idle one C μ / λ; C = 1 / (μ / λ + 1 / (1 - r)).

    References
    ----------
    D. Gross and C. M. Harris, "Fundamentals of Queueing Theory", bulk-service queues.

    Examples
    --------
    >>> found = exponential_batches(1.5, 1.0, 2)
    >>> round(found.sojourn, 6), round(1 - found.utilisation, 6)
    (3.77007, 0.105612)
    """
    check_stable(rate / (service_rate * largest))

    def balance(r: float) -> float:
        return service_rate * r ** (largest + 1) - (rate + service_rate) * r + rate

    # 1 is a root too; the one in (0, 1) lies below the minimum in between.
    turn = ((rate + service_rate) / (service_rate * (largest + 1))) ** (1 / largest)
    r = float(brentq(balance, 0.0, turn, xtol=1e-15))
    scale = 1 / (service_rate / rate + 1 / (1 - r))
    idle = scale * service_rate / rate
    wait = scale * r / (1 - r) ** 2 / rate
    size = rate / (service_rate * (1 - idle))
    return Batches(size, wait + 1 / service_rate, 1 - idle)


def window_only(rate: float, window: float) -> tuple[float, float]:
    """Return mean batch size and mean wait of a timer that starts at the first arrival.

    No size limit and no service time.

    Parameters
    ----------
    rate : float
        Arrivals per unit of time, a Poisson process.
    window : float
        Time from the first arrival to the start of the batch.

    Notes
    -----
    E[b] = 1 + λT, mean wait T (1 + λT / 2) / (1 + λT).

    Examples
    --------
    >>> window_only(2.0, 1.0)
    (3.0, 0.6666666666666666)
    """
    size = 1 + rate * window
    return size, window * (1 + rate * window / 2) / size


def _enough_states(rate: float, alpha: float, tau0: float, largest: int | None) -> int:
    if largest is None:
        mean = (rate * tau0 + 1) / (1 - rate * alpha)
        return int(40 + 12 * mean)
    load = rate * (alpha * largest + tau0) / largest
    return int(largest * (6 + 14 / (1 - load)))
