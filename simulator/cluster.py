"""Replicas, the router in front of them, and the processes that bring requests."""

from collections.abc import Generator, Iterable, Sequence

from simpy.events import Event

from policies.routers import Load, Router
from simulator.clock import ARRIVAL, At, Clock
from simulator.engine import Engine
from simulator.kv_cache import Segment
from simulator.observer import Observer
from simulator.request import Request
from workloads.request import RequestSpec
from workloads.sources import Source, TraceSource


class Cluster(Observer):
    """Hands requests to replicas, and the end of requests to the source they came from.

    Parameters
    ----------
    env : Clock
        Owns the clock.
    router : Router
        Picks a replica for each request.
    refresh_interval : float
        Seconds after which the router gets a new snapshot of the loads; 0: always.
    """

    def __init__(self, env: Clock, router: Router, refresh_interval: float = 0.0) -> None:
        self._env = env
        self._engines: Sequence[Engine] = ()
        self._router = router
        self._refresh_interval = refresh_interval
        self._snapshot: Sequence[Load] = ()
        self._snapshot_time = -float("inf")
        self._source: Source | None = None
        self._num_sources = 0

    def start(self, engines: Sequence[Engine], source: Source) -> None:
        """Start the replicas and the process that brings requests at their times."""
        self._engines = engines
        for engine in engines:
            engine.start()
        if isinstance(source, TraceSource):
            self._bring(source.table.requests())
        else:
            self._source = source
            self._bring(source.start())

    @property
    def is_exhausted(self) -> bool:
        """Whether all requests known so far have arrived."""
        return self._num_sources == 0

    def on_leave(self, request: Request, now: float) -> None:
        """Ask the source what follows from a request that left."""
        if self._source is not None:
            following = self._source.on_finish(request.id, now)
            if following:
                self._bring(following)

    def _bring(self, requests: Iterable[RequestSpec]) -> None:
        self._num_sources += 1
        self._env.process(self._arrivals(requests))

    def _arrivals(self, requests: Iterable[RequestSpec]) -> Generator[Event, None, None]:
        env, request_type = self._env, self._engines[0].request_type
        only = self._engines[0] if len(self._engines) == 1 else None
        for spec in requests:
            request = request_type(spec)
            if spec.block_ids:
                request.segments = prompt_segments(spec)
            yield At(env, max(0.0, request.arrival - env.now), ARRIVAL)
            engine = self._engines[self._choose(request)] if only is None else only
            engine.submit(request)
        self._num_sources -= 1

    def _choose(self, request: Request) -> int:
        if self._router.needs_loads:
            now = self._env.now
            if now - self._snapshot_time >= self._refresh_interval:
                self._snapshot = [self._load(engine) for engine in self._engines]
                self._snapshot_time = now
        return self._router.route(request, self._snapshot)

    def _load(self, engine: Engine) -> Load:
        tokens = 0
        if self._router.needs_tokens:
            tokens = sum(
                request.prompt_tokens + request.max_tokens - request.computed
                for request in (*engine.waiting, *engine.running)
            )
        return Load(len(engine.waiting), len(engine.running), tokens)


def prompt_segments(spec: RequestSpec) -> list[Segment] | None:
    """Return what a prompt is made of, for prefix caching; None if it is like no other.

    Examples
    --------
    >>> prompt_segments(RequestSpec(0, 0.0, 40, 1, block_ids=(7, 8), id_block_size=16))
    [(('block', 7), 16), (('block', 8), 16), (('prompt', 0), 8)]
    """
    if not spec.block_ids:
        return None
    segments: list[Segment] = []
    left = spec.prompt_tokens
    for block in spec.block_ids:
        length = min(left, spec.id_block_size)
        if length > 0:
            segments.append((("block", block), length))
        left -= length
    if left > 0:
        segments.append((("prompt", spec.id), left))
    return segments
