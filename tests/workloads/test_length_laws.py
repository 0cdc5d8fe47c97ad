import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from scipy import stats

from workloads import LENGTHS, LengthSpec
from workloads.length_laws import (
    ExponentialLength,
    GammaLength,
    GeometricLength,
    NormalLength,
    ParetoTailLength,
    QuantileLength,
    ZipfLength,
)

N = 200_000
SPEC = TypeAdapter(LengthSpec)
TAIL = {"mu": 5, "sigma": 1, "threshold": 800, "tail_prob": 0.1, "alpha": 3}
LAWS = [
    {"kind": "exponential", "mean": 300},
    {"kind": "gamma", "mean": 300, "cv": 0.5},
    {"kind": "geometric", "mean": 40},
    {"kind": "normal", "mean": 500, "stdev": 50},
    {"low": 5, "high": 2000, "exponent": 1.2},
    TAIL,
    {"points": [[0, 1], [50, 40], [99, 600], [100, 5000]]},
    {"points": [[0, 1], [50, 40], [99, 600], [100, 5000]], "interpolation": "log"},
    {"weights": [0.3, 0.7], "parts": [5, {"kind": "exponential", "mean": 300}]},
    {"histogram": {10: 0.5, 40: 0.5}},
]


def sample(law, n=N, seed=1):
    return law.sample(n, np.random.default_rng(seed))


@pytest.mark.parametrize("data", LAWS, ids=str)
def test_sample_has_the_mean_and_the_first_do_not_depend_on_their_number(data):
    law = SPEC.validate_python(data)
    drawn = sample(law)
    assert drawn.dtype == np.int64
    assert drawn.min() >= 1
    # Rounding half up and clipping at 1 move a mean by little.
    error = 4 * drawn.std() / np.sqrt(N) + 0.01
    assert abs(drawn.mean() - law.mean) < error
    assert sample(law, 7).tolist() == drawn[:7].tolist()


@pytest.mark.parametrize("data", LAWS, ids=str)
def test_spec_survives_a_round_trip(data):
    law = SPEC.validate_python(data)
    assert SPEC.validate_python(law.model_dump(mode="json")) == law
    assert hash(law) == hash(law.model_copy())


@pytest.mark.parametrize(
    ("law", "cdf"),
    [
        (ExponentialLength(mean=2000), stats.expon(scale=2000).cdf),
        (GammaLength(mean=3000, cv=0.5), stats.gamma(4, scale=750).cdf),
        (NormalLength(mean=9000, stdev=900), stats.norm(9000, 900).cdf),
    ],
)
def test_continuous_laws_are_those_of_the_books(law, cdf):
    drawn = np.sort(sample(law, 20_000))
    assert stats.kstest(drawn + 0.5, lambda x: cdf(x)).statistic < 1.95 / np.sqrt(20_000) + 0.001


def test_geometric_counts_from_one():
    drawn = sample(GeometricLength(mean=4))
    for k in (1, 2, 5):
        expected = 0.25 * 0.75 ** (k - 1)
        assert abs(np.mean(drawn == k) - expected) < 4 * np.sqrt(expected / N)


def test_zipf_has_the_normalising_sum():
    law = ZipfLength(low=3, high=7, exponent=2)
    weights = np.arange(3, 8) ** -2.0
    drawn = sample(law)
    for value, share in zip(range(3, 8), weights / weights.sum(), strict=True):
        assert abs(np.mean(drawn == value) - share) < 4 * np.sqrt(share / N)
    assert ZipfLength(low=2, high=4, exponent=0).mean == 3.0


def test_tail_is_pareto_and_body_is_truncated_lognormal():
    law = ParetoTailLength(**TAIL)
    drawn = sample(law)
    tail = drawn[drawn > 800]
    assert abs(tail.size / N - 0.1) < 4 * np.sqrt(0.09 / N) + 0.001
    assert np.log(tail / 800).mean() == pytest.approx(1 / 3, rel=0.03)
    body = np.log(drawn[drawn <= 800])
    cut = (np.log(800) - 5) / 1
    expected = stats.truncnorm(-np.inf, cut, loc=5, scale=1)
    assert body.mean() == pytest.approx(expected.mean(), abs=0.01)
    infinite = ParetoTailLength(**(TAIL | {"alpha": 0.9}))
    assert infinite.mean == np.inf
    assert sample(infinite.model_copy(update={"max": 10**6, "truncation": "clip"})).max() == 10**6


