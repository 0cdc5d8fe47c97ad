"""One server, one request at a time: M/M/1, M/D/1, M/G/1, priorities, and length-aware orders.

Times are in any one unit and rates are its inverse; seconds and requests per second elsewhere in
this program.
"""

from collections.abc import Callable, Sequence
from math import exp, inf

from scipy.integrate import quad

from simulator.errors import UserError


def check_stable(load: float, what: str = "load") -> None:
    """Refuse a load that a server cannot keep up with.

    Parameters
    ----------
    load : float
        Arriving work over the work that can be done, both in the long run.
    what : str
        Its name in the message.

    Raises
    ------
    UserError
        If it is not above 0 and below 1.

    Examples
    --------
    >>> check_stable(1.25)
    Traceback (most recent call last):
    simulator.errors.UserError: load 1.25: expected above 0 and below 1, or the queue grows for ever
    """
    if not 0 < load < 1:
        raise UserError(
            f"{what} {load:g}: expected above 0 and below 1, or the queue grows for ever"
        )


def mm1_sojourn(rate: float, service_rate: float) -> float:
    """Return the mean time in an M/M/1 system, service included.

    Parameters
    ----------
    rate : float
        Arrivals per unit of time, a Poisson process.
    service_rate : float
        Services per unit of time, exponential; above `rate`.

    Raises
    ------
    UserError
        If the queue grows for ever.

    Examples
    --------
    >>> round(mm1_sojourn(0.8, 1.0), 6)
    5.0
    """
    check_stable(rate / service_rate)
    return 1 / (service_rate - rate)


def mg1_wait(rate: float, mean: float, second_moment: float) -> float:
    """Return the mean wait of M/G/1, first come first served.

    Parameters
    ----------
    rate : float
        Arrivals per unit of time, a Poisson process.
    mean, second_moment : float
        E[S] and E[S²] of the service times; ``mean**2`` as the second moment gives M/D/1.

    Raises
    ------
    UserError
        If the queue grows for ever.

    Notes
    -----
    Pollaczek and Khinchine: W_q = λ E[S²] / (2 (1 - ρ)), ρ = λ E[S].

    Examples
    --------
    Services of 0.5 (90 %) or 5.5 (10 %):

    >>> round(mg1_wait(0.5, 1.0, 0.9 * 0.5**2 + 0.1 * 5.5**2), 6)
    1.625
    """
    check_stable(rate * mean)
    return rate * second_moment / (2 * (1 - rate * mean))


def priority_waits(
    rates: Sequence[float], means: Sequence[float], second_moments: Sequence[float]
) -> list[float]:
    """Return the mean wait of each class of M/G/1 with priorities that do not preempt.

    Parameters
    ----------
    rates, means, second_moments : sequence of float
        Arrival rate, E[S] and E[S²] of each class, the most urgent first.

    Raises
    ------
    UserError
        If the queue grows for ever.

    Notes
    -----
    W_q,k = (Σ λ_i E[S_i²] / 2) / ((1 - σ_(k-1)) (1 - σ_k)), σ_k = ρ_1 + ... + ρ_k.
    The sum of ρ_k W_q,k is that of first come, first served.

    References
    ----------
    A. Cobham, "Priority assignment in waiting line problems", Operations Research 2 (1954).

    Examples
    --------
    >>> [round(wait, 6) for wait in priority_waits([0.4, 0.4], [1, 1], [2, 2])]
    [1.333333, 6.666667]
    """
    loads = [rate * mean for rate, mean in zip(rates, means, strict=True)]
    check_stable(sum(loads))
    rest = sum(rate * moment for rate, moment in zip(rates, second_moments, strict=True)) / 2
    return [
        rest / ((1 - sum(loads[:number])) * (1 - sum(loads[: number + 1])))
        for number in range(len(loads))
    ]


def processor_sharing_sojourn(rate: float, mean: float) -> float:
    """Return the mean time in M/G/1 whose server works on all requests at once, equally.

    Parameters
    ----------
    rate : float
        Arrivals per unit of time, a Poisson process.
    mean : float
        E[S], the mean time that a request needs alone; its law does not matter.

    Raises
    ------
    UserError
        If the queue grows for ever.

    Notes
    -----
    W = E[S] / (1 - ρ). Continuous batching comes close to it where the time of a step is
    proportional to its rows and a request takes many steps.

    Examples
    --------
    >>> processor_sharing_sojourn(0.5, 1.0)
    2.0
    """
    check_stable(rate * mean)
    return mean / (1 - rate * mean)


