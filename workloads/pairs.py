"""Presets of length pairs without arrivals: data sets that no clock was kept with."""

from functools import cached_property
from typing import Any, Final

import numpy as np

from workloads.arrivals import PoissonArrivals
from workloads.base import IntArray
from workloads.shipped import Shipped
from workloads.streams import Streams
from workloads.trace import Trace

FORMAT: Final = "batchlab pairs 1"
_RATE: Final = 1.0


def pair_table(trace: Trace, about: dict[str, str]) -> dict[str, Any]:
    """Reduce a trace to its pairs of lengths: each once, with its count, in ascending order.

    Prompts stand as steps from one to the next, which compress better.
    """
    pairs = np.stack([trace.prompt_tokens, trace.output_tokens], axis=1)
    unique, counts = np.unique(pairs, axis=0, return_counts=True)
    table = {
        "prompt_steps": np.diff(unique[:, 0], prepend=0).tolist(),
        "output_tokens": unique[:, 1].tolist(),
        "counts": counts.tolist(),
    }
    return {"format": FORMAT, **about, "num_rows": len(trace), **table}


class PairPreset(Shipped):
    """Pairs of lengths drawn with replacement, and Poisson arrivals at a rate of your choice.

    Prompt and output belong together, so that what they have in common, and the limit of
    their sum, stay as they are in the data set. There are no arrivals to reproduce: 1 request
    a second is only a default.
    """

    @property
    def request_rate(self) -> float:
        """1 per second, as the data set has no arrivals."""
        return _RATE

    @property
    def mean_prompt_tokens(self) -> float:
        """Mean length of a prompt in tokens."""
        prompts, _, counts = self._pairs
        return float(np.average(prompts, weights=counts))

    @property
    def mean_output_tokens(self) -> float:
        """Mean length of an output in tokens."""
        _, outputs, counts = self._pairs
        return float(np.average(outputs, weights=counts))

    def trace(
        self,
        num_requests: int | None = None,
        request_rate: float | None = None,
        *,
        streams: Streams,
    ) -> Trace:
        """Draw requests, as many as the data set has by default."""
        n = self._checked(num_requests, request_rate)
        prompts, outputs, counts = self._pairs
        places = streams("lengths").integers(0, self.num_rows, n)
        rows = np.searchsorted(np.cumsum(counts), places, side="right")
        arrivals = PoissonArrivals(request_rate=request_rate or _RATE)
        times = arrivals.times(n, streams("arrivals"))
        return Trace(times, prompts[rows], outputs[rows], provenance=self._account(n))

    @cached_property
    def _pairs(self) -> tuple[IntArray, IntArray, IntArray]:
        steps, outputs, counts = (
            np.array(self._table[name], np.int64)
            for name in ("prompt_steps", "output_tokens", "counts")
        )
        return np.cumsum(steps), outputs, counts
