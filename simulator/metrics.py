"""The figures of a run, computed from its three tables.

Latency statistics are in milliseconds under the names of vLLM's benchmark; rates are per second.
Percentiles interpolate linearly; one that has too few samples is None, never a number.
"""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from simulator.columns import Columns
from simulator.spec import Measure
from simulator.stats import (
    Floats,
    Ints,
    min_samples,
    overlap,
    time_weighted_percentile,
    weighted_mean_std,
    weighted_percentile,
)

Metrics = dict[str, float | int | None]
"""Metric name to value; None where the run does not bear a value."""


@dataclass(slots=True)
class Window:
    """The measured part of a run.

    Attributes
    ----------
    start, end : float
        Seconds. Requests count by arrival, tokens and steps by time.
    """

    start: float
    end: float

    @property
    def length(self) -> float:
        """Seconds from start to end."""
        return self.end - self.start


def measured_window(tables: dict[str, Columns], measure: Measure) -> Window:
    """Return the window from the warm-up (or the first arrival) to the last event or horizon."""
    requests, steps = tables["requests"], tables["steps"]
    arrivals = _floats(requests, "arrival_s")
    start = max(measure.warmup_s, float(arrivals.min()) if len(arrivals) else 0.0)
    last = max(
        float(np.nanmax(_floats(requests, "finish_s"), initial=0.0)),
        float(_floats(steps, "end_s").max(initial=0.0)),
        float(arrivals.max(initial=0.0)),
    )
    end = last if measure.horizon_s is None else min(last, measure.horizon_s)
    return Window(start, max(start, end))


def summarise(
    tables: dict[str, Columns],
    measure: Measure,
    num_blocks: int | None = None,
    num_replicas: int = 1,
) -> Metrics:
    """Return all metrics of a run.

    Parameters
    ----------
    tables : dict
        The requests, steps and gaps tables of `TableRecorder`.
    measure : Measure
        Warm-up, objectives and percentiles.
    num_blocks : int, optional
        Usable KV blocks of a replica; None: the cache has no limit and no usage.
    num_replicas : int
        Replicas; busy fraction and KV usage are means over them.

    Returns
    -------
    dict
        Keys as documented in the README.
    """
    window = measured_window(tables, measure)
    requests = _Requests(tables["requests"], window)
    metrics: Metrics = {}
    metrics |= requests.counts()
    metrics |= _throughput(tables, requests, window)
    metrics |= requests.attainment(measure, window)
    for name, values in requests.latencies().items():
        metrics |= describe(name, values, np.ones(len(values), np.int64), measure)
    gaps = tables["gaps"]
    inside = _floats(gaps, "time_s") >= window.start
    gap_ms = _floats(gaps, "gap_s")[inside] * 1e3
    metrics |= describe("itl", gap_ms, _ints(gaps, "count")[inside], measure)
    metrics |= _machine(tables, window, num_blocks, num_replicas)
    return metrics


def describe(name: str, values_ms: Floats, counts: Ints, measure: Measure) -> Metrics:
    """Return mean, std, percentiles and sample count of a latency in milliseconds."""
    number = int(counts.sum())
    keys = [f"{stat}_{name}_ms" for stat in ("mean", "std", "median")]
    metrics: Metrics = {f"num_samples_{name}": number} | dict.fromkeys(keys)
    levels = [float(p) for p in measure.percentiles]
    percentile_keys = [f"p{p:g}_{name}_ms" for p in levels]
    metrics |= dict.fromkeys(percentile_keys)
    if number == 0:
        return metrics
    metrics[keys[0]], metrics[keys[1]] = weighted_mean_std(values_ms, counts)
    found = weighted_percentile(values_ms, counts, np.array([50.0, *levels]))
    metrics[keys[2]] = float(found[0])
    for key, level, value in zip(percentile_keys, levels, found[1:], strict=True):
        if number >= min_samples(level):
            metrics[key] = float(value)
    return metrics


