"""The engine's lists of record: the waiting queue and the running list."""

from collections import OrderedDict
from collections.abc import Collection, Iterator

from policies.base import RequestView
from simulator.request import Request


class WaitingQueue(OrderedDict[int, Request]):
    """Waiting requests by number, head first; every change costs the same at any length.

    Iteration gives the requests, not their numbers.
    """

    def __iter__(self) -> Iterator[Request]:  # type: ignore[override]
        return iter(self.values())

    @property
    def head(self) -> Request | None:
        """The first request, or None."""
        return next(iter(self.values()), None)

    def append(self, request: Request) -> None:
        """Put the request at the end."""
        self[request.id] = request

    def push_front(self, request: Request) -> None:
        """Put the request at the head."""
        self[request.id] = request
        self.move_to_end(request.id, last=False)


class RunningList(dict[int, Request]):
    """Running requests by number, in order of admission, and which of them are not decodes.

    Iteration gives the requests, not their numbers.
    """

    def __init__(self) -> None:
        super().__init__()
        self._partials: dict[int, Request] = {}
        self.partial = self._partials.get
        """Returns the request of that number if it runs and is not a decode, else None."""

    def __iter__(self) -> Iterator[Request]:  # type: ignore[override]
        return iter(self.values())

    @property
    def num_decodes(self) -> int:
        """How many are decodes."""
        return len(self) - len(self._partials)

    @property
    def partials(self) -> Collection[Request]:
        """Those that are not decodes, in running order."""
        return self._partials.values()

    def decodes_before(self, request: RequestView) -> int:
        """Return how many decodes stand before `request`; cheap near the end of the list."""
        behind = 0
        for rid in reversed(self):
            behind += rid not in self._partials
            if rid == request.id:
                return self.num_decodes - behind
        raise KeyError(request.id)

    def append(self, request: Request) -> None:
        """Let a request join at the end."""
        self[request.id] = request
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
        del self[request.id]
        self._partials.pop(request.id, None)
