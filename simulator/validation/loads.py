"""The requests of a row: how many, when, how long, and what their prompts share."""

import math
import re
from dataclasses import dataclass

import numpy as np

from simulator.validation.rows import Measurement
from workloads.base import FloatArray, IntArray
from workloads.chains import Chains
from workloads.presets import get_preset
from workloads.streams import Streams
from workloads.trace import Trace
from workloads.workload import OpenWorkload

BLOCK = 16
"""Tokens in a KV block."""
DEFAULT_ROUNDS = 10
"""Requests per user of a closed loop whose length is not stated."""


class Unrunnable(Exception):
    """A row that cannot be simulated; the message says why."""


class GivenWorkload(OpenWorkload):
    """Requests that exist already."""

    table: object
    request_rate: float | None = None

    def _rows(self, streams: Streams) -> Trace:
        assert isinstance(self.table, Trace)
        return self.table


@dataclass(frozen=True)
class Load:
    """Requests, and how a client sends them.

    Attributes
    ----------
    trace : Trace
        The requests.
    max_concurrency : int or None
        Most requests under way; None: no limit.
    is_shared : bool
        Whether prompts repeat, so that prefix caching matters.
    no_level, notes : tuple of str
        As for `EngineSetting`.
    """

    trace: Trace
    max_concurrency: int | None = None
    is_shared: bool = False
    no_level: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def make_load(row: Measurement, seed: int = 0) -> Load:
    """Make the requests of a row.

    Parameters
    ----------
    row : Measurement
        The row.
    seed : int
        Root of the random draws, of lengths and of Poisson arrivals.

    Returns
    -------
    Load
        As many requests as were sent.

    Raises
    ------
    Unrunnable
        If the row does not say enough.
    """
    if row.isl_mean_tok is None or row.osl_mean_tok is None:
        raise Unrunnable("mean prompt or output length not stated")
    streams = Streams(seed)
    number = num_requests(row)
    arrivals, cap = _arrivals(row, number, streams)
    prompts, outputs, notes = _lengths(row, number, streams)
    chains: Chains | None = None
    no_level: tuple[str, ...] = ()
    is_shared = row.prefix_caching.startswith("on") and "shared-prefix" in row.dataset
    if is_shared:
        chains, no_level = _shared(row, prompts, streams)
    trace = Trace(arrivals, prompts, outputs, chains=chains)
    return Load(trace, cap, chains is not None, no_level, notes)


def num_requests(row: Measurement) -> int:
    """Return the number of requests: as stated, or from rate and duration, or from the users."""
    if row.num_requests is not None:
        return round(row.num_requests)
    if row.arrival_kind in ("closed", "burst", "static_batch") and row.max_concurrency:
        rounds = DEFAULT_ROUNDS if row.arrival_kind == "closed" else 1
        return round(row.max_concurrency) * rounds
    if row.duration_s and row.request_rate_rps and math.isfinite(row.request_rate_rps):
        return max(1, round(row.duration_s * row.request_rate_rps))
    raise Unrunnable("number of requests not stated")


def _arrivals(row: Measurement, number: int, streams: Streams) -> tuple[FloatArray, int | None]:
    """Return times of arrival and the cap of the client."""
    cap = None if row.max_concurrency is None else round(row.max_concurrency)
    kind = row.arrival_kind
    if kind in ("burst", "static_batch"):
        return np.zeros(number), None
    if kind == "closed":
        if cap is None:
            raise Unrunnable("concurrency of the closed loop not stated")
        return np.zeros(number), cap
    rate = row.request_rate_rps
    if rate is None:
        raise Unrunnable("request rate not stated")
    if not math.isfinite(rate):
        return np.zeros(number), cap
    if kind == "constant":
        return np.arange(number) / rate, cap
    if kind.startswith("poisson"):
        gaps = streams("arrivals").exponential(1.0 / rate, number)
        return np.cumsum(gaps) - gaps[0], cap
    raise Unrunnable(f"arrivals {kind!r} are not known")


def _lengths(
    row: Measurement, number: int, streams: Streams
) -> tuple[IntArray, IntArray, tuple[str, ...]]:
    """Return prompts, outputs, and what stands in for an unstated law."""
    assert row.isl_mean_tok is not None
    assert row.osl_mean_tok is not None
    if "empirical" in row.isl_dist or "empirical" in row.osl_dist:
        prompts, outputs = _sharegpt(number, streams)
        scaled = scaled_to(prompts, row.isl_mean_tok), scaled_to(outputs, row.osl_mean_tok)
        return *scaled, ("lengths of preset sharegpt-8k, scaled to the means",)
    return (
        _law(row.isl_dist, row.isl_mean_tok, number, streams("prompt_tokens")),
        _law(row.osl_dist, row.osl_mean_tok, number, streams("output_tokens")),
        (),
    )


def _law(text: str, mean: float, number: int, rng: np.random.Generator) -> IntArray:
    """Draw lengths: `uniform A-B of nominal`, or else all equal to the mean."""
    found = re.search(r"uniform ([\d.]+)-([\d.]+) of nominal", text)
    if found is None:
        return np.full(number, max(1, round(mean)))
    low, high = (max(1, round(float(part) * mean)) for part in found.groups())
    return rng.integers(low, high + 1, number)


def _sharegpt(number: int, streams: Streams) -> tuple[IntArray, IntArray]:
    """Draw pairs of ShareGPT lengths as `vllm bench serve` filters them."""
    table = get_preset("sharegpt-8k").trace(None, None, streams=streams)
    prompts, outputs = table.prompt_tokens, table.output_tokens
    kept = (prompts >= 4) & (outputs >= 4) & (prompts <= 1024) & (prompts + outputs <= 2048)
    rows = streams("lengths").integers(0, np.count_nonzero(kept), number)
    return prompts[kept][rows], outputs[kept][rows]


def scaled_to(lengths: IntArray, mean: float) -> IntArray:
    """Return lengths scaled to a mean, at least 1 each.

    Examples
    --------
    >>> scaled_to(np.array([10, 30]), 40).tolist()
    [20, 60]
    """
    scaled = np.rint(lengths * (mean / float(lengths.mean())))
    return np.asarray(np.maximum(1, scaled), np.int64)


def _shared(
    row: Measurement, prompts: IntArray, streams: Streams
) -> tuple[Chains | None, tuple[str, ...]]:
    """Return chains of prompts that repeat, if the row says how many different ones there are."""
    found = re.search(r"(\d+) distinct prompts", row.notes)
    if found is None:
        return None, ("how often prompts repeat is not stated",)
    which = streams("prefixes").integers(0, int(found[1]), prompts.size)
    lengths = prompts // BLOCK
    longest = int(lengths.max())
    ids = np.concatenate(
        [text * longest + np.arange(length) for text, length in zip(which, lengths, strict=True)]
    )
    return Chains(ids, np.cumsum(lengths), BLOCK), ()
