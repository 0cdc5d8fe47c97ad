"""What can be watched in a run: hooks that do nothing unless a class overrides them."""

from dataclasses import dataclass

from policies.base import Decision, Trigger
from simulator.request import Request


@dataclass(slots=True)
class StepRecord:
    """One forward pass.

    Attributes
    ----------
    start, end : float
        Seconds from the start of the run.
    num_decodes, num_chunks : int
        Requests that computed their newest token, and a piece of their known tokens.
    chunk_tokens : int
        Tokens of those pieces.
    context_tokens : int
        Tokens that the decodes attend to, summed.
    charged_tokens : int
        Token slots charged, padding included.
    kv_used : int
        KV blocks held during the step.
    num_waiting, num_running : int
        Length of the lists when the step starts.
    """

    start: float
    end: float
    num_decodes: int
    num_chunks: int
    chunk_tokens: int
    context_tokens: int
    charged_tokens: int
    kv_used: int
    num_waiting: int
    num_running: int


class Observer:
    """Sees what happens on a replica; override what you need."""

    def on_submit(self, request: Request, now: float) -> None:
        """A request arrived; `request.state` tells whether it was rejected."""

    def on_decision(
        self, now: float, trigger: Trigger, decision: Decision, work: list[tuple[int, int]]
    ) -> None:
        """A decision was checked; `work` is its plan, listed as (request, tokens)."""

    def on_step(self, step: StepRecord) -> None:
        """A step ended."""

    def on_gaps(self, now: float, gaps: dict[float, int]) -> None:
        """Tokens were delivered; `gaps` counts the time since each request's previous one."""

    def on_leave(self, request: Request, now: float) -> None:
        """A request finished or was rejected."""
