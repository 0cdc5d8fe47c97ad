"""Figures of runs small enough to be worked out by hand; every step takes a second."""

import json
import math

import numpy as np
import pytest

from simulator import Result
from simulator.metrics import latency_metrics, levels
from simulator.metrics.description import describe
from simulator.spec import Measure
from tests.simulator.harness import run

MIXED = [(0, 5, 3), (0, 10, 2), (1.5, 3, 3)]
"""Budget 8: [0,1) A5 B3 · A1 B7 · A1 B1 C3 · C1 · C1. Tokens A 1 2 3, B 2 3, C 3 4 5."""


def mixed(**measure: object) -> Result:
    policy = {"kind": "vllm-v1", "max_num_batched_tokens": 8}
    return run(MIXED, policy, measure=measure, engine={"block_size": 4, "num_blocks": 10})


def test_latencies_of_a_mixed_run() -> None:
    metrics = mixed().metrics
    expected = {
        "ttft": [1.0, 2.0, 1.5],
        "tpot": [1.0, 1.0, 1.0],
        "itl": [1.0] * 5,
        "e2el": [3.0, 3.0, 3.5],
        "queue": [0.0, 0.0, 0.5],
        "norm": [1.0, 1.5, 3.5 / 3],
    }
    for name, seconds in expected.items():
        assert metrics[f"num_samples_{name}"] == len(seconds)
        assert metrics[f"mean_{name}_ms"] == pytest.approx(np.mean(seconds) * 1e3)
        assert metrics[f"median_{name}_ms"] == pytest.approx(np.median(seconds) * 1e3)
        assert metrics[f"std_{name}_ms"] == pytest.approx(np.std(seconds) * 1e3)


def test_rates_and_counts_of_a_mixed_run() -> None:
    metrics = mixed().metrics
    expected = {
        "num_requests": 3,
        "completed": 3,
        "rejected": 0,
        "unfinished": 0,
        "total_input_tokens": 18,
        "total_output_tokens": 8,
        "request_rate": 1.0,
        "realised_rate": 2 / 1.5,
        "warmup_s": 0.0,
        "duration_s": 5.0,
        "request_throughput": 3 / 5,
        "output_throughput": 8 / 5,
        "total_token_throughput": 26 / 5,
        "recomputed_tokens": 0,
        "num_preemptions": 0,
    }
    assert {key: metrics[key] for key in expected} == pytest.approx(expected)


def test_the_machine_in_a_mixed_run() -> None:
    metrics = mixed().metrics
    expected = {
        "busy_fraction": 1.0,
        "num_steps": 5,
        "mean_step_ms": 1000.0,
        "mean_batch_size": (2 + 2 + 3 + 1 + 1) / 5,
        "p99_batch_size": 3,
        "padding_fraction": 0.0,
        "kv_usage_mean": (3 + 5 + 6 + 1 + 2) / 5 / 10,
        "kv_usage_max": 6 / 10,
        "mean_num_waiting": 0.5 / 5,
        "mean_num_running": (2 + 2 + 3 + 1 + 1) / 5,
        "extrapolated_steps": 0,
    }
    assert {key: metrics[key] for key in expected} == pytest.approx(expected)


def test_warm_up_cuts_requests_by_arrival_and_tokens_and_steps_by_time() -> None:
    metrics = mixed(warmup_s=1.0).metrics
    expected = {
        "warmup_s": 1.0,
        "duration_s": 4.0,
        "num_requests": 1,
        "completed": 1,
        "total_input_tokens": 3,
        "total_output_tokens": 3,
        "num_samples_ttft": 1,
        "mean_ttft_ms": 1500.0,
        "num_samples_itl": 5,
        "request_throughput": 3 / 4,  # whenever they arrived
        "output_throughput": 8 / 4,
        "total_token_throughput": 26 / 4,
        "num_steps": 4,
        "mean_batch_size": (2 + 3 + 1 + 1) / 4,
        "kv_usage_mean": (5 + 6 + 1 + 2) / 4 / 10,
        "mean_num_waiting": 0.5 / 4,
    }
    assert {key: metrics[key] for key in expected} == pytest.approx(expected)


