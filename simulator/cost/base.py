"""The seam between engine and machine model: what a step holds, and how long it takes."""

from typing import NamedTuple, Protocol


class StepWork(NamedTuple):
    """What one forward pass computes, as the machine sees it (padding already included).

    Attributes
    ----------
    num_decodes : int
        Rows that process exactly one token on top of their stored context.
    context_tokens : int
        Sum over those rows of the tokens attended, the new one included.
    chunks : tuple of (tokens, past)
        Prompt pieces: tokens processed now, tokens already stored before.
    num_sampled : int
        Rows that yield an output token: decodes, and chunks that complete their prompt.
    num_rows : int
        Batch rows in request units (a request of size 3 counts 3).
    """

    num_decodes: int = 0
    context_tokens: int = 0
    chunks: tuple[tuple[int, int], ...] = ()
    num_sampled: int = 0
    num_rows: int = 0

    @property
    def num_tokens(self) -> int:
        """Tokens processed in the step."""
        return self.num_decodes + sum(tokens for tokens, _ in self.chunks)


class CostModel(Protocol):
    """Gives the duration of one step.

    A cost model is built afresh for every run (`CostSpec.build`), so it may hold state such as
    a random stream; nothing it holds outlives the run.
    """

    def step_time(self, work: StepWork) -> float:
        """Return the duration of the step in seconds (finite, greater than zero)."""
        ...

    @property
    def num_extrapolated(self) -> int:
        """Steps so far that lay outside the range the model was calibrated on."""
        ...
