"""Exact results of queueing theory, in the units of the caller (seconds, requests per second).

Sources: textbook results for M/G/1 and its kin; Inoue, Performance Evaluation 2021 (arXiv
1912.06322), for batches whose time is linear in their size. Where no closed form exists, the
embedded Markov chain is solved numerically, cut where its tail is below 1e-12.
"""

from typing import NamedTuple

import numpy as np
from scipy.optimize import brentq
from scipy.stats import poisson


def mm1_sojourn(rate: float, service_rate: float) -> float:
    """Return the mean time in an M/M/1 system."""
    return 1 / (service_rate - rate)


def erlang2_m1_sojourn(rate: float, service_rate: float) -> float:
    """Return the mean time in E2/M/1: every second request of a Poisson stream of 2 * rate."""
    sigma = float(
        brentq(lambda s: (2 * rate / (2 * rate + service_rate * (1 - s))) ** 2 - s, 0, 0.9999)
    )
    return 1 / (service_rate * (1 - sigma))


def mg1_wait(rate: float, mean: float, second_moment: float) -> float:
    """Return the mean wait of M/G/1 (Pollaczek and Khinchine)."""
    return rate * second_moment / (2 * (1 - rate * mean))


class Batches(NamedTuple):
    """Steady state of a server of batches.

    Attributes
    ----------
    size : float
        Mean number of requests in a batch.
    sojourn : float
        Mean time of a request in the system, its service included.
    utilisation : float
        Share of the time in which the server is busy.
    """

    size: float
    sojourn: float
    utilisation: float


def linear_batches(rate: float, alpha: float, tau0: float, largest: int | None = None) -> Batches:
    """Solve a server whose batch of m requests takes `alpha * m + tau0`.

    An idle server takes all that wait, at most `largest`, and starts at the first arrival.

    Notes
    -----
    Chain at the ends of batches, with the queue q left behind. The next batch holds
    m = min(max(q, 1), largest) and leaves max(q, 1) - m + Poisson(rate * H(m)). A cycle lasts
    H(m), plus 1/rate if q is 0; the integral of the number present over it is
    max(q, 1) * H + rate * H² / 2. Mean number and, by Little's law, mean time follow as ratios.
    """
    states = _enough_states(rate, alpha, tau0, largest)
    queue = np.arange(states)
    present = np.maximum(queue, 1)
    batch = present if largest is None else np.minimum(present, largest)
    time = alpha * batch + tau0
    arrivals = np.arange(states)
    moves = np.zeros((states, states))
    for q in queue:
        left = present[q] - batch[q]
        row = poisson.pmf(arrivals[: states - left], rate * time[q])
        moves[q, left:] = row
        moves[q, -1] += 1 - row.sum()
    chance = _stationary(moves)
    mean_time = chance @ time
    cycle = mean_time + chance[0] / rate
    number = chance @ (present * time + rate * time**2 / 2) / cycle
    return Batches(float(chance @ batch), float(number / rate), float(mean_time / cycle))


def _enough_states(rate: float, alpha: float, tau0: float, largest: int | None) -> int:
    if largest is None:
        mean = (rate * tau0 + 1) / (1 - rate * alpha)
        return int(40 + 12 * mean)
    load = rate * (alpha * largest + tau0) / largest
    return int(largest * (6 + 14 / (1 - load)))


def _stationary(moves: "np.ndarray[tuple[int, int], np.dtype[np.float64]]") -> np.ndarray:
    size = len(moves)
    equations = moves.T - np.eye(size)
    equations[-1] = 1.0
    right = np.zeros(size)
    right[-1] = 1.0
    chance = np.linalg.solve(equations, right)
    assert chance[-3:].max() < 1e-12, "cut too early"
    return chance


def exponential_batches(rate: float, service_rate: float, largest: int) -> Batches:
    """Solve M/M^[1,b]/1: a batch takes an exponential time whatever its size.

    Notes
    -----
    With r in (0, 1) the root of mu r^(b+1) - (rate + mu) r + rate = 0, the chance of a busy server
    and n waiting is C r^n, and that of an idle one C mu / rate.
    """

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
    """
    size = 1 + rate * window
    return size, window * (1 + rate * window / 2) / size
