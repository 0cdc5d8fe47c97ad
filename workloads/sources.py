"""The seam between a workload and the simulation: requests now, and requests that follow."""

from collections import deque
from typing import Protocol

from workloads.errors import WorkloadError
from workloads.request import RequestSpec
from workloads.trace import Trace


class Source(Protocol):
    """Hands out requests, at the start and in answer to finished ones.

    An open workload knows all its arrivals beforehand. In a closed one (users who wait for
    an answer, think, and ask again) the next arrival depends on when the last one finished.
    What a request asks for must not depend on the order in which others finish.
    """

    @property
    def table(self) -> Trace:
        """All requests that may come, row i with id i; arrivals are the earliest possible."""
        ...

    def start(self) -> list[RequestSpec]:
        """Return the requests known at time 0, in order of arrival."""
        ...

    def on_finish(self, request_id: int, time: float) -> list[RequestSpec]:
        """Return the requests that follow from one that finished at `time` seconds.

        A request that was rejected finishes, too. None of those returned arrives before
        `time`, and their ids are new.
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
        self.table = trace

    def start(self) -> list[RequestSpec]:
        """Return the requests of the trace."""
        return list(self.table.requests())

    def on_finish(self, request_id: int, time: float) -> list[RequestSpec]:
        """Return nothing: arrivals do not depend on completions."""
        return []


class CappedSource:
    """A client who follows an arrival process, but has at most so many requests under way.

    A request that is due while the client is at its limit goes out when an earlier one
    finishes, first come first served. Its arrival is then the moment it goes out, so that
    latencies leave out the wait at the client, as benchmark clients report them; deadlines
    stay where they are.

    Parameters
    ----------
    trace : Trace
        The requests and when they are due.
    max_concurrency : int
        Most requests under way, 1 or more.

    References
    ----------
    vLLM, ``vllm bench serve --max-concurrency``: a semaphore around each request.

    Examples
    --------
    >>> source = CappedSource(Trace([0.0, 1.0, 2.0], [10] * 3, [2] * 3), max_concurrency=1)
    >>> [request.id for request in source.start()]
    [0]
    >>> [request.arrival for request in source.on_finish(0, 1.5)]
    [1.5]
    """

    def __init__(self, trace: Trace, max_concurrency: int) -> None:
        if max_concurrency < 1:
            raise WorkloadError("expected a max_concurrency of at least 1", value=max_concurrency)
        self.table = trace
        self._max_concurrency = max_concurrency
        self._waiting: deque[RequestSpec] = deque()

    def start(self) -> list[RequestSpec]:
        """Return the requests that go out when they are due, as the limit is not reached yet."""
        self._waiting = deque(self.table.requests())
        number = min(self._max_concurrency, len(self._waiting))
        return [self._waiting.popleft() for _ in range(number)]

    def on_finish(self, request_id: int, time: float) -> list[RequestSpec]:
        """Return the next request: it goes out now, or when it is due if that is later."""
        if not self._waiting:
            return []
        request = self._waiting.popleft()
        return [request if request.arrival >= time else request.at(time)]
