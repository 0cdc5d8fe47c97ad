"""Several equal servers with exponential services: one queue, or a router before the queues."""

from math import factorial

import numpy as np
from scipy.optimize import brentq
from scipy.sparse import dok_array

from simulator.errors import UserError
from simulator.theory.chains import stationary_sparse
from simulator.theory.single_server import check_stable


def erlang_c(servers: int, load: float) -> float:
    """Return the probability that a request of M/M/c has to wait.

    Parameters
    ----------
    servers : int
        c, at least 1.
    load : float
        a = arrival rate over the service rate of one server, below c.

    Raises
    ------
    UserError
        If there is no server, or the queue grows for ever.

    Notes
    -----
    C = T / (Σ_(k<c) a^k / k! + T), T = (a^c / c!) c / (c - a).

    References
    ----------
    A. K. Erlang, "Solution of some problems in the theory of probabilities of significance in
    automatic telephone exchanges", 1917.

    Examples
    --------
    >>> round(erlang_c(3, 2.0), 6), round(erlang_c(8, 6.4), 6)
    (0.444444, 0.457645)
    """
    _check_servers(servers)
    check_stable(load / servers)
    last = load**servers / factorial(servers) * servers / (servers - load)
    return last / (sum(load**k / factorial(k) for k in range(servers)) + last)


def mmc_wait(rate: float, service_rate: float, servers: int) -> float:
    """Return the mean wait of M/M/c: several servers, one queue.

    The lower bound for any router before servers of one queue each.

    Parameters
    ----------
    rate : float
        Arrivals per unit of time, all servers together.
    service_rate : float
        Services per unit of time of one server.
    servers : int
        c, at least 1.

    Raises
    ------
    UserError
        If there is no server, or the queue grows for ever.

    Notes
    -----
    W_q = C / (c μ - λ) with Erlang's C.

    Examples
    --------
    >>> round(mmc_wait(1.6, 1.0, 2), 6)
    1.777778
    """
    chance = erlang_c(servers, rate / service_rate)
    return chance / (servers * service_rate - rate)


def round_robin_sojourn(rate: float, service_rate: float, servers: int = 2) -> float:
    """Return the mean time behind a router that takes turns: every server is E_n/M/1.

    Parameters
    ----------
    rate : float
        Arrivals per unit of time at one server; n times that arrive in all.
    service_rate : float
        Services per unit of time of one server.
    servers : int
        n, at least 1; 1 is M/M/1.

    Raises
    ------
    UserError
        If there is no server, or the queue grows for ever.

    Notes
    -----
    W = 1 / (μ (1 - σ)), σ in (0, 1) the root of σ = (n λ / (n λ + μ (1 - σ)))^n.

    Examples
    --------
    >>> round(round_robin_sojourn(0.8, 1.0), 6)
    3.84398
    """
    _check_servers(servers)
    load = rate / service_rate
    check_stable(load)
    total = servers * load

    def balance(free: float) -> float:
        return 1 - free - (total / (total + free)) ** servers

    # 0 is a root too; the balance is concave, and 1 - load, the root for one server, lies below.
    free = float(brentq(balance, (1 - load) / 4, 1.0, xtol=1e-14))
    return 1 / (service_rate * free)


def power_of_two_sojourn(rate: float, service_rate: float) -> float:
    """Return the mean time behind a router that draws two servers, for ever more servers.

    The request goes to the server of the two that has fewer requests.

    Parameters
    ----------
    rate : float
        Arrivals per unit of time and server.
    service_rate : float
        Services per unit of time of one server.

    Raises
    ------
    UserError
        If the queues grow for ever.

    Notes
    -----
    The share of servers with k requests or more tends to ρ^(2^k - 1). With n servers the mean is
    higher by a share of the order of 1/n: for n = 100 by about 0.1 % at load 0.5, 0.5 % at 0.8,
    1 % at 0.9 (simulated).

    References
    ----------
    M. Mitzenmacher, "The power of two choices in randomized load balancing", IEEE TPDS 12 (2001);
    N. Vvedenskaya, R. Dobrushin, F. Karpelevich, Problems of Information Transmission 32 (1996).

    Examples
    --------
    >>> [round(power_of_two_sojourn(load, 1.0), 6) for load in (0.5, 0.9)]
    [1.265686, 2.614057]
    """
    load = rate / service_rate
    check_stable(load)
    number = exponent = 1.0
    total = 0.0
    while number > 1e-16:
        number = load ** (2**exponent - 2)
        total += number
        exponent += 1
    return total / service_rate


def shortest_of_two_sojourn(rate: float, service_rate: float) -> float:
    """Return the mean time behind a router that joins the shorter of two queues.

    With two servers, `power-of-two` is the same router.

    Parameters
    ----------
    rate : float
        Arrivals per unit of time and server; twice as many arrive in all.
    service_rate : float
        Services per unit of time of one server.

    Raises
    ------
    UserError
        If the queues grow for ever.

    Notes
    -----
    Chain of the shorter queue and the difference, observed at the events of a Poisson process of
    rate 2 (λ + μ).

    References
    ----------
    J. F. C. Kingman, "Two similar queues in parallel", Annals of Mathematical Statistics 32 (1961).

    Examples
    --------
    >>> round(shortest_of_two_sojourn(0.8, 1.0), 6)
    2.955737
    """
    load = rate / service_rate
    check_stable(load)
    longest, widest = int(40 + 16 / (1 - load)), 24
    moves = dok_array((longest * widest, longest * widest))
    event = 2 * (load + 1)
    for state in range(longest * widest):
        short, more = divmod(state, widest)
        for queues, chance in (
            ((short + 1, short + more), 2 * load / event),
            ((max(short - 1, 0), short + more), 1 / event),
            ((short, max(short + more - 1, 0)), 1 / event),
        ):
            target = min(queues), abs(queues[1] - queues[0])
            is_inside = target[0] < longest and target[1] < widest
            moves[state, target[0] * widest + target[1] if is_inside else state] += chance
    number = np.arange(longest * widest) // widest * 2 + np.arange(longest * widest) % widest
    return float(stationary_sparse(moves) @ number) / (2 * rate)


def _check_servers(servers: int) -> None:
    if servers < 1:
        raise UserError(f"servers {servers}: expected at least 1")
