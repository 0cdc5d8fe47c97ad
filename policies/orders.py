"""Orders in which waiting requests are considered for admission, and how a victim is chosen.

Every order but the first keeps a heap: a request costs `log n` once, however long it waits.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from math import inf
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from policies.base import Parameters, RequestView, View, by_name
from policies.predictors import AnyPredictor, OraclePredictor, Predictor

Key = tuple[float, ...]


class Order(ABC):
    """The waiting requests as one scheduling pass sees them, best first.

    A pass calls `begin`, looks at `head` and calls `take` for each one it admits; it ends at the
    first that does not fit.
    """

    needs_oracle: bool = False
    """Whether it reads the true output lengths."""
    preemptive: bool = False
    """Whether waiting requests may take the seats of running ones."""
    is_steady: bool = True
    """Whether nobody loses a seat while nothing happens but decode steps."""

    def add(self, request: RequestView, view: View) -> None:
        """Take note of a request that starts to wait, for the first time or again."""
        return

    def forget(self, request: RequestView) -> None:
        """Take note of a request that left for good."""
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

    def displaced(self, running: Sequence[RequestView], num_seats: int) -> list[RequestView]:
        """Return those whose seats go to more urgent waiting requests in a pass that began."""
        return []


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
    greatest key; of equals the one that arrived last.
    """

    def __init__(self) -> None:
        self._heap: list[tuple[Key, float, int, RequestView]] = []
        self._waiting: View | None = None

    @abstractmethod
    def key(self, request: RequestView) -> Key:
        """Return what is compared."""

    def add(self, request: RequestView, view: View) -> None:
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

    def displaced(self, running: Sequence[RequestView], num_seats: int) -> list[RequestView]:
        """Return the last ones of `running`, one for each more urgent request, if seats are full.

        None while a seat is free. A displaced request may still lose its seat for nothing, when
        the other finds no blocks.
        """
        staying, gone = list(running), list[RequestView]()
        looked_at: list[tuple[Key, float, int, RequestView]] = []
        while staying and len(running) >= num_seats and (head := self.head) is not None:
            last = max(staying, key=self._rank)
            if self._rank(last) <= self._rank(head):
                break
            staying.remove(last)
            gone.append(last)
            looked_at.append(heappop(self._heap))
        for entry in looked_at:
            heappush(self._heap, entry)
        return gone

    def _rank(self, request: RequestView) -> tuple[Key, float, int]:
        return self.key(request), request.arrival, request.id


class PriorityOrder(KeyOrder):
    """Smaller priority first, as in vLLM with `--scheduling-policy priority`."""

    def key(self, request: RequestView) -> Key:
        """Return the priority."""
        return (request.priority,)


class ShortestJobOrder(KeyOrder):
    """Least predicted work first; predicted once, when the request arrives.

    Parameters
    ----------
    predictor : Predictor
        Fresh predictor of output lengths.
    in_seconds : bool
        Whether work is the time of prompt and output on the idle machine, or output tokens.
    aging : float
        Work that is let off for each second of waiting.
    """

    def __init__(self, predictor: Predictor, in_seconds: bool, aging: float) -> None:
        super().__init__()
        self.needs_oracle = predictor.needs_oracle
        self._predictor = predictor
        self._in_seconds = in_seconds
        self._aging = aging
        self._work: dict[int, float] = {}

    def add(self, request: RequestView, view: View) -> None:
        """Put the request at its place."""
        if request.id not in self._work:
            self._work[request.id] = self._predict(request, view)
        super().add(request, view)

    def forget(self, request: RequestView) -> None:
        """Learn from a request that left."""
        self._work.pop(request.id, None)
        self._predictor.learn(request)

    def key(self, request: RequestView) -> Key:
        """Return the predicted work; all age alike, so that arrival times say who is ahead."""
        return (self._work[request.id] + self._aging * request.arrival,)

    def _predict(self, request: RequestView, view: View) -> float:
        tokens = self._predictor.output_tokens(request, view)
        if not self._in_seconds:
            return tokens
        prompt = request.prompt_tokens
        hit = view.kv.scratch().hit(request).tokens if view.kv.caching else 0
        prefill = view.step_time(0, 0, ((prompt - hit, hit),))
        return prefill + tokens * view.step_time(1, prompt + 1)


class ShortestRemainderOrder(KeyOrder):
    """Fewest predicted output tokens still to come; predicted once, when the request arrives.

    Parameters
    ----------
    predictor : Predictor
        Fresh predictor of output lengths.
    """

    preemptive = True

    def __init__(self, predictor: Predictor) -> None:
        super().__init__()
        self.needs_oracle = predictor.needs_oracle
        self._predictor = predictor
        self._tokens: dict[int, float] = {}

    def add(self, request: RequestView, view: View) -> None:
        """Put the request at its place."""
        if request.id not in self._tokens:
            self._tokens[request.id] = self._predictor.output_tokens(request, view)
        super().add(request, view)

    def forget(self, request: RequestView) -> None:
        """Learn from a request that left."""
        self._tokens.pop(request.id, None)
        self._predictor.learn(request)

    def key(self, request: RequestView) -> Key:
        """Return the predicted tokens that are missing; below 0 where there are more already."""
        return (self._tokens[request.id] - request.generated - request.promised,)