def test_a_window_that_starts_within_a_step_takes_its_share() -> None:
    metrics = mixed(warmup_s=2.5).metrics
    expected = {
        "duration_s": 2.5,
        "num_requests": 0,
        "num_samples_ttft": 0,
        "num_samples_itl": 4,
        "output_throughput": 5 / 2.5,
        "busy_fraction": 1.0,
        "mean_step_ms": 1000.0,
        "mean_batch_size": (0.5 * 3 + 1 + 1) / 2.5,
        "mean_num_waiting": 0.0,
    }
    assert {key: metrics[key] for key in expected} == pytest.approx(expected)
    assert metrics["mean_ttft_ms"] is None
    assert metrics["realised_rate"] is None


def test_completions_before_the_window_do_not_count() -> None:
    metrics = mixed(warmup_s=3.5).metrics
    expected = {
        "duration_s": 1.5,
        "request_throughput": 1 / 1.5,
        "output_throughput": 2 / 1.5,
        "total_token_throughput": 2 / 1.5,
    }
    assert {key: metrics[key] for key in expected} == pytest.approx(expected)


def test_a_warm_up_beyond_the_end_leaves_nothing_to_measure() -> None:
    metrics = mixed(warmup_s=99.0, goodput={"ttft_ms": 1}).metrics
    assert metrics["duration_s"] == metrics["num_requests"] == metrics["num_steps"] == 0
    for key in ("busy_fraction", "request_throughput", "slo_attainment", "mean_batch_size"):
        assert metrics[key] is None
    json.dumps(metrics, allow_nan=False)


def test_a_run_cut_before_the_first_arrival_has_no_figures_and_no_nonsense() -> None:
    result = run([(5, 1, 1)], {"kind": "none"}, measure={"horizon_s": 2.0})
    metrics = result.metrics
    assert metrics["num_requests"] == metrics["completed"] == metrics["num_steps"] == 0
    json.dumps(metrics, allow_nan=False)
    numbers = [value for value in metrics.values() if value is not None]
    assert all(math.isfinite(value) for value in numbers)


def test_the_window_opens_with_the_first_arrival_and_idle_time_counts() -> None:
    metrics = run([(10, 1, 1), (14, 1, 2)], {"kind": "none"}).metrics
    expected = {
        "warmup_s": 10.0,
        "duration_s": 6.0,
        "busy_fraction": 3 / 6,
        "mean_batch_size": 1.0,
        "mean_num_running": 3 / 6,
        "request_throughput": 2 / 6,
    }
    assert {key: metrics[key] for key in expected} == pytest.approx(expected)


def test_padding_of_a_static_batch() -> None:
    rows = [(0, 4, 2), (0, 2, 5), (0, 3, 3), (1, 2, 2)]
    metrics = run(rows, {"kind": "static", "max_batch_size": 3}).metrics
    useful = (4 + 2 + 3) + (3 + 2 + 1 + 1) + (2 + 1)
    charged = 3 * 4 + 4 * 3 + (2 + 1)
    assert metrics["padding_fraction"] == pytest.approx(1 - useful / charged)
    assert metrics["busy_fraction"] == 1.0
    assert metrics["mean_num_waiting"] == pytest.approx(4 / 7)
    assert metrics["kv_usage_mean"] is None  # the cache has no limit
    assert metrics["mean_ttft_ms"] == metrics["mean_e2el_ms"] == pytest.approx(21 / 4 * 1e3)
    assert metrics["mean_itl_ms"] == 0
    assert metrics["num_samples_itl"] == 1 + 4 + 2 + 1


def test_figures_of_a_preempted_request() -> None:
    policy = {"kind": "vllm-v1", "max_num_batched_tokens": 16}
    rows = [(0, 6, 8), (0, 6, 8)]
    metrics = run(rows, policy, engine={"block_size": 4, "num_blocks": 5}).metrics
    # Tokens of A at 1 to 8; of B at 1, 2, 3 and, after 8 of its 9 tokens were computed again,
    # at 9 to 13.
    gaps = [1.0] * 7 + [1, 1, 6, 1, 1, 1, 1]
    expected = {
        "num_preemptions": 1,
        "recomputed_tokens": 8,
        "total_output_tokens": 16,
        "num_samples_itl": 14,
        "mean_itl_ms": np.mean(gaps) * 1e3,
        "std_itl_ms": np.std(gaps) * 1e3,
        "p90_itl_ms": None,
        "mean_tpot_ms": (1 + 12 / 7) / 2 * 1e3,
        "mean_e2el_ms": (8 + 13) / 2 * 1e3,
        "mean_num_waiting": 0.0,  # waiting for a first step only
        "kv_usage_max": 4 / 5,
    }
    found = {key: metrics[key] for key in expected}
    assert found.pop("p90_itl_ms") is expected.pop("p90_itl_ms")
    assert found == pytest.approx(expected)


