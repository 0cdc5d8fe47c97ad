"""A limit on wall-clock time, for runs that would never end."""

import signal
import threading
from collections.abc import Callable
from typing import TypeVar

from simulator.errors import TimeUp, UserError

HELP = "Let a run fail after so many seconds of wall-clock time (exit code 3)."
"""What every command says of the option."""

_AGAIN = 1.0
"""Seconds after which code that swallowed the alarm hears it again."""

_T = TypeVar("_T")


class _Alarm(BaseException):
    """No `Exception`, so that code which catches those hears it too."""


def within(seconds: float | None, call: Callable[[], _T], where: Callable[[], str]) -> _T:
    """Return what a call returns, and end it after so many seconds of wall-clock time.

    It reaches code that never returns, such as a policy in an endless loop, unless that catches
    `BaseException` in the loop. The result of a call that ends in time does not depend on it; one
    that swallowed the alarm and went on is not taken.

    Parameters
    ----------
    seconds : float or None
        Greater than 0; None: no limit.
    call : callable
        What is done.
    where : callable
        Says how far it has come.

    Raises
    ------
    TimeUp
        When the time is up.
    UserError
        See `check_limit`.

    Examples
    --------
    >>> within(5.0, lambda: "done", lambda: "at the start")
    'done'
    """
    if seconds is None:
        return call()
    check_limit(seconds)
    rang = is_over = False

    def ring(number: int, frame: object) -> None:
        nonlocal rang
        if not is_over:
            rang = True
            raise _Alarm

    before = signal.signal(signal.SIGALRM, ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
        result = call()
    except BaseException as error:
        is_over = True
        if not rang or isinstance(error, KeyboardInterrupt):
            raise
    finally:
        is_over = True  # first: Python looks for signals after calls, not after this
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before or signal.SIG_DFL)
    if rang:
        raise TimeUp(f"no end after {seconds:g} s of wall-clock time (timeout); {where()}")
    return result


def check_limit(seconds: float | None) -> None:
    """Check that a limit can be kept here; None always can.

    Raises
    ------
    UserError
        If the number is not positive, or there are no alarms: off the main thread, or on a system
        without them.

    Examples
    --------
    >>> check_limit(0)
    Traceback (most recent call last):
    ...
    simulator.errors.UserError: timeout 0: expected seconds, greater than 0
    """
    if seconds is None:
        return
    if not 0 < seconds < threading.TIMEOUT_MAX:
        raise UserError(f"timeout {seconds:g}: expected seconds, greater than 0")
    is_main = threading.current_thread() is threading.main_thread()
    if not hasattr(signal, "setitimer") or not is_main:
        raise UserError("timeout: needs the main thread of a system with alarms (POSIX)")
