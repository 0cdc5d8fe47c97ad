"""Step times linear in what a step holds, fitted to whole steps of an engine."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from simulator.cost.base import StepWork
from simulator.cost.step_profile import StepProfile


class StepLinearCost:
    """A step takes a fixed time, and times per token, pair, chunk, decode and context token.

    Parameters
    ----------
    profile : StepProfile
        What each part costs.
    slowness : float
        Factor on the time of a step, greater than 0; pauses stay as they are.
    pauses : bool
        Whether the engine's pause after a step, and its work for a request that is new in it,
        lengthen the step.

    Attributes
    ----------
    num_extrapolated : int
        Steps so far that hold more of something than any step of the fit.

    Notes
    -----
    With n decodes that attend K tokens in all, and chunks of c tokens behind p stored ones::

        step = slowness * (step + decode * n + context_token * K + any_decode * [n > 0]
             + sum over chunks of (prefill_chunk + prefill_token * c
                                   + prefill_pair * (c * p + c * (c + 1) / 2)))
        pause = between_steps + new_request * chunks without stored tokens

    See Also
    --------
    simulator.calibrate.steps.calibrate_steps : Fits the coefficients.

    Examples
    --------
    >>> from simulator.cost.step_profile import read_step_profile
    >>> cost = StepLinearCost(read_step_profile("cpu"), pauses=False)
    >>> 5e-3 < cost.step_time(StepWork(1, 256, (), 1, 1)) < 8e-3
    True
    """

    supports_runs = True

    def __init__(self, profile: StepProfile, slowness: float = 1.0, *, pauses: bool = True) -> None:
        self.profile = profile
        self.num_extrapolated = 0
        seconds = {name: us / 1e6 for name, us in profile.coefficients_us.items()}
        pause, added = seconds["between_steps"], seconds["new_request"]
        self._step = slowness * seconds["step"] + (pause if pauses else 0.0)
        self._new = added if pauses else 0.0
        self._token = slowness * seconds["prefill_token"]
        self._pair = slowness * seconds["prefill_pair"]
        self._chunk = slowness * seconds["prefill_chunk"]
        self._decode = slowness * seconds["decode"]
        self._any = slowness * seconds["any_decode"]
        self._context = slowness * seconds["context_token"]
        largest = profile.largest
        self._most_tokens, self._most_pairs = largest["prefill_token"], largest["prefill_pair"]
        self._most_decodes, self._most_context = largest["decode"], largest["context_token"]

    def step_time(self, work: StepWork) -> float:
        """Return the duration of the step, seconds."""
        decodes, context, chunks = work.num_decodes, work.context_tokens, work.chunks
        time = self._step
        if decodes:
            time += self._any + self._decode * decodes
        time += self._context * context
        if chunks:
            tokens = pairs = new = 0
            for chunk, past in chunks:
                tokens += chunk
                pairs += chunk * past + chunk * (chunk + 1) // 2
                new += past == 0
            time += self._chunk * len(chunks) + self._token * tokens + self._pair * pairs
            time += self._new * new
            if tokens > self._most_tokens or pairs > self._most_pairs:
                self.num_extrapolated += 1
                return time
        if decodes > self._most_decodes or context > self._most_context:
            self.num_extrapolated += 1
        return time

    def decode_times(self, num_decodes: int, context_tokens: int) -> Iterator[float]:
        """Yield the durations of consecutive decode steps, seconds (see `RunCostModel`)."""
        time = self._step + (self._any + self._decode * num_decodes)
        many = num_decodes > self._most_decodes
        while True:
            if many or context_tokens > self._most_context:
                self.num_extrapolated += 1
            yield time + self._context * context_tokens
            context_tokens += num_decodes

    def decode_run(
        self, num_decodes: int, context_tokens: int, num_steps: int
    ) -> NDArray[np.float64]:
        """Return the durations of consecutive decode steps, seconds (see `RunCostModel`)."""
        self.num_extrapolated += self._outside(num_decodes, context_tokens, num_steps)
        time = self._step + (self._any + self._decode * num_decodes)
        contexts = context_tokens + num_decodes * np.arange(num_steps, dtype=np.float64)
        return time + self._context * contexts

    def take_back(self, num_decodes: int, context_tokens: int, num_steps: int) -> None:
        """Remove steps from the count of extrapolated ones."""
        self.num_extrapolated -= self._outside(num_decodes, context_tokens, num_steps)

    def _outside(self, num_decodes: int, context_tokens: int, num_steps: int) -> int:
        """Return how many steps of a run hold more than any step of the fit."""
        if num_decodes > self._most_decodes:
            return num_steps
        inside = int((self._most_context - context_tokens) // num_decodes) + 1
        return num_steps - min(max(inside, 0), num_steps)
