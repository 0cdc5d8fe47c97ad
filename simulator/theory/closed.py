"""Closed systems: a fixed number of clients that ask, wait, think, and ask again."""

from typing import NamedTuple

from simulator.errors import UserError


class ClosedSystem(NamedTuple):
    """Steady state of a closed system.

    Attributes
    ----------
    sojourn : float
        Mean time of a request in the server, its service included.
    throughput : float
        Requests per unit of time.
    utilisation : float
        Share of the time in which the server is busy.
    """

    sojourn: float
    throughput: float
    utilisation: float


def closed_system(num_clients: int, think_time: float, service_rate: float) -> ClosedSystem:
    """Solve N clients before one exponential server, first come first served (machine repair).

    Parameters
    ----------
    num_clients : int
        N, at least 1.
    think_time : float
        Mean time between an answer and the client's next request, above 0; its law does not
        matter.
    service_rate : float
        Services per unit of time.

    Raises
    ------
    UserError
        If there is no client, or no time to think.

    Notes
    -----
    The chance of n requests in the server is proportional to N! / (N - n)! / (Z μ)^n. With
    throughput X, Little's law for the clients gives X (R + Z) = N.

    References
    ----------
    The finite-source queue M/M/1//N, for example L. Kleinrock, "Queueing Systems I", 1975,
    section 3.8.

    Examples
    --------
    >>> found = closed_system(10, 10.0, 1.0)
    >>> round(found.sojourn, 6), round(found.throughput * (found.sojourn + 10.0), 6)
    (2.732079, 10.0)
    """
    if num_clients < 1:
        raise UserError(f"num_clients {num_clients}: expected at least 1")
    if not think_time > 0:
        raise UserError(f"think_time {think_time:g}: expected above 0")
    weights = [1.0]
    for number in range(num_clients):
        weights.append(weights[-1] * (num_clients - number) / (think_time * service_rate))
    busy = 1 - weights[0] / sum(weights)
    throughput = busy * service_rate
    return ClosedSystem(num_clients / throughput - think_time, throughput, busy)


def throughput_bound(
    num_clients: int, think_time: float, service_time: float, largest_service: float
) -> float:
    """Return what the throughput of any closed system is at most.

    Parameters
    ----------
    num_clients : int
        N.
    think_time : float
        Z, the mean time to think.
    service_time : float
        S, the mean time that a request takes alone.
    largest_service : float
        The mean time that it takes of the resource it needs longest.

    Notes
    -----
    X ≤ min(1 / S_max, N / (S + Z)).

    References
    ----------
    P. J. Denning and J. P. Buzen, "The operational analysis of queueing network models", ACM
    Computing Surveys 10 (1978).

    Examples
    --------
    >>> throughput_bound(10, 10.0, 1.0, 1.0)
    0.9090909090909091
    """
    return min(1 / largest_service, num_clients / (service_time + think_time))
