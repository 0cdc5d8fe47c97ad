"""The seam between engine and machine model: what a step holds, and how long it takes."""

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    from numpy.typing import NDArray


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

    @property
    def prefill_pairs(self) -> float:
        """Pairs of query and key in the prompt pieces, which attend causally."""
        return sum((tokens * (past + (tokens + 1) / 2) for tokens, past in self.chunks), 0.0)

    @property
    def prefill_context(self) -> int:
        """Tokens that the prompt pieces attend to, new and stored."""
        return sum(tokens + past for tokens, past in self.chunks)


class CostModel(Protocol):
    """Gives the duration of one step.

    A cost model is built afresh for every run (`CostSpec.build`), so it may hold state such as
    a random stream; nothing it holds outlives the run.

    Attributes
    ----------
    supports_runs : bool
        True when the methods of `RunCostModel` may be called. A model that draws random numbers
        says False. A model of your own may leave these methods out, and then says False too.
    num_extrapolated : int
        Steps so far that lay outside the range the model was calibrated on.
    """

    @property
    def supports_runs(self) -> bool:
        """Tell whether whole runs of decode steps can be timed at once."""
        ...

    @property
    def num_extrapolated(self) -> int:
        """Steps so far that lay outside the range the model was calibrated on."""
        ...

    def step_time(self, work: StepWork) -> float:
        """Return the duration of the step in seconds (finite, greater than zero)."""
        ...


class RunCostModel(CostModel, Protocol):
    """A cost model that times runs of decode steps at once (`supports_runs` is True)."""

    def decode_times(self, num_decodes: int, context_tokens: int) -> "Iterator[float]":
        """Yield the durations of consecutive steps that hold nothing but the same decodes.

        Parameters
        ----------
        num_decodes, context_tokens : int
            The first step, described as for `decode_run`.

        Yields
        ------
        float
            Seconds, without end; to the last bit what `step_time` gives for one step after the
            other. A step that is extrapolated is counted when it is yielded.
        """
        ...

    def decode_run(
        self, num_decodes: int, context_tokens: int, num_steps: int
    ) -> "NDArray[np.float64]":
        """Return the durations of consecutive steps that hold nothing but the same decodes.

        Parameters
        ----------
        num_decodes : int
            Rows of every step, at least 1; all of them sampled, each of size 1.
        context_tokens : int
            Tokens attended in the first step; grows by `num_decodes` a step.
        num_steps : int
            Length of the run, at least 0.

        Returns
        -------
        array of float64
            Seconds, to the last bit what `step_time` gives for one step after the other; steps
            that are extrapolated are counted as if it had been called.
        """
        ...

    def take_back(self, num_decodes: int, context_tokens: int, num_steps: int) -> None:
        """Remove steps from the count of extrapolated ones: the end of a run that was cut short.

        Parameters
        ----------
        num_decodes, context_tokens, num_steps : int
            The steps that were not carried out, described as for `decode_run`.
        """
        ...
