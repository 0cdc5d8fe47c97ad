"""What a policy sees of its replica: read-only windows on the engine's lists of record."""

from collections.abc import Callable
from typing import Protocol

from policies.base import RequestView
from simulator.kv_cache import BlockManager
from simulator.queues import RunningList, WaitingQueue


class Clock(Protocol):
    """Anything that knows the time (a SimPy environment)."""

    @property
    def now(self) -> float:
        """Seconds from the start of the run."""


class LedgerView:
    """The KV ledger as a policy sees it (`policies.base.KvView`)."""

    __slots__ = (
        "_decode_growth",
        "_kv",
        "block_size",
        "blocks_for",
        "caching",
        "held",
        "need",
        "scratch",
        "total",
    )

    def __init__(self, kv: BlockManager, decode_growth: Callable[[], int]) -> None:
        self._kv = kv
        self._decode_growth = decode_growth
        self.total = kv.total
        self.caching = kv.caching
        self.scratch = kv.scratch
        self.block_size = kv.block_size
        self.blocks_for = kv.blocks_for
        self.held = kv.held
        self.need = kv.need

    @property
    def free(self) -> int:
        """Blocks that nobody holds."""
        return self._kv.free

    @property
    def decode_growth(self) -> int:
        """Blocks that one more token for every running decode needs."""
        return self._decode_growth()


class Oracle:
    """True output lengths, for policies that declare `needs_oracle`."""

    def __init__(self, output_tokens: dict[int, int]) -> None:
        self._output_tokens = output_tokens

    def output_tokens(self, request: RequestView) -> int:
        """Return the number of tokens the request will generate."""
        return self._output_tokens[request.id]


class ReplicaView:
    """A replica as its policy sees it (`policies.base.View`)."""

    __slots__ = ("_clock", "kv", "max_model_len", "oracle", "plans_ahead", "running", "waiting")

    def __init__(
        self,
        clock: Clock,
        waiting: WaitingQueue,
        running: RunningList,
        kv: BlockManager,
        decode_growth: Callable[[], int],
        max_model_len: int | None,
        oracle: Oracle | None,
        plans_ahead: bool,
    ) -> None:
        self._clock = clock
        self.waiting = waiting
        self.running = running
        self.kv = LedgerView(kv, decode_growth)
        self.max_model_len = max_model_len
        self.oracle = oracle
        self.plans_ahead = plans_ahead

    @property
    def now(self) -> float:
        """Time in seconds from the start of the run."""
        return self._clock.now