@dataclass(slots=True)
class _Requests:
    """The measured requests: those that arrived inside the window."""

    table: Columns
    window: Window
    inside: NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        arrival = _floats(self.table, "arrival_s")
        self.inside = (arrival >= self.window.start) & (arrival <= self.window.end)

    def column(self, name: str) -> NDArray[np.generic]:
        return self.table[name][self.inside]

    def seconds(self, name: str) -> Floats:
        return _floats(self.table, name)[self.inside]

    def state(self, name: str) -> NDArray[np.bool_]:
        return np.asarray(self.column("state") == name)

    def counts(self) -> Metrics:
        arrivals = self.seconds("arrival_s")
        span = float(np.ptp(arrivals)) if len(arrivals) else 0.0
        finished = self.state("finished")
        return {
            "num_requests": len(arrivals),
            "completed": int(finished.sum()),
            "rejected": int(self.state("rejected").sum()),
            "unfinished": int(self.state("unfinished").sum()),
            "realised_rate": (len(arrivals) - 1) / span if span > 0 else None,
            "total_input_tokens": int(self.column("prompt_tokens")[finished].sum()),
            "total_output_tokens": int(self.column("output_tokens").sum()),
            "recomputed_tokens": int(self.column("recomputed_tokens").sum()),
            "num_preemptions": int(self.column("num_preemptions").sum()),
            "warmup_s": self.window.start,
            "duration_s": self.window.length,
        }

    def latencies(self) -> dict[str, Floats]:
        """Latencies in ms by short name; undefined ones are left out, unfinished ones too."""
        arrival = self.seconds("arrival_s")
        done = self.state("finished")
        tokens = self.column("output_tokens").astype(np.float64)
        latencies = {
            "ttft": self.seconds("first_token_s") - arrival,
            "tpot": np.where(done, self.tpot(), np.nan),
            "e2el": np.where(done, self.seconds("last_token_s") - arrival, np.nan),
            "queue": self.seconds("first_scheduled_s") - arrival,
        }
        latencies["norm"] = latencies["e2el"] / np.maximum(tokens, 1)
        return {name: seconds[~np.isnan(seconds)] * 1e3 for name, seconds in latencies.items()}

    def tpot(self) -> Floats:
        """Mean time between the tokens of a request; undefined (NaN) for a single token."""
        gaps = self.column("output_tokens").astype(np.float64) - 1
        spread = self.seconds("last_token_s") - self.seconds("first_token_s")
        tpot: Floats = np.where(gaps > 0, spread, np.nan) / np.maximum(gaps, 1)
        return tpot

    def attainment(self, measure: Measure, window: Window) -> Metrics:
        """Goodput; requests that were rejected or did not finish count as misses."""
        goodput = measure.goodput
        if goodput is None:
            return {"slo_attainment": None, "request_goodput": None}
        arrival = self.seconds("arrival_s")
        good = self.state("finished")
        limits = {
            "ttft_ms": self.seconds("first_token_s") - arrival,
            "tpot_ms": np.nan_to_num(self.tpot(), nan=0.0),
            "e2el_ms": self.seconds("last_token_s") - arrival,
        }
        for name, seconds in limits.items():
            limit = getattr(goodput, name)
            if limit is not None:
                good &= np.nan_to_num(seconds, nan=np.inf) * 1e3 <= limit
        count = int(good.sum())
        return {
            "slo_attainment": count / len(good) if len(good) else None,
            "request_goodput": _per_second(count, window),
        }


def _throughput(tables: dict[str, Columns], requests: _Requests, window: Window) -> Metrics:
    """Completions and delivered tokens in the window, whenever their requests arrived."""
    table, gaps = requests.table, tables["gaps"]
    finish, first = _floats(table, "finish_s"), _floats(table, "first_token_s")
    done = (table["state"] == "finished") & (finish >= window.start)
    later = _ints(gaps, "count")[_floats(gaps, "time_s") >= window.start]
    output = int((first >= window.start).sum()) + int(later.sum())
    prompts = int(_ints(table, "prompt_tokens")[first >= window.start].sum())
    return {
        "request_throughput": _per_second(int(done.sum()), window),
        "output_throughput": _per_second(output, window),
        "total_token_throughput": _per_second(output + prompts, window),
    }


def _machine(
    tables: dict[str, Columns], window: Window, num_blocks: int | None, num_replicas: int
) -> Metrics:
    """Utilisation, time-weighted over the window (batch sizes: over the busy time)."""
    steps = tables["steps"]
    start, end = _floats(steps, "start_s"), _floats(steps, "end_s")
    weight = overlap(start, end, window.start, window.end)
    busy = float(weight.sum())
    share = weight / np.where(end > start, end - start, 1.0)
    num_steps = float((share * _ints(steps, "num_steps")).sum())
    batch = (_ints(steps, "decode_rows") + _ints(steps, "prefill_chunks")).astype(np.float64)
    useful = float((share * _ints(steps, "useful_tokens")).sum())
    charged = float((share * _ints(steps, "charged_tokens")).sum())
    used = _ints(steps, "kv_blocks_used").astype(np.float64)
    held = float((share * _floats(steps, "kv_block_s")).sum())
    waited = _waiting_time(tables["requests"], window)
    length = window.length
    return {
        "busy_fraction": busy / length / num_replicas if length else None,
        "num_steps": round(num_steps),
        "mean_step_ms": busy / num_steps * 1e3 if num_steps else None,
        "mean_batch_size": float((weight * batch).sum()) / busy if busy else None,
        "p99_batch_size": time_weighted_percentile(batch, weight, 99) if busy else None,
        "padding_fraction": 1 - useful / charged if charged else None,
        "kv_usage_mean": _share(held, length * num_replicas, num_blocks),
        "kv_usage_max": _share(float(used[weight > 0].max(initial=0)), 1.0, num_blocks),
        "mean_num_waiting": waited / length if length else None,
        "mean_num_running": float((weight * _ints(steps, "num_running")).sum()) / length
        if length
        else None,
    }


def _waiting_time(table: Columns, window: Window) -> float:
    """Seconds of waiting for a first step inside the window, summed over all requests."""
    arrival, finish = _floats(table, "arrival_s"), _floats(table, "finish_s")
    scheduled = _floats(table, "first_scheduled_s")
    until = np.where(np.isnan(scheduled), finish, scheduled)  # rejected in the queue, or never
    until = np.nan_to_num(until, nan=window.end)
    return float(overlap(arrival, until, window.start, window.end).sum())


def _share(amount: float, length: float, num_blocks: int | None) -> float | None:
    return amount / length / num_blocks if num_blocks and length else None


def _per_second(amount: int, window: Window) -> float | None:
    return amount / window.length if window.length else None


def _floats(table: Columns, name: str) -> Floats:
    return table[name].astype(np.float64, copy=False)


def _ints(table: Columns, name: str) -> Ints:
    return table[name].astype(np.int64, copy=False)


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
