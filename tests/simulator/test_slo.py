import pytest

from simulator.capacity.slo import Objective, judge, parse_objective, percentiles_of
from simulator.errors import UserError


def test_an_objective_has_a_metric_a_sign_and_a_limit() -> None:
    assert parse_objective(" p99.9_ttft_ms <= 5e2 ") == Objective("p99.9_ttft_ms", "<=", 500.0)
    assert parse_objective("slo_attainment>=0.99", ["slo_attainment"]).met_by(0.99)
    objectives = [parse_objective(text) for text in ("p95_ttft_ms<=1", "mean_tpot_ms<=1")]
    assert percentiles_of(objectives) == {95.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("p99_ttft_ms", "--slo p99_ttft_ms: expected METRIC<=NUMBER or METRIC>=NUMBER"),
        ("p99_ttft_ms=500", "--slo p99_ttft_ms=500: expected METRIC<=NUMBER"),
        ("p99_ttft<=500", "--slo p99_ttft<=500: no metric 'p99_ttft'; nearest: p99_ttft_ms"),
        ("p99_ttft_ms<=fast", "--slo p99_ttft_ms<=fast: 'fast' is not a number"),
        ("p99_ttft_ms<=nan", "--slo p99_ttft_ms<=nan: expected a finite number"),
        ("p100_ttft_ms<=1", "--slo p100_ttft_ms<=1: expected a percentile between 0 and 100"),
    ],
)
def test_a_wrong_objective_is_refused(text: str, message: str) -> None:
    with pytest.raises(UserError) as error:
        parse_objective(text)
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([410, 420, 430], "meets"),  # 420 ± 25
        ([570, 580, 590], "misses"),
        ([480, 490, 500], "unresolved"),  # 490 ± 25
        ([500, 500, 500], "meets"),  # no spread: the interval is a point
        ([100], "unresolved"),  # a single seed has no interval
    ],
)
def test_a_verdict_needs_the_interval_on_one_side(values: list[float], verdict: str) -> None:
    objective = parse_objective("p99_ttft_ms<=500")
    assert judge(objective, [{"p99_ttft_ms": value} for value in values], 0.95).verdict == verdict


def test_the_interval_depends_on_the_confidence() -> None:
    objective, runs = parse_objective("p50_ttft_ms>=10"), [{"p50_ttft_ms": v} for v in (11, 12, 13)]
    assert judge(objective, runs, 0.8).verdict == "meets"  # 12 ± 1.1
    assert judge(objective, runs, 0.95).verdict == "unresolved"  # 12 ± 2.5


def test_requests_that_were_not_served_are_a_miss_and_too_few_are_an_error() -> None:
    objective = parse_objective("p99_ttft_ms<=500")
    served = {"p99_ttft_ms": 1.0}
    cut = {"p99_ttft_ms": None, "unfinished": 7, "completed": 3}
    assert judge(objective, [served, cut], 0.95).verdict == "misses"
    few = {"p99_ttft_ms": None, "unfinished": 0, "completed": 20, "num_requests": 20}
    with pytest.raises(UserError, match="p99_ttft_ms: has no value with 20 requests"):
        judge(objective, [served, few], 0.95)
