"""Run the scenarios and keep what a benchmark client would have reported."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from simulator.errors import RunError, UserError
from simulator.result import Result
from simulator.run import simulate
from simulator.validation.loads import BLOCK
from simulator.validation.scenario import Scenario
from workloads.base import FloatArray

FULL = 0.97
"""From this share of used KV blocks on, the capacity binds."""


@dataclass(frozen=True)
class Prediction:
    """What a simulated client saw, under the column names of the measurements.

    Attributes
    ----------
    values : dict of str to float
        Column to value; TTFT includes the profile's time in front of the engine.
    kv_usage : float
        Largest share of KV blocks in use.
    num_preemptions : int
        Requests that gave way because blocks ran out.
    num_blocks : int
        KV blocks.
    largest_prompt : float
        Share of KV blocks that the longest prompt takes.
    extrapolated : float
        Share of steps outside the calibrated range.
    ttft_s, tpot_s : array or None
        Times of each request in order of arrival; only where they are compared one by one.
    """

    values: dict[str, float]
    kv_usage: float
    num_preemptions: int
    num_blocks: int
    largest_prompt: float
    extrapolated: float
    ttft_s: FloatArray | None = None
    tpot_s: FloatArray | None = None

    @property
    def is_kv_bound(self) -> bool:
        """Whether the KV capacity decides the result: blocks lacked, or would have for one more."""
        return self.num_preemptions > 0 or self.kv_usage + self.largest_prompt >= FULL


def predict(scenario: Scenario) -> Prediction | str:
    """Simulate a row; a run that is impossible gives the reason instead.

    Where requests give way to others and the engine caches prefixes, the run is repeated with the
    cache: what a request had computed may then still be there. Elsewhere the cache is left out,
    as it changes nothing unless prompts repeat.
    """
    try:
        found = observe(scenario, simulate(scenario.spec))
        if found.num_preemptions and scenario.caches_prefixes:
            found = observe(scenario, simulate(scenario.with_cache()))
        return found
    except (UserError, RunError) as error:
        return str(error)


def observe(scenario: Scenario, result: Result) -> Prediction:
    """Return what the client of a run would report."""
    metrics, front_ms = result.metrics, scenario.profile.request_ms
    names = {
        "req_throughput_rps": ("request_throughput", 0.0),
        "output_throughput_tok_s": ("output_throughput", 0.0),
        "ttft_mean_ms": ("mean_ttft_ms", front_ms),
        "ttft_p50_ms": ("median_ttft_ms", front_ms),
        "tpot_mean_ms": ("mean_tpot_ms", 0.0),
        "tpot_p50_ms": ("median_tpot_ms", 0.0),
        "e2e_mean_ms": ("mean_e2el_ms", front_ms),
    }
    values = {}
    for name, (key, more) in names.items():
        value = metrics[key]
        if value is not None:
            values[name] = float(value) + more
    num_steps = metrics["num_steps"] or 1
    each: dict[str, FloatArray] = {}
    if scenario.log is not None:
        table = result.requests.sort_values("request_id")
        each = {name: table[name].to_numpy(np.float64) for name in ("ttft_s", "tpot_s")}
        each["ttft_s"] = each["ttft_s"] + front_ms / 1e3
    return Prediction(
        values,
        float(metrics["kv_usage_max"] or 0.0),
        int(metrics["num_preemptions"] or 0),
        result.num_blocks or 0,
        int(result.trace.prompt_tokens.max()) / ((result.num_blocks or 1) * BLOCK),
        result.extrapolated_steps / num_steps,
        each.get("ttft_s"),
        each.get("tpot_s"),
    )


def predict_all(
    scenarios: Sequence[Scenario],
    *,
    jobs: int = 1,
    progress: Callable[[int], object] = lambda done: None,
) -> list[Prediction | str]:
    """Simulate all rows; return the results in their order.

    Parameters
    ----------
    scenarios : sequence of Scenario
        The runs.
    jobs : int
        Worker processes. The results do not depend on it.
    progress : callable
        Told how many runs are done since the last call.
    """
    found: dict[int, Prediction | str] = {}
    order = sorted(range(len(scenarios)), key=lambda index: -_size(scenarios[index]))
    for index, prediction in _execute([(i, scenarios[i]) for i in order], jobs):
        found[index] = prediction
        progress(1)
    return [found[index] for index in range(len(scenarios))]


def _size(scenario: Scenario) -> int:
    """Return how long a run takes, roughly: its output tokens, more where no step is skipped."""
    tokens = int(scenario.spec.workload.table.output_tokens.sum())  # type: ignore[union-attr]
    engine = scenario.spec.engine
    return tokens * (20 if engine.enable_prefix_caching or engine.async_scheduling else 1)


def _execute(
    tasks: Sequence[tuple[int, Scenario]], jobs: int
) -> Iterator[tuple[int, Prediction | str]]:
    if jobs == 1 or len(tasks) < 2:
        yield from (_indexed(*task) for task in tasks)
        return
    from joblib import Parallel, delayed

    pool = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
    yield from pool(delayed(_indexed)(*task) for task in tasks)


def _indexed(index: int, scenario: Scenario) -> tuple[int, Prediction | str]:
    return index, predict(scenario)