def mm1_sjf_wait(rate: float, service_rate: float) -> float:
    """Return the mean wait of M/M/1 that serves the shortest first and does not preempt.

    Parameters
    ----------
    rate, service_rate : float
        Arrivals and services per unit of time.

    Raises
    ------
    UserError
        If the queue grows for ever.

    Notes
    -----
    W_q(x) = λ E[S²] / (2 (1 - ρ(x))²) for a service of x, ρ(x) = λ ∫₀ˣ t f(t) dt.

    References
    ----------
    T. E. Phipps, "Machine repair as a priority waiting-line problem", Operations Research 4 (1956).

    Examples
    --------
    >>> round(mm1_sjf_wait(0.8, 1.0), 5)
    1.88222
    """
    load = rate / service_rate
    check_stable(load)
    return _mean_over_services(lambda x: load / (1 - load * _first_moment(x)) ** 2) / service_rate


def mm1_preemptive_sjf_sojourn(rate: float, service_rate: float) -> float:
    """Return the mean time in M/M/1 where a shorter service preempts a longer one.

    What is compared is the whole service; the preempted one goes on where it was.

    Parameters
    ----------
    rate, service_rate : float
        Arrivals and services per unit of time.

    Raises
    ------
    UserError
        If the queue grows for ever.

    Notes
    -----
    T(x) = λ m₂(x) / (2 (1 - ρ(x))²) + x / (1 - ρ(x)), m₂(x) = ∫₀ˣ t² f(t) dt.

    References
    ----------
    M. Harchol-Balter, "Performance Modeling and Design of Computer Systems", 2013, chapter 32.

    Examples
    --------
    >>> round(mm1_preemptive_sjf_sojourn(0.8, 1.0), 5)
    2.6589
    """
    load = rate / service_rate
    check_stable(load)

    def sojourn(x: float) -> float:
        free = 1 - load * _first_moment(x)
        return load * _second_moment(x) / (2 * free**2) + x / free

    return _mean_over_services(sojourn) / service_rate


def mm1_srpt_sojourn(rate: float, service_rate: float) -> float:
    """Return the mean time in M/M/1 that always serves who needs least to the end (SRPT).

    No order of one preemptive server has a lower mean, on any sequence of arrivals.

    Parameters
    ----------
    rate, service_rate : float
        Arrivals and services per unit of time.

    Raises
    ------
    UserError
        If the queue grows for ever.

    Notes
    -----
    T(x) = λ (m₂(x) + x² (1 - F(x))) / (2 (1 - ρ(x))²) + ∫₀ˣ dt / (1 - ρ(t)).

    References
    ----------
    L. E. Schrage and L. W. Miller, "The queue M/G/1 with the shortest remaining processing time
    discipline", Operations Research 14 (1966); L. E. Schrage, Operations Research 16 (1968).

    Examples
    --------
    >>> round(mm1_srpt_sojourn(0.8, 1.0), 5), round(mm1_srpt_sojourn(0.5, 1.0), 5)
    (2.35277, 1.42537)
    """
    load = rate / service_rate
    check_stable(load)

    def wait(x: float) -> float:
        part = _second_moment(x) + x**2 * exp(-x)
        return load * part / (2 * (1 - load * _first_moment(x)) ** 2)

    def residence(x: float) -> float:
        """Return the integrand after the two integrals are exchanged, over the density."""
        return 1 / (1 - load * _first_moment(x))

    return (_mean_over_services(wait) + _mean_over_services(residence)) / service_rate


def _mean_over_services(value: Callable[[float], float]) -> float:
    """Return the mean of a function of an exponential service of mean 1."""
    return float(quad(lambda x: value(x) * exp(-x), 0, inf, epsabs=1e-10, epsrel=1e-10)[0])


def _first_moment(x: float) -> float:
    """Return ∫₀ˣ t exp(-t) dt."""
    return 1 - (1 + x) * exp(-x)


def _second_moment(x: float) -> float:
    """Return ∫₀ˣ t² exp(-t) dt."""
    return 2 - (2 + 2 * x + x**2) * exp(-x)