MISSES = [(0, 1, 1), (0, 1, 2), (0, 9, 9), (0, 1, 3), (0, 1, 3)]
"""One at a time: TTFT 1, 2, rejected, 4, and 7 for the last, which 7.5 s cut off."""


@pytest.mark.parametrize(
    ("goodput", "good"),
    [
        ({"ttft_ms": 2000}, 2),
        ({"ttft_ms": 1999}, 1),
        ({"ttft_ms": 8000}, 3),
        ({"ttft_ms": 8000, "tpot_ms": 1000}, 3),
        ({"ttft_ms": 8000, "tpot_ms": 999}, 1),
        ({"ttft_ms": 8000, "e2el_ms": 3000}, 2),
        ({"e2el_ms": 6000}, 3),
        ({"tpot_ms": 1e9}, 3),
    ],
)
def test_rejected_and_unfinished_requests_miss_every_objective(
    goodput: dict[str, float], good: int
) -> None:
    policy = {"kind": "static", "max_batch_size": 1, "max_seq_len": 10, "release": "per-request"}
    metrics = run(MISSES, policy, measure={"horizon_s": 7.5, "goodput": goodput}).metrics
    states = [metrics[key] for key in ("num_requests", "completed", "rejected", "unfinished")]
    assert states == [5, 3, 1, 1]
    assert metrics["slo_attainment"] == good / 5
    assert metrics["request_goodput"] == pytest.approx(good / 7.5)


def test_unfinished_requests_count_where_they_got_to() -> None:
    policy = {"kind": "static", "max_batch_size": 1, "max_seq_len": 10, "release": "per-request"}
    metrics = run(MISSES, policy, measure={"horizon_s": 7.5}).metrics
    assert metrics["num_samples_ttft"] == metrics["num_samples_queue"] == 4
    assert metrics["mean_ttft_ms"] == pytest.approx((1 + 2 + 4 + 7) / 4 * 1e3)
    assert metrics["num_samples_e2el"] == metrics["num_samples_norm"] == 3
    assert metrics["num_samples_tpot"] == 2
    assert metrics["total_output_tokens"] == 1 + 2 + 3 + 1
    assert metrics["total_input_tokens"] == 3
    assert metrics["slo_attainment"] is metrics["request_goodput"] is None


@pytest.mark.parametrize(("number", "known"), [(367, False), (368, True)])
def test_a_percentile_is_a_number_only_with_enough_samples(number: int, known: bool) -> None:
    rows = [(float(i), 1, 1) for i in range(number)]
    measure = {"percentiles": [90, 99, 99.9]}
    metrics = run(rows, {"kind": "none"}, measure=measure).metrics
    assert metrics["p90_ttft_ms"] == 1000.0
    assert (metrics["p99_ttft_ms"] == 1000.0) is known
    assert (metrics["p99_ttft_ms"] is None) is not known
    assert metrics["p99.9_ttft_ms"] is None
    assert metrics["num_samples_ttft"] == number
    assert metrics["num_samples_itl"] == 0


def test_pooled_gaps_are_weighted_by_their_counts() -> None:
    gaps, counts = np.array([1.0, 7.0]), np.array([360, 40])
    measure = Measure(percentiles=(89, 95))
    metrics = latency_metrics("itl", describe(gaps, counts, levels(measure)), measure)
    assert metrics == {
        "num_samples_itl": 400,
        "mean_itl_ms": pytest.approx(1.6),
        "std_itl_ms": pytest.approx(1.8),
        "median_itl_ms": 1.0,
        "p89_itl_ms": 1.0,
        "p95_itl_ms": 7.0,
    }
