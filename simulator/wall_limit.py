"""A limit on wall-clock time, for runs that would never end."""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from simulator.errors import RunError, UserError

_AGAIN = 1.0
"""Seconds after which code that swallowed the alarm hears it again."""


@contextmanager
def wall_limit(seconds: float | None, where: Callable[[], str]) -> Iterator[None]:
    """End what runs inside after so many seconds of wall-clock time; None: never.

    It reaches code that never returns, such as a policy in an endless loop. The result of a run
    that ends in time does not depend on it.

    Parameters
    ----------
    seconds : float or None
        Greater than 0.
    where : callable
        Says how far the run has come.

    Raises
    ------
    RunError
        When the time is up.
    UserError
        If the number is not positive, or there are no alarms: off the main thread, or on a system
        without them.
    """
    if seconds is None:
        yield
        return
    if not 0 < seconds < threading.TIMEOUT_MAX:
        raise UserError(f"timeout {seconds:g}: expected seconds, greater than 0")
    is_main = threading.current_thread() is threading.main_thread()
    if not hasattr(signal, "setitimer") or not is_main:
        raise UserError("timeout: needs the main thread of a system with alarms (POSIX)")

    def ring(number: int, frame: object) -> None:
        raise RunError(f"no end after {seconds:g} s of wall-clock time (timeout); {where()}")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
