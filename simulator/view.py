"""What a policy sees of its replica: read-only windows on the engine's lists of record."""

from collections.abc import Callable, Sequence
from copy import copy, deepcopy
from typing import Protocol

from policies.base import RequestView
from simulator.cost.base import CostModel, StepWork
from simulator.kv_cache import BlockManager
from simulator.queues import RunningList, WaitingQueue
from simulator.request import Outputs
from simulator.swap import SwapSpace


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
        "_swap",
        "block_size",
        "blocks_for",
        "caching",
        "held",
        "need",
        "scratch",
        "total",
    )

    def __init__(self, kv: BlockManager, swap: SwapSpace, decode_growth: Callable[[], int]) -> None:
        self._kv = kv
        self._swap = swap
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
    def host_free(self) -> int:
        """Blocks that still fit into host memory."""
        return self._swap.free

    @property
    def decode_growth(self) -> int:
        """Blocks that one more token for every running decode needs."""
        return self._decode_growth()


class Oracle:
    """True output lengths, for policies that declare `needs_oracle`."""

    def __init__(self, output_tokens: Outputs) -> None:
        self._output_tokens = output_tokens

    def output_tokens(self, request: RequestView) -> int:
        """Return the number of tokens the request will generate."""
        return self._output_tokens[request.id]


def step_timer(cost: CostModel) -> Callable[[StepWork], float]:
    """Return what tells how long a step is expected to take, without a trace in the run.

    A model may have a method `expected_time(work)`: the mean, nothing drawn, nothing counted. Any
    other is asked through a copy, with its own count, and with its own stream if it draws.
    """
    expected: Callable[[StepWork], float] | None = getattr(cost, "expected_time", None)
    if expected is not None:
        return expected
    repeats = getattr(cost, "supports_runs", False)
    return (copy(cost) if repeats else deepcopy(cost)).step_time


class ReplicaView:
    """A replica as its policy sees it (`policies.base.View`)."""

    __slots__ = (
        "_clock",
        "_context_tokens",
        "_cost",
        "_step_timer",
        "kv",
        "max_model_len",
        "oracle",
        "plans_ahead",
        "running",
        "swapped",
        "waiting",
    )

    def __init__(
        self,
        clock: Clock,
        waiting: WaitingQueue,
        running: RunningList,
        swapped: WaitingQueue,
        kv: LedgerView,
        context_tokens: Callable[[], int],
        cost: CostModel,
        max_model_len: int | None,
        oracle: Oracle | None,
        plans_ahead: bool,
    ) -> None:
        self._clock = clock
        self._context_tokens = context_tokens
        self._cost = cost
        self._step_timer: Callable[[StepWork], float] | None = None
        self.waiting = waiting
        self.running = running
        self.swapped = swapped
        self.kv = kv
        self.max_model_len = max_model_len
        self.oracle = oracle
        self.plans_ahead = plans_ahead

    @property
    def now(self) -> float:
        """Time in seconds from the start of the run."""
        return self._clock.now

    @property
    def context_tokens(self) -> int:
        """Tokens that all running decodes together attend to in their next step."""
        return self._context_tokens()

    def step_time(
        self, num_decodes: int, context_tokens: int, chunks: Sequence[tuple[int, int]] = ()
    ) -> float:
        """Return how long a step is expected to take, in seconds, swapping aside."""
        if self._step_timer is None:
            self._step_timer = step_timer(self._cost)
        rows = num_decodes + len(chunks)
        return self._step_timer(StepWork(num_decodes, context_tokens, tuple(chunks), rows, rows))
