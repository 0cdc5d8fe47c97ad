"""Simulated time: a grid that makes sums exact, and the order of events at one timestamp.

Times are float seconds, multiples of 2^-30 s (0.93 ns). Sums and differences of such numbers are
exact in double precision up to 2^23 s (97 days), so the same instants come out however they are
added up, and Little's law holds to the last bit.
"""

from math import ceil, inf
from operator import attrgetter
from typing import Final

from simpy.core import Environment
from simpy.events import Event

TICKS_PER_SECOND: Final = 2**30
"""Grid points in a second."""

END_OF_TIME: Final = 2.0**23
"""Seconds up to which sums of times are exact; a wake-up beyond it never comes."""

STEP_DONE: Final = 10
ARRIVAL: Final = 30
CANCEL: Final = 40
TIMER: Final = 50
DECIDE: Final = 90


def to_grid(seconds: float) -> float:
    """Return the nearest grid time.

    Examples
    --------
    >>> to_grid(0.5), to_grid(0.1) * 2**30
    (0.5, 107374182.0)
    """
    return round(seconds * TICKS_PER_SECOND) / TICKS_PER_SECOND


def up_to_grid(seconds: float) -> float:
    """Return the first grid time that is not before `seconds`.

    Examples
    --------
    >>> up_to_grid(0.1) >= 0.1, up_to_grid(1e-12) > 0
    (True, True)
    """
    return ceil(seconds * TICKS_PER_SECOND) / TICKS_PER_SECOND


class Clock(Environment):
    """SimPy's environment, in which time can also pass without an event."""

    now = property(attrgetter("_now"), doc="Seconds from the start of the run.")

    def peek(self) -> float:
        """Return the time of the next event; infinity if there is none."""
        queue = self._queue
        return queue[0][0] if queue else inf

    def pass_to(self, time: float) -> bool:
        """Go to a time unless something is due by then; cheaper than an event at that time."""
        queue = self._queue
        if queue and queue[0][0] <= time:
            return False
        self._now = time
        return True


class At(Event):
    """An event after `delay` seconds that takes its turn among those of the same time.

    Parameters
    ----------
    env : simpy.Environment
    delay : float
        Seconds from now, at least 0, on the grid.
    priority : int
        `STEP_DONE` before `ARRIVAL`, `CANCEL`, `TIMER` and `DECIDE`.
    """

    def __init__(self, env: Environment, delay: float, priority: int) -> None:
        self.env = env  # as in `Event.__init__`, without the call
        self.callbacks = []
        self._ok = True
        self._value = None
        env.schedule(self, priority, delay)  # type: ignore[arg-type]


class Signal(Event):
    """An event that waits until somebody fires it."""

    def fire(self, priority: int) -> None:
        """Let it happen now, in its turn among the events of this time."""
        self._ok = True
        self._value = None
        self.env.schedule(self, priority)  # type: ignore[arg-type]
