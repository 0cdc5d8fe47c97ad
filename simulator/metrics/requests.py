"""What happened to the requests of a run: counts, rates, attainment and latencies."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Final

import numpy as np
from numpy.typing import NDArray

from simulator.blocks import blocks
from simulator.columns import Columns
from simulator.metrics import Metrics, Window, floats, ints
from simulator.metrics.description import Samples
from simulator.spec import Goodput, Measure
from simulator.stats import Floats, overlap
from simulator.stats.exact_sum import Total

_TIMES: Final = ("arrival_s", "first_scheduled_s", "first_token_s", "last_token_s", "finish_s")
_TOKENS: Final = ("prompt_tokens", "output_tokens", "recomputed_tokens", "num_preemptions")


class _Rows:
    """The measured requests of a block: those that arrived inside the window."""

    def __init__(self, block: Columns, window: Window) -> None:
        self._block = block
        arrival = floats(block, "arrival_s")
        self._inside = (arrival >= window.start) & (arrival <= window.end)
        self.arrival = arrival[self._inside]

    def floats(self, name: str) -> Floats:
        return floats(self._block, name)[self._inside]

    def number(self, name: str) -> int:
        return int(ints(self._block, name)[self._inside].sum())

    def state(self, name: str) -> NDArray[np.bool_]:
        return np.asarray(self._block["state"][self._inside] == name)

    def tpot(self) -> Floats:
        """Mean time between the tokens of a request; undefined (NaN) for a single token."""
        gaps = self.floats("output_tokens") - 1
        spread = self.floats("last_token_s") - self.floats("first_token_s")
        tpot: Floats = np.where(gaps > 0, spread, np.nan) / np.maximum(gaps, 1)
        return tpot

    def counts(self) -> Mapping[str, int]:
        finished = self.state("finished")
        return {
            "num_requests": len(self.arrival),
            "completed": int(finished.sum()),
            "rejected": int(self.state("rejected").sum()),
            "unfinished": int(self.state("unfinished").sum()),
            "total_input_tokens": int(
                ints(self._block, "prompt_tokens")[self._inside][finished].sum()
            ),
            "total_output_tokens": self.number("output_tokens"),
            "recomputed_tokens": self.number("recomputed_tokens"),
            "num_preemptions": self.number("num_preemptions"),
        }

    def num_good(self, goodput: Goodput) -> int:
        """Return the requests within all limits; those rejected or not finished are misses."""
        good = self.state("finished")
        limits = {
            "ttft_ms": self.floats("first_token_s") - self.arrival,
            "tpot_ms": np.nan_to_num(self.tpot(), nan=0.0),
            "e2el_ms": self.floats("last_token_s") - self.arrival,
        }
        for name, seconds in limits.items():
            limit = getattr(goodput, name)
            if limit is not None:
                good &= np.nan_to_num(seconds, nan=np.inf) * 1e3 <= limit
        return int(good.sum())

    def latencies(self) -> Mapping[str, Samples]:
        """Latencies in ms by short name; undefined ones are left out, unfinished ones too."""
        done = self.state("finished")
        tokens = self.floats("output_tokens")
        latencies = {
            "ttft": self.floats("first_token_s") - self.arrival,
            "tpot": np.where(done, self.tpot(), np.nan),
            "e2el": np.where(done, self.floats("last_token_s") - self.arrival, np.nan),
            "queue": self.floats("first_scheduled_s") - self.arrival,
        }
        latencies["norm"] = latencies["e2el"] / np.maximum(tokens, 1)
        found = {name: seconds[~np.isnan(seconds)] * 1e3 for name, seconds in latencies.items()}
        return {name: (values, np.ones(len(values), np.int64)) for name, values in found.items()}


def request_metrics(requests: Columns, gaps: Columns, window: Window, measure: Measure) -> Metrics:
    """Return counts and rates of the requests that arrived in the window, and its throughput.

    Completions and delivered tokens count in the window whenever their requests arrived.
    """
    number: Counter[str] = Counter()
    first, last = np.inf, -np.inf
    for block in blocks(requests, (*_TIMES, *_TOKENS, "state")):
        rows = _Rows(block, window)
        number.update(rows.counts())
        number.update(_delivered(block, window))
        if measure.goodput is not None:
            number["good"] += rows.num_good(measure.goodput)
        first = min(first, float(rows.arrival.min(initial=np.inf)))
        last = max(last, float(rows.arrival.max(initial=-np.inf)))
    for block in blocks(gaps, ("time_s", "count")):
        number["tokens"] += int(ints(block, "count")[floats(block, "time_s") >= window.start].sum())
    return _counts(number, last - first, window) | _rates(number, window, measure)


def _delivered(block: Columns, window: Window) -> Mapping[str, int]:
    """Count completions, first tokens and the prompts before them."""
    done = (block["state"] == "finished") & (floats(block, "finish_s") >= window.start)
    begun = floats(block, "first_token_s") >= window.start
    return {
        "done": int(done.sum()),
        "tokens": int(begun.sum()),
        "prompts": int(ints(block, "prompt_tokens")[begun].sum()),
    }


def _counts(number: Mapping[str, int], span: float, window: Window) -> Metrics:
    requests = number["num_requests"]
    names = ("num_requests", "completed", "rejected", "unfinished")
    sums = ("total_input_tokens", "total_output_tokens", "recomputed_tokens", "num_preemptions")
    return {
        **{name: number[name] for name in names},
        "realised_rate": (requests - 1) / span if span > 0 else None,
        **{name: number[name] for name in sums},
        "warmup_s": window.start,
        "duration_s": window.length,
    }


def _rates(number: Mapping[str, int], window: Window, measure: Measure) -> Metrics:
    metrics: Metrics = {
        "request_throughput": window.per_second(number["done"]),
        "output_throughput": window.per_second(number["tokens"]),
        "total_token_throughput": window.per_second(number["tokens"] + number["prompts"]),
        "slo_attainment": None,
        "request_goodput": None,
    }
    if measure.goodput is not None:
        requests, good = number["num_requests"], number["good"]
        metrics["slo_attainment"] = good / requests if requests else None
        metrics["request_goodput"] = window.per_second(good)
    return metrics


def latencies(requests: Columns, window: Window) -> Iterator[Mapping[str, Samples]]:
    """Yield the latencies of the measured requests in ms, block by block."""
    for block in blocks(requests, (*_TIMES[:4], "output_tokens", "state")):
        yield _Rows(block, window).latencies()


def waiting_time(requests: Columns, window: Window) -> float:
    """Return the seconds of waiting for a first step inside the window, over all requests."""
    total = Total()
    for block in blocks(requests, ("arrival_s", "first_scheduled_s", "finish_s")):
        arrival, scheduled = floats(block, "arrival_s"), floats(block, "first_scheduled_s")
        # rejected in the queue, or never scheduled
        until = np.where(np.isnan(scheduled), floats(block, "finish_s"), scheduled)
        until = np.nan_to_num(until, nan=window.end)
        total.add(overlap(arrival, until, window.start, window.end))
    return total.value


def with_latencies(requests: Columns) -> Columns:
    """Return the requests table with waiting time and latencies, seconds; NaN where not reached."""
    times = {name: requests[name].astype(np.float64) for name in requests if name.endswith("_s")}
    tokens = requests["output_tokens"].astype(np.int64)
    e2e = times["last_token_s"] - times["arrival_s"]
    gaps = np.where(tokens > 1, tokens - 1.0, np.nan)
    return {
        **requests,
        "queue_s": times["first_scheduled_s"] - times["arrival_s"],
        "ttft_s": times["first_token_s"] - times["arrival_s"],
        "e2e_s": np.where(requests["state"] == "finished", e2e, np.nan),
        "tpot_s": (times["last_token_s"] - times["first_token_s"]) / gaps,
    }
