"""The engine's lists of record: the waiting queue and the running list."""

from collections import OrderedDict
from collections.abc import Collection, Iterator

from policies.base import RequestView
from simulator.request import Request


class WaitingQueue:
    """Waiting requests, head first; every change costs the same at any length."""

    def __init__(self) -> None:
        self._requests: OrderedDict[int, Request] = OrderedDict()

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests.values())

    def __contains__(self, rid: int) -> bool:
        return rid in self._requests

    @property
    def head(self) -> Request | None:
        """The first request, or None."""
        return next(iter(self._requests.values()), None)

    def get(self, rid: int) -> Request | None:
        """Return the waiting request of that number, or None."""
        return self._requests.get(rid)

    def append(self, request: Request) -> None:
        """Put the request at the end."""
        self._requests[request.id] = request

    def push_front(self, request: Request) -> None:
        """Put the request at the head."""
        self._requests[request.id] = request
        self._requests.move_to_end(request.id, last=False)

    def pop(self, rid: int) -> Request | None:
        """Take the request out; None if it does not wait."""
        return self._requests.pop(rid, None)


class RunningList:
    """Running requests in order of admission, and which of them are not decodes."""

    def __init__(self) -> None:
        self._requests: dict[int, Request] = {}
        self._partials: dict[int, Request] = {}
        self.partial = self._partials.get
        """Returns the request of that number if it runs and is not a decode, else None."""

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[Request]:
        return iter(self._requests.values())

    @property
    def num_decodes(self) -> int:
        """How many are decodes."""
        return len(self._requests) - len(self._partials)

    @property
    def partials(self) -> Collection[Request]:
        """Those that are not decodes, in running order."""
        return self._partials.values()

    def decodes_before(self, request: RequestView) -> int:
        """Return how many decodes stand before `request`; cheap near the end of the list."""
        behind = 0
        for rid in reversed(self._requests):
            behind += rid not in self._partials
            if rid == request.id:
                return self.num_decodes - behind
        raise KeyError(request.id)

    def get(self, rid: int) -> Request | None:
        """Return the running request of that number, or None."""
        return self._requests.get(rid)

    def append(self, request: Request) -> None:
        """Let a request join at the end."""
        self._requests[request.id] = request
        if not request.is_decode:
            self._partials[request.id] = request

    def is_partial(self, rid: int) -> bool:
        """Whether the running request is not a decode."""
        return rid in self._partials

    def caught_up(self, request: Request) -> None:
        """Let a request that got a new token count as a decode."""
        self._partials.pop(request.id, None)

    def refresh(self, request: Request) -> None:
        """Let a request that has computed tokens count as a decode if it has caught up."""
        if request.id in self._partials and request.is_decode:
            del self._partials[request.id]

    def remove(self, request: Request) -> None:
        """Take a request out."""
        del self._requests[request.id]
        self._partials.pop(request.id, None)