class DeadlineOrder(KeyOrder):
    """Earliest deadline first: the request's own, or that of its next token.

    Parameters
    ----------
    ttft_slo, tpot_slo : float or None
        Objectives of requests that state none, seconds.
    preemptive : bool
        Whether waiting requests may take the seats of running ones.
    """

    def __init__(self, ttft_slo: float | None, tpot_slo: float | None, preemptive: bool) -> None:
        super().__init__()
        self.preemptive = preemptive
        self.is_steady = not preemptive
        self._ttft_slo = ttft_slo
        self._tpot_slo = tpot_slo

    def key(self, request: RequestView) -> Key:
        """Return the deadline; infinite without any objective."""
        if request.deadline is not None:
            return (request.deadline,)
        ttft = self._ttft_slo if request.ttft_slo is None else request.ttft_slo
        tpot = self._tpot_slo if request.tpot_slo is None else request.tpot_slo
        if ttft is None:
            return (inf,)
        return (request.arrival + ttft + request.generated * (tpot or 0.0),)


class OrderSpec(Parameters, ABC):
    """Parameters of an order."""

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
    """By the priority of the request, smaller first; never preempts to admit.

    Source: vLLM 0.32, `--scheduling-policy priority`. When blocks run out, the victim is the
    running request with the greatest priority value, of equals the one that arrived last.
    """

    kind: Literal["priority"] = "priority"

    def build(self) -> Order:
        """Return a fresh order."""
        return PriorityOrder()


class Sjf(OrderSpec):
    """Shortest job first: least predicted work, fixed at arrival; never preempts to admit.

    Work is prefill time + predicted output tokens x decode time, both on the idle machine and the
    second at the context of the prompt. When blocks run out, the victim is the running request
    with the most predicted work; it keeps its place in the order. An output that turns out longer
    than predicted changes nothing.

    The textbook rule, without preemption; the servers that have it predict in their own ways.

    Examples
    --------
    >>> Sjf(predictor="class-mean").predictor.first_output_tokens
    256.0
    """

    kind: Literal["sjf"] = "sjf"
    predictor: AnyPredictor = OraclePredictor()
    """Where output lengths come from."""
    work: Literal["seconds", "output-tokens"] = "seconds"
    """Compare the time of prompt and output, or predicted output tokens alone."""
    aging: float = Field(0.0, ge=0, allow_inf_nan=False)
    """Work that is let off for each second since arrival, so that nobody starves; 0: none."""

    def build(self) -> Order:
        """Return a fresh order."""
        return ShortestJobOrder(self.predictor.build(), self.work == "seconds", self.aging)


class Srpt(OrderSpec):
    """Shortest remaining processing time: fewest predicted output tokens still to come.

    When all seats are taken and a waiting request has fewer tokens to come than a running one, it
    takes the seat of the one that has most. The preempted request keeps its tokens, but its keys
    and values are computed again. When blocks run out, the victim is the running request with the
    most tokens to come.

    Notes
    -----
    Source: the reference that FastServe compares with, which fills the batch of each iteration by
    fewest tokens to come. No order of one preemptive server has a lower mean flow time (Schrage,
    "A proof of the optimality of the shortest remaining processing time discipline", Operations
    Research 16, 1968); with one seat, steps of one length and prompts that cost no more than a
    token, this is that server. A request that outlives its prediction becomes ever more urgent.

    Examples
    --------
    >>> from policies.testing import ScriptedRequest, ScriptedView
    >>> order = Srpt().build()
    >>> request = ScriptedRequest(0, generated=3)
    >>> order.add(request, ScriptedView(oracle={0: 10}))
    >>> order.key(request)
    (7.0,)
    """

    kind: Literal["srpt"] = "srpt"
    predictor: AnyPredictor = OraclePredictor()
    """Where output lengths come from."""

    def build(self) -> Order:
        """Return a fresh order."""
        return ShortestRemainderOrder(self.predictor.build())


class Edf(OrderSpec):
    """Earliest deadline first.

    The deadline of a request is its own, or else that of its next token: arrival + TTFT objective
    + tokens so far x TPOT objective. Requests without any objective come last. When blocks run
    out, the victim is the running request with the latest deadline.

    Source: Liu and Layland, "Scheduling Algorithms for Multiprogramming in a Hard-Real-Time
    Environment", JACM 1973; there it preempts, here only with `preemptive`.

    Examples
    --------
    >>> from policies.testing import ScriptedRequest
    >>> order = Edf(ttft_slo_ms=500, tpot_slo_ms=50).build()
    >>> order.key(ScriptedRequest(0, arrival=2.0, generated=10))
    (3.0,)
    """

    kind: Literal["edf"] = "edf"
    ttft_slo_ms: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Time to the first token for requests that state no objective, ms; None: no deadline."""
    tpot_slo_ms: float | None = Field(None, gt=0, allow_inf_nan=False)
    """Time between tokens for requests that state no objective, ms; None: 0."""
    preemptive: bool = False
    """Preempt the running request with the latest deadline when all seats are taken and an
    earlier deadline waits. False: deadlines decide who is admitted next, as in a server."""

    def build(self) -> Order:
        """Return a fresh order."""
        ttft, tpot = (
            None if ms is None else ms / 1e3 for ms in (self.ttft_slo_ms, self.tpot_slo_ms)
        )
        return DeadlineOrder(ttft, tpot, self.preemptive)


ORDERS = (Fcfs, Priority, Sjf, Srpt, Edf)
"""The orders."""

AnyOrder = Annotated[
    Fcfs | Priority | Sjf | Srpt | Edf, Field(discriminator="kind"), BeforeValidator(by_name)
]
"""Any of them, told apart by `kind`; a bare name stands for its defaults."""
