"""Orders in which waiting requests are considered for admission, and how a victim is chosen."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from policies.base import RequestView, View

Key = tuple[float, ...]


class Order(ABC):
    """The waiting requests as one scheduling pass sees them, best first.

    A pass calls `begin`, looks at `head` and calls `take` for each one it admits; it ends at the
    first that does not fit.
    """

    def add(self, request: RequestView) -> None:
        """Take note of a request that starts to wait, for the first time or again."""
        return

    @abstractmethod
    def begin(self, view: View) -> None:
        """Start a pass."""

    @property
    @abstractmethod
    def head(self) -> RequestView | None:
        """The next candidate, or None."""

    @abstractmethod
    def take(self) -> None:
        """Go on to the next candidate; the head is admitted."""

    @abstractmethod
    def victim(self, running: Sequence[RequestView]) -> RequestView:
        """Return the running request to preempt when blocks are short."""


class QueueOrder(Order):
    """The queue as it stands: first come, first served, preempted ones at the head."""

    def __init__(self) -> None:
        self._rest: Iterator[RequestView] = iter(())
        self._head: RequestView | None = None

    def begin(self, view: View) -> None:
        """Start at the head of the queue."""
        self._rest = iter(view.waiting)
        self._head = next(self._rest, None)

    @property
    def head(self) -> RequestView | None:
        """The next candidate, or None."""
        return self._head

    def take(self) -> None:
        """Go on to the next candidate."""
        self._head = next(self._rest, None)

    def victim(self, running: Sequence[RequestView]) -> RequestView:
        """Return the request that was admitted last."""
        return running[-1]


class KeyOrder(Order):
    """Smallest key first; ties go to the earlier arrival, then to the smaller number.

    The key of a request is fixed while it waits. The victim is the running request with the
    greatest key.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[Key, float, int, RequestView]] = []
        self._waiting: View | None = None

    @abstractmethod
    def key(self, request: RequestView) -> Key:
        """Return what is compared."""

    def add(self, request: RequestView) -> None:
        """Put the request at its place."""
        heappush(self._heap, (self.key(request), request.arrival, request.id, request))

    def begin(self, view: View) -> None:
        """Start at the smallest key."""
        self._waiting = view

    @property
    def head(self) -> RequestView | None:
        """The next candidate; requests that left the queue otherwise are dropped on the way."""
        assert self._waiting is not None, "begin comes first"
        while self._heap and self._heap[0][2] not in self._waiting.waiting:
            heappop(self._heap)
        return self._heap[0][3] if self._heap else None

    def take(self) -> None:
        """Go on to the next candidate."""
        heappop(self._heap)

    def victim(self, running: Sequence[RequestView]) -> RequestView:
        """Return the one with the greatest key and arrival, the first of equals."""
        return max(running, key=lambda request: (self.key(request), request.arrival))


class PriorityOrder(KeyOrder):
    """Smaller priority first, as in vLLM with `--scheduling-policy priority`."""

    def key(self, request: RequestView) -> Key:
        """Return the priority."""
        return (request.priority,)


class OrderSpec(BaseModel, ABC):
    """Parameters of an order."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    @abstractmethod
    def build(self) -> Order:
        """Return a fresh order."""


class Fcfs(OrderSpec):
    """First come, first served."""

    kind: Literal["fcfs"] = "fcfs"

    def build(self) -> Order:
        """Return a fresh order."""
        return QueueOrder()


class Priority(OrderSpec):
    """By the priority of the request, smaller first; never preempts to admit."""

    kind: Literal["priority"] = "priority"

    def build(self) -> Order:
        """Return a fresh order."""
        return PriorityOrder()


ORDERS = (Fcfs, Priority)
"""The orders."""

AnyOrder = Annotated[Fcfs | Priority, Field(discriminator="kind")]
"""Any of them, told apart by `kind`."""
