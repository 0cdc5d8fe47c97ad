"""Routers: which replica serves an arriving request.

A router reads the loads of the replicas, live or from a snapshot that is refreshed at intervals;
with a stale snapshot "join the shortest queue" sends whole bursts to one replica.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Annotated, Literal, NamedTuple

import numpy as np
from pydantic import BeforeValidator, Field

from policies.base import Parameters, RequestView, by_name


class Load(NamedTuple):
    """What a router knows of a replica.

    Attributes
    ----------
    num_waiting, num_running : int
        Requests in its queue, and in its batch.
    num_tokens : int
        Prompt tokens and allowed output tokens of all of them that are still to come; 0 unless
        the router asks for them.
    """

    num_waiting: int
    num_running: int
    num_tokens: int


class Router(ABC):
    """Picks a replica; holds the state of one run."""

    needs_loads: bool = True
    needs_tokens: bool = False
    """Whether `Load.num_tokens` is looked at; it costs time to count."""

    @abstractmethod
    def route(self, request: RequestView, loads: Sequence[Load]) -> int:
        """Return the index of the replica that gets the request.

        Parameters
        ----------
        request : RequestView
            The arriving request.
        loads : sequence of Load
            One for each replica; empty where the router does not need them.
        """


class RouterSpec(Parameters, ABC):
    """Parameters of a router."""

    refresh_interval_ms: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Age at which the snapshot of the loads is taken anew; 0: live."""

    @abstractmethod
    def build(self, num_replicas: int, rng: np.random.Generator) -> Router:
        """Return a fresh router for that many replicas; `rng` is its own stream."""


class RoundRobin(RouterSpec):
    """One replica after the other, whatever their loads (Vidur's round robin).

    Examples
    --------
    >>> router = RoundRobin().build(2, np.random.default_rng(0))
    >>> [router.route(None, ()) for _ in range(3)]
    [0, 1, 0]
    """

    kind: Literal["round-robin"] = "round-robin"

    def build(self, num_replicas: int, rng: np.random.Generator) -> Router:
        """Return a fresh router."""
        return _RoundRobin(num_replicas)


class Random(RouterSpec):
    """Any replica, all equally likely (Vidur's random router)."""

    kind: Literal["random"] = "random"

    def build(self, num_replicas: int, rng: np.random.Generator) -> Router:
        """Return a fresh router."""
        return _Random(num_replicas, rng)


Count = Literal["all", "waiting", "tokens"]


class LeastOutstanding(RouterSpec):
    """The replica with the least work, ties to the lowest index (join the shortest queue).

    `count: waiting` is what Vidur's LOR router compares: it ignores running requests.
    """

    kind: Literal["least-outstanding"] = "least-outstanding"
    count: Count = "all"
    """What is compared: requests in the replica, requests in its queue, or tokens to compute."""

    def build(self, num_replicas: int, rng: np.random.Generator) -> Router:
        """Return a fresh router."""
        return _LeastOutstanding(self.count)


class PowerOfTwo(RouterSpec):
    """Of two replicas drawn at random the one with less work, ties to the first drawn.

    Source: Mitzenmacher, "The power of two choices in randomized load balancing", IEEE TPDS 2001;
    the default of Ray Serve.
    """

    kind: Literal["power-of-two"] = "power-of-two"
    count: Count = "all"
    """What is compared: requests in the replica, requests in its queue, or tokens to compute."""

    def build(self, num_replicas: int, rng: np.random.Generator) -> Router:
        """Return a fresh router."""
        return _PowerOfTwo(num_replicas, self.count, rng)


class _RoundRobin(Router):
    needs_loads = False

    def __init__(self, num_replicas: int) -> None:
        self._num_replicas = num_replicas
        self._next = 0

    def route(self, request: RequestView, loads: Sequence[Load]) -> int:
        index = self._next
        self._next = (index + 1) % self._num_replicas
        return index


class _Random(Router):
    needs_loads = False

    def __init__(self, num_replicas: int, rng: np.random.Generator) -> None:
        self._num_replicas = num_replicas
        self._rng = rng

    def route(self, request: RequestView, loads: Sequence[Load]) -> int:
        return int(self._rng.integers(self._num_replicas))


class _LeastOutstanding(Router):
    def __init__(self, count: Count) -> None:
        self._count = count
        self.needs_tokens = count == "tokens"

    def route(self, request: RequestView, loads: Sequence[Load]) -> int:
        return min(range(len(loads)), key=lambda index: _work(loads[index], self._count))


class _PowerOfTwo(Router):
    def __init__(self, num_replicas: int, count: Count, rng: np.random.Generator) -> None:
        self._num_replicas = num_replicas
        self._count = count
        self._rng = rng
        self.needs_tokens = count == "tokens"

    def route(self, request: RequestView, loads: Sequence[Load]) -> int:
        if self._num_replicas == 1:
            return 0
        first = int(self._rng.integers(self._num_replicas))
        second = int(self._rng.integers(self._num_replicas - 1))
        second += second >= first
        other_is_better = _work(loads[second], self._count) < _work(loads[first], self._count)
        return second if other_is_better else first


def _work(load: Load, count: Count) -> int:
    if count == "tokens":
        return load.num_tokens
    return load.num_waiting + (load.num_running if count == "all" else 0)


ROUTERS: tuple[type[RouterSpec], ...] = (RoundRobin, Random, LeastOutstanding, PowerOfTwo)
"""The built-in routers."""

AnyRouter = Annotated[
    RoundRobin | Random | LeastOutstanding | PowerOfTwo,
    Field(discriminator="kind"),
    BeforeValidator(by_name),
]
"""Any of them, told apart by `kind`; a bare name stands for its defaults."""
