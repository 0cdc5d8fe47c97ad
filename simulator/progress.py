"""Progress of a run: counts the requests that have left."""

from collections.abc import Callable

from simulator.observer import Observer
from simulator.request import Request


class Progress(Observer):
    """Calls back for every request that leaves.

    Parameters
    ----------
    update : callable
        Takes the number of requests that left since the last call.
    """

    def __init__(self, update: Callable[[int], object]) -> None:
        self._update = update

    def on_leave(self, request: Request, now: float) -> None:
        """Count one more."""
        self._update(1)