def test_quantiles_are_the_points():
    law = QuantileLength(points=((0, 10), (50, 100), (90, 1000), (100, 1100)))
    assert np.percentile(sample(law), [50, 90]) == pytest.approx([100, 1000], rel=0.01)


def test_tail_points_keep_the_mean_of_a_heavy_tail():
    """101 points alone inflate it, as a straight line from p99 to the maximum does."""
    values = np.sort(sample(ParetoTailLength(**(TAIL | {"alpha": 1.7}))))
    percents = np.arange(101.0)
    more = [*(99 + np.arange(1, 10) / 10), 99.95, 99.98, 99.99, 99.995, 99.999]
    plain = QuantileLength(
        points=tuple(zip(percents, np.percentile(values, percents), strict=True))
    )
    every = np.sort(np.concatenate((percents, more)))
    fine = QuantileLength(points=tuple(zip(every, np.percentile(values, every), strict=True)))
    assert plain.mean > 1.2 * values.mean()
    assert fine.mean == pytest.approx(values.mean(), rel=0.03)


def test_truncation_of_a_normal_is_stated():
    clipped = sample(NormalLength(mean=10, stdev=20, min=5, max=30, truncation="clip"))
    again = sample(NormalLength(mean=10, stdev=20, min=5, max=30, truncation="resample"))
    assert np.mean(clipped == 5) > 0.3
    assert np.mean(again == 5) < 0.1


def test_parts_of_a_mixture_have_streams_of_their_own():
    parts = [5, {"kind": "exponential", "mean": 300}]
    one = SPEC.validate_python({"weights": [0.3, 0.7], "parts": parts})
    other = SPEC.validate_python({"weights": [0.3, 0.7], "parts": [9, parts[1]]})
    a, b = sample(one), sample(other)
    assert np.array_equal(a[a != 5], b[a != 5])


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"kind": "exponential", "mean": 0}, "mean"),
        ({"kind": "geometric", "mean": 0.5}, "mean"),
        ({"kind": "gamma", "mean": 5, "cv": 0}, "cv"),
        ({"kind": "normal", "mean": 5, "stdev": -1}, "stdev"),
        ({"kind": "normal", "mean": 5, "stdev": 1, "max": 9}, "truncation"),
        ({"low": 5, "high": 4, "exponent": 1}, "low"),
        ({"low": 1, "high": 10**9, "exponent": 1}, "apart"),
        ({"low": 1, "high": 4, "exponent": -1}, "exponent"),
        (TAIL | {"tail_prob": 1}, "tail_prob"),
        (TAIL | {"threshold": 1, "mu": 50}, "threshold"),
        ({"points": [[0, 1], [50, 5]]}, "from 0 to 100"),
        ({"points": [[0, 1], [50, 5], [40, 6], [100, 7]]}, "ascend"),
        ({"points": [[0, 5], [100, 4]]}, "lengths ascend"),
        ({"points": [[0, 0], [100, 4]]}, "points"),
        ({"weights": [0.5, 0.4], "parts": [1, 2]}, "add up to 1"),
        ({"weights": [1], "parts": [1, 2]}, "as many weights"),
        ({"histogram": {}}, "histogram"),
        ({"histogram": {5: 0.5}}, "add up to 1"),
        ({"histogram": {5: 1}, "values": [5]}, "histogram"),
        ({"histogram": {0: 1}}, "values"),
    ],
)
def test_nonsense_is_refused_by_name(data, told):
    with pytest.raises(ValidationError, match=told):
        SPEC.validate_python(data)


def test_table_and_union_name_the_same_kinds():
    mapping = SPEC.json_schema()["discriminator"]["mapping"]
    assert set(mapping) == {law.model_fields["kind"].default for law in LENGTHS}
