"""What can be watched in a run: hooks that do nothing unless a class overrides them."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from policies.base import Decision, Trigger
from simulator.request import Request


class StepRecord(NamedTuple):
    """A forward pass, or a run of decode steps that follow each other with the same rows.

    Attributes
    ----------
    start, end : float
        Seconds from the start of the run.
    num_steps : int
        Number of passes.
    first_step, last_step : float
        Duration of the first and the last pass, seconds.
    num_decodes, num_chunks : int
        Requests that computed their newest token, and a piece of their known tokens; per pass.
    chunk_tokens : int
        Tokens of those pieces.
    chunk_pairs : float
        Pairs of query and key in those pieces (`StepWork.prefill_pairs`).
    chunk_context : int
        Tokens those pieces attend to, new and stored.
    context_tokens : int
        Tokens that the decodes attend to, summed over requests and passes.
    charged_tokens : int
        Token slots charged, padding included, summed over passes.
    kv_used : int
        KV blocks held during the last pass, when they are most.
    kv_block_ticks : int
        Integral of the held blocks over time, in clock ticks of 2^-30 s.
    num_waiting, num_running : int
        Length of the lists when the first pass starts.
    """

    start: float
    end: float
    num_steps: int
    first_step: float
    last_step: float
    num_decodes: int
    num_chunks: int
    chunk_tokens: int
    chunk_pairs: float
    chunk_context: int
    context_tokens: int
    charged_tokens: int
    kv_used: int
    kv_block_ticks: int
    num_waiting: int
    num_running: int

    def goes_on(self, later: "StepRecord") -> bool:
        """Whether `later` continues this run: decodes only, the same rows and queues, no pause."""
        return (
            self.num_chunks == later.num_chunks == 0
            and self.end == later.start
            and self.num_decodes == later.num_decodes
            and self.num_waiting == later.num_waiting
            and self.num_running == later.num_running
            and self.charged_tokens * later.num_steps == later.charged_tokens * self.num_steps
        )

    def joined(self, later: "StepRecord") -> "StepRecord":
        """Return this record and one that goes on where it ends as one."""
        return self._replace(
            end=later.end,
            num_steps=self.num_steps + later.num_steps,
            last_step=later.last_step,
            context_tokens=self.context_tokens + later.context_tokens,
            charged_tokens=self.charged_tokens + later.charged_tokens,
            kv_used=max(self.kv_used, later.kv_used),
            kv_block_ticks=self.kv_block_ticks + later.kv_block_ticks,
        )


def hooks(observers: Sequence["Observer"], *names: str) -> tuple[Callable[..., None], ...]:
    """Return the method `names[0]` of those observers that override one of the named methods.

    Examples
    --------
    >>> hooks([Observer()], "on_step")
    ()
    """
    return tuple(
        getattr(observer, names[0])
        for observer in observers
        if any(getattr(type(observer), name) is not getattr(Observer, name) for name in names)
    )


class Observer:
    """Sees what happens on a replica; override what you need."""

    def on_submit(self, request: Request, now: float) -> None:
        """A request arrived; `request.state` tells whether it was rejected."""

    def before_decision(self, now: float) -> None:
        """The policy is about to be asked; requests may still be submitted or cancelled."""

    def on_decision(
        self, now: float, trigger: Trigger, decision: Decision, work: list[tuple[int, int]]
    ) -> None:
        """A decision was checked; `work` is its plan, listed as (request, tokens)."""

    def on_step(self, step: StepRecord) -> None:
        """A step started, or a run of steps was done."""

    def on_gaps(self, now: float, gaps: dict[float, int]) -> None:
        """Tokens were delivered; `gaps` counts the time since each request's previous one."""

    def on_gap_run(self, times: Sequence[float], gaps: Sequence[float], count: int) -> None:
        """In each of several steps, `count` tokens were delivered after the same gap."""
        for now, gap in zip(times, gaps, strict=True):
            self.on_gaps(now, {gap: count})

    def on_leave(self, request: Request, now: float) -> None:
        """A request finished or was rejected."""
