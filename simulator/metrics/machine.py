"""How busy the machine was in a run, from its steps."""

from collections import defaultdict
from collections.abc import Mapping
from typing import Final

import numpy as np

from simulator.blocks import blocks
from simulator.columns import Columns
from simulator.metrics import Metrics, Window, floats, ints
from simulator.stats import Floats, Ints, overlap, time_weighted_percentile
from simulator.stats.exact_sum import Total

_TIMES: Final = ("start_s", "end_s", "kv_block_s")
_NUMBERS: Final = (
    "num_steps",
    "decode_rows",
    "prefill_chunks",
    "useful_tokens",
    "charged_tokens",
    "kv_blocks_used",
    "num_running",
)


def machine_metrics(
    steps: Columns, waited: float, window: Window, num_blocks: int | None, num_replicas: int
) -> Metrics:
    """Return utilisation, time-weighted over the window (batch sizes: over the busy time).

    Parameters
    ----------
    steps : dict
        The steps table.
    waited : float
        Seconds of waiting of all requests (see `waiting_time`).
    window : Window
        The measured part.
    num_blocks : int or None
        Usable KV blocks of a replica; None: no limit.
    num_replicas : int
        Replicas.
    """
    totals: defaultdict[str, Total] = defaultdict(Total)
    times: Floats = np.zeros(1)
    most = 0
    for block in blocks(steps, (*_TIMES, *_NUMBERS)):
        weight = overlap(floats(block, "start_s"), floats(block, "end_s"), window.start, window.end)
        batch = ints(block, "decode_rows") + ints(block, "prefill_chunks")
        for name, values in _amounts(block, weight, batch).items():
            totals[name].add(values)
        times = _add_up(times, np.bincount(batch, weight).astype(np.float64, copy=False))
        most = max(most, int(ints(block, "kv_blocks_used")[weight > 0].max(initial=0)))
    amount = {name: total.value for name, total in totals.items()}
    busy, num_steps, charged = amount["busy"], amount["num_steps"], amount["charged"]
    length = window.length
    sizes = np.arange(len(times), dtype=np.float64)
    return {
        "busy_fraction": busy / length / num_replicas if length else None,
        "num_steps": round(num_steps),
        "mean_step_ms": busy / num_steps * 1e3 if num_steps else None,
        "mean_batch_size": amount["rows"] / busy if busy else None,
        "p99_batch_size": time_weighted_percentile(sizes, times, 99) if busy else None,
        "padding_fraction": 1 - amount["useful"] / charged if charged else None,
        "kv_usage_mean": _share(amount["held"], length * num_replicas, num_blocks),
        "kv_usage_max": _share(most, 1.0, num_blocks),
        "mean_num_waiting": waited / length if length else None,
        "mean_num_running": amount["running"] / length if length else None,
    }


def _amounts(block: Columns, weight: Floats, batch: Ints) -> Mapping[str, Floats]:
    """Return what each row adds to the sums, for `weight` seconds of it in the window."""
    start, end = floats(block, "start_s"), floats(block, "end_s")
    share = weight / np.where(end > start, end - start, 1.0)
    return {
        "busy": weight,
        "num_steps": share * ints(block, "num_steps"),
        "rows": weight * batch,
        "useful": share * ints(block, "useful_tokens"),
        "charged": share * ints(block, "charged_tokens"),
        "held": share * floats(block, "kv_block_s"),
        "running": weight * ints(block, "num_running"),
    }


def _add_up(first: Floats, second: Floats) -> Floats:
    """Add two arrays that may differ in length."""
    short, long = sorted((first, second), key=len)
    long[: len(short)] += short
    return long


def _share(amount: float, length: float, num_blocks: int | None) -> float | None:
    return amount / length / num_blocks if num_blocks and length else None
