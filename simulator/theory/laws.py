"""Workloads and machines of the cases, and the moments of what they draw."""

from functools import cache
from typing import Any, NamedTuple

import numpy as np

from workloads.spec import SyntheticWorkload
from workloads.streams import Streams
from workloads.trace import Trace

TOKENS_PER_S = 1000
"""Tokens that make a second of service where lengths are services."""

EXPONENTIAL_STEPS = {"kind": "exponential", "mean_ms": 1000}
"""Every step takes an exponential time of mean 1 s."""

PROMPT_STEPS = {
    "kind": "linear",
    "fixed_ms": 1e-6,
    "per_decode_us": 0,
    "per_prefill_token_us": 1e6 / TOKENS_PER_S,
}
"""A prompt takes 1 ms a token."""

EXPONENTIAL_PROMPTS = {"kind": "exponential", "mean": TOKENS_PER_S}
"""Prompts that take an exponential time of mean 1 s."""


def one_token(rate: float, num_requests: int, prompt_tokens: Any = 1) -> dict[str, Any]:
    """Return a workload of Poisson arrivals that ask for one token each: a request is a step."""
    return {
        "arrivals": rate,
        "prompt_tokens": prompt_tokens,
        "output_tokens": 1,
        "num_requests": num_requests,
    }


class Moments(NamedTuple):
    """Moments of the time that requests are served, seconds; those of no interest count as 0.

    Attributes
    ----------
    share : float
        Probability that a request is of interest.
    first, second : float
        Mean of the time, and of its square.
    """

    share: float
    first: float
    second: float


@cache
def exponential_tokens(mean: int, shorter_than: float = np.inf) -> Moments:
    """Return the moments of exponential lengths of mean 1 s, as drawn: whole tokens, at least 1.

    Parameters
    ----------
    mean : int
        Mean before rounding, tokens.
    shorter_than : float
        Lengths that are of interest, seconds.

    Examples
    --------
    >>> exponential_tokens(1000)
    Moments(share=1.0, first=1.000000458, second=2.000000084)
    """
    lengths = np.arange(1, 40 * mean + 1)
    at_least = np.exp(-(lengths - 0.5) / mean)
    at_least[0] = 1.0
    chance = -np.diff(at_least, append=0.0)
    times = lengths / mean
    chance[times >= shorter_than] = 0.0
    return Moments(*(round(float(chance @ times**power), 9) for power in range(3)))


class Classes(SyntheticWorkload):
    """Requests of two priorities, 0 and 1."""

    urgent_share: float
    """Probability of priority 0."""

    def _rows(self, streams: Streams) -> Trace:
        trace = super()._rows(streams)
        draws = streams("priority").random(len(trace))
        return trace.derive("priority", {}, priority=(draws >= self.urgent_share).astype(np.int64))
