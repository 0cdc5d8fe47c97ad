"""All figures of a run, computed from its three tables."""

from collections.abc import Iterator, Mapping

from simulator.blocks import blocks
from simulator.columns import Columns
from simulator.metrics import Metrics, Window, floats, ints, latency_metrics, levels
from simulator.metrics.description import Samples, describe_parts
from simulator.metrics.machine import machine_metrics
from simulator.metrics.requests import latencies, request_metrics, waiting_time
from simulator.spec import Measure


def summarise(
    tables: Mapping[str, Columns],
    window: Window,
    measure: Measure,
    num_blocks: int | None = None,
    num_replicas: int = 1,
) -> Metrics:
    """Return all metrics of a run.

    Tables are gone through block by block, and more than once. Whether they are in memory or in
    files, the metrics are the same to the last bit.

    Parameters
    ----------
    tables : dict
        The requests, steps and gaps tables of `TableRecorder`.
    window : Window
        The measured part (see `simulator.metrics.measured_window`).
    measure : Measure
        Objectives and percentiles.
    num_blocks : int, optional
        Usable KV blocks of a replica; None: the cache has no limit and no usage.
    num_replicas : int
        Replicas; busy fraction and KV usage are means over them.

    Returns
    -------
    dict
        Keys as documented in the README.
    """
    requests, gaps = tables["requests"], tables["gaps"]
    metrics = request_metrics(requests, gaps, window, measure)
    found = describe_parts(lambda: latencies(requests, window), levels(measure))
    found |= describe_parts(lambda: _gaps(gaps, window), levels(measure))
    for name, description in found.items():
        metrics |= latency_metrics(name, description, measure)
    waited = waiting_time(requests, window)
    return metrics | machine_metrics(tables["steps"], waited, window, num_blocks, num_replicas)


def _gaps(gaps: Columns, window: Window) -> Iterator[Mapping[str, Samples]]:
    """Yield the gaps between tokens that end in the window, in ms."""
    for block in blocks(gaps, ("time_s", "gap_s", "count")):
        inside = floats(block, "time_s") >= window.start
        yield {"itl": (floats(block, "gap_s")[inside] * 1e3, ints(block, "count")[inside])}
