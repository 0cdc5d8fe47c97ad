import numpy as np
import pytest

from simulator.compare import better_sign, compare
from simulator.errors import UserError
from simulator.plots.compare import forest
from simulator.stats import each_confidence

RNG = np.random.default_rng(3)
SHARED = RNG.normal(0, 20, 12)


def runs(**metrics: object) -> list[dict[str, float]]:
    """Return one dictionary a replication."""
    return [
        {name: float(value) for name, value in zip(metrics, row, strict=True)}
        for row in zip(*(np.broadcast_to(v, 12) for v in metrics.values()), strict=True)
    ]


A = runs(p99_ttft_ms=100 + SHARED, request_goodput=5.0, busy_fraction=0.5)
B = runs(p99_ttft_ms=110 + SHARED + RNG.normal(0, 1, 12), request_goodput=5.0, busy_fraction=0.4)


def test_what_the_seeds_share_cancels_out() -> None:
    latency, goodput, busy = compare(A, B, ["p99_ttft_ms", "request_goodput", "busy_fraction"])
    assert latency.verdict == "worse"
    assert latency.low < 10 < latency.high
    assert latency.high - latency.low < 3  # the seeds alone vary by 20
    assert latency.relative(latency.mean) == pytest.approx(0.1, rel=0.3)
    assert (goodput.verdict, goodput.mean) == ("equal", 0.0)
    assert busy.verdict == "lower"  # neither better nor worse


def test_the_other_way_round_is_the_opposite() -> None:
    (there,) = compare(A, B, ["p99_ttft_ms"])
    (back,) = compare(B, A, ["p99_ttft_ms"])
    assert (back.mean, back.low, back.high) == (-there.mean, -there.high, -there.low)
    assert back.verdict == "better"


def test_a_difference_that_is_not_resolved_says_how_many_seeds_would() -> None:
    noisy = runs(p99_ttft_ms=101 + RNG.normal(0, 20, 12))
    (found,) = compare(A, noisy, ["p99_ttft_ms"])
    assert found.verdict == "not resolved"
    assert found.seeds_needed > 12
    assert (found.low > 0) is False


def test_intervals_hold_together_so_each_is_wider() -> None:
    (alone,) = compare(A, B, ["p99_ttft_ms"])
    among = compare(A, B, ["p99_ttft_ms", "request_goodput", "busy_fraction"])[0]
    assert among.high - among.low > alone.high - alone.low
    assert each_confidence(0.95, 5) == pytest.approx(0.99)


def test_seeds_without_a_value_are_left_out() -> None:
    gaps = [run | ({"p99_ttft_ms": None} if i < 4 else {}) for i, run in enumerate(B)]
    (found,) = compare(A, gaps, ["p99_ttft_ms"])
    assert found.num_pairs == 8
    (nothing,) = compare(A, [run | {"p99_ttft_ms": None} for run in B], ["p99_ttft_ms"])
    assert (nothing.num_pairs, nothing.verdict) == (0, "n/a")


def test_an_unknown_metric_is_refused() -> None:
    with pytest.raises(UserError, match="--metrics p99_tfft_ms: no such metric; nearest: p99_ttft"):
        compare(A, B, ["p99_tfft_ms"])


@pytest.mark.parametrize(
    ("metric", "sign"),
    [("slo_attainment", 1), ("output_throughput", 1), ("p50_queue_ms", -1), ("unfinished", -1),
     ("num_preemptions", -1), ("num_requests", 0), ("mean_step_ms", 0), ("duration_s", 0)],
)  # fmt: skip
def test_more_of_a_metric_is_better_or_worse_or_neither(metric: str, sign: int) -> None:
    assert better_sign(metric) == sign


def test_the_figure_has_a_line_for_every_metric_that_has_a_share() -> None:
    metrics = ["p99_ttft_ms", "request_goodput", "busy_fraction"]
    zero = [run | {"unfinished": 0.0} for run in A]
    found = compare(zero, [run | {"unfinished": 0.0} for run in B], [*metrics, "unfinished"])
    ax = forest({"b": found}, "a")
    labels = [label.get_text().split(" ")[0] for label in ax.get_yticklabels()]
    assert labels == metrics
    assert ax.get_xlabel() == "Difference from a (%)"
