"""The seam between a workload and the simulation: requests now, and requests that follow."""

from typing import Protocol

from workloads.request import RequestSpec
from workloads.trace import Trace


class Source(Protocol):
    """Hands out requests, at the start and in answer to finished ones.

    An open workload knows all its arrivals beforehand. In a closed one (users who wait for
    an answer, think, and ask again) the next arrival depends on when the last one finished.
    What a request asks for must not depend on the order in which others finish.
    """

    def start(self) -> list[RequestSpec]:
        """Return the requests known at time 0, in order of arrival."""
        ...

    def on_finish(self, request_id: int, time: float) -> list[RequestSpec]:
        """Return the requests that follow from one that finished at `time` seconds.

        None of them arrives before `time`, and their ids are new.
        """
        ...


class TraceSource:
    """An open workload: all requests of a trace, whatever happens to them.

    Examples
    --------
    >>> source = TraceSource(Trace([0.0], [10], [2]))
    >>> len(source.start()), source.on_finish(0, 1.5)
    (1, [])
    """

    def __init__(self, trace: Trace) -> None:
        self._trace = trace

    def start(self) -> list[RequestSpec]:
        """Return the requests of the trace."""
        return list(self._trace.requests())

    def on_finish(self, request_id: int, time: float) -> list[RequestSpec]:
        """Return nothing: arrivals do not depend on completions."""
        return []
