"""The life of a request inside a run."""

from collections.abc import Sequence
from enum import Enum
from typing import Protocol

from simulator.clock import to_grid
from simulator.kv_cache import Segment
from workloads.request import RequestSpec


class Outputs(Protocol):
    """True output lengths, found by request number."""

    def __getitem__(self, rid: int, /) -> int: ...


class State(Enum):
    """Where a request stands."""

    WAITING = "waiting"
    RUNNING = "running"
    SWAPPED = "swapped"
    """Its KV blocks are in host memory."""
    HELD = "held"
    """Done, but its batch is not: tokens and blocks are released with the batch."""
    FINISHED = "finished"
    REJECTED = "rejected"
    ABORTED = "aborted"
    """The client went away."""


class Request:
    """Run-time state of one request, as policies may see it; only the engine changes it.

    The output length is not here: it stays with the engine (see `policies.base.RequestView`).
    There is no `__getattr__` to say so: Python reads every attribute of such a class slowly.

    Parameters
    ----------
    spec : RequestSpec
        The row of the workload.
    """

    __slots__ = (
        "arrival",
        "cached_tokens",
        "computed",
        "deadline",
        "finish",
        "first_scheduled",
        "first_token",
        "generated",
        "id",
        "known",
        "last_token",
        "max_tokens",
        "order",
        "peak_computed",
        "preemptions",
        "priority",
        "promised",
        "prompt_tokens",
        "recomputed_tokens",
        "reject_reason",
        "segments",
        "size",
        "state",
        "swaps",
        "tenant",
        "tpot_slo",
        "ttft_slo",
    )

    def __init__(self, spec: RequestSpec) -> None:
        self.id, arrival, self.prompt_tokens, _, self.max_tokens = spec[:5]
        self.arrival = to_grid(arrival)
        self.priority, self.tenant, self.size = spec[5:8]
        self.ttft_slo, self.tpot_slo, self.deadline = spec[8:11]
        self.segments: Sequence[Segment] | None = None
        """What the prompt is made of; None: it is like no other."""
        self.state = State.WAITING
        self.order = 0
        self.computed = 0
        self.generated = 0
        self.promised = 0
        self.cached_tokens = 0
        self.known = spec.prompt_tokens
        self.preemptions = 0
        self.swaps = 0
        """Those of the preemptions after which the stored tokens were kept in host memory."""
        self.peak_computed = 0
        self.recomputed_tokens = 0
        self.first_scheduled: float | None = None
        self.first_token: float | None = None
        self.last_token: float | None = None
        self.finish: float | None = None
        self.reject_reason = ""

    @property
    def remaining(self) -> int:
        """Known tokens that are not computed."""
        return self.known - self.computed

    @property
    def is_decode(self) -> bool:
        """Whether the prompt is computed and just the newest token is missing."""
        return self.known - self.computed == 1 and self.computed >= self.prompt_tokens

    def compute(self, tokens: int) -> None:
        """Store `tokens` more tokens; those lost in a preemption count as computed again."""
        if self.computed < self.peak_computed:
            self.recomputed_tokens += min(self.peak_computed - self.computed, tokens)
        self.computed += tokens

    def drop(self) -> None:
        """Lose all stored tokens, keep the generated ones, and wait again."""
        self.peak_computed = max(self.peak_computed, self.computed)
        self.computed = 0
        self.preemptions += 1
        self.state = State.WAITING

    def suspend(self) -> None:
        """Keep all stored tokens in host memory, and wait there."""
        self.preemptions += 1
        self.swaps += 1
        self.state = State.SWAPPED

    def __repr__(self) -> str:
        return (
            f"<Request {self.id} {self.state.value}: {self.computed} of {self.known} tokens "
            f"computed, {self.generated} generated>"
        )
