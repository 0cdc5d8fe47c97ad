import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError
from scipy import stats

from workloads import (
    LENGTHS,
    EmpiricalLength,
    FixedLength,
    LengthSpec,
    LognormalLength,
    Streams,
    UniformLength,
    WorkloadError,
)

N = 200_000
SPEC = TypeAdapter(LengthSpec)

LAWS = [
    FixedLength(tokens=7),
    UniformLength(low=1, high=6),
    LognormalLength(mean=500, cv=1.2),
    EmpiricalLength(values=(5, 50, 500), probs=(0.5, 0.3, 0.2)),
]


def rng(seed: int = 1) -> np.random.Generator:
    return Streams(seed)("prompt_tokens")


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_sample_mean_is_the_mean_asked_for(law):
    lengths = law.sample(N, rng())
    # Rounding moves the mean by less than 0.01 of a token for the smooth law here.
    assert abs(lengths.mean() - law.mean) <= 4 * lengths.std() / np.sqrt(N) + 0.01


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_sample_is_whole_positive_and_reproducible(law):
    lengths = law.sample(1000, rng())
    assert lengths.dtype == np.int64
    assert lengths.min() >= 1
    assert lengths.tolist() == law.sample(1000, rng()).tolist()
    assert law.sample(10, rng()).tolist() == lengths[:10].tolist()
    assert law.sample(0, rng()).size == 0


def test_uniform_includes_both_ends_equally():
    counts = np.bincount(UniformLength(low=1, high=6).sample(N, rng()))[1:]
    assert counts.size == 6
    assert np.abs(counts - N / 6).max() < 4.5 * np.sqrt(N * 5 / 36)


def test_lognormal_follows_its_law_after_rounding_half_up():
    law = LognormalLength(mean=40, cv=1.5)
    theory = stats.lognorm(s=law.sigma, scale=np.exp(law.mu))
    lengths = law.sample(N, rng())
    for k in (1, 2, 5, 20, 100, 500):
        share = theory.cdf(k + 0.5)
        error = 4.5 * np.sqrt(share * (1 - share) / N)
        assert abs((lengths <= k).mean() - share) < error


def test_lognormal_has_the_cv_asked_for():
    law = LognormalLength(mean=1000, cv=0.5)
    lengths = law.sample(N, rng())
    assert lengths.std() / lengths.mean() == pytest.approx(0.5, rel=0.02)


def test_three_ways_to_give_a_lognormal_agree():
    law = LognormalLength(mean=300, cv=2.0)
    p99 = stats.lognorm(s=law.sigma, scale=np.exp(law.mu)).ppf(0.99)
    by_quantiles = SPEC.validate_python({"median": np.exp(law.mu), "p99": p99})
    by_logarithm = SPEC.validate_python({"mu": law.mu, "sigma": law.sigma})
    for other in (by_quantiles, by_logarithm):
        assert other.mean == pytest.approx(300, rel=1e-9)
        assert other.cv == pytest.approx(2.0, rel=1e-9)


def test_clip_puts_the_mass_at_the_bounds():
    law = LognormalLength(mean=100, cv=1.0, min=20, max=200, truncation="clip")
    theory = stats.lognorm(s=law.sigma, scale=np.exp(law.mu))
    lengths = law.sample(N, rng())
    assert (lengths.min(), lengths.max()) == (20, 200)
    assert (lengths == 200).mean() == pytest.approx(theory.sf(199.5), abs=0.005)
    assert (lengths == 20).mean() == pytest.approx(theory.cdf(20.5), abs=0.005)


def test_resample_spreads_it_in_proportion():
    law = LognormalLength(mean=100, cv=1.0, min=20, max=200, truncation="resample")
    theory = stats.lognorm(s=law.sigma, scale=np.exp(law.mu))
    lengths = law.sample(N, rng())
    inside = theory.cdf(200.5) - theory.cdf(19.5)
    assert (lengths.min(), lengths.max()) == (20, 200)
    for k in (20, 50, 100, 199):
        expected = (theory.cdf(k + 0.5) - theory.cdf(19.5)) / inside
        assert (lengths <= k).mean() == pytest.approx(expected, abs=0.005)


def test_resample_does_not_depend_on_the_number_asked_for():
    law = LognormalLength(mean=100, cv=1.0, max=90, truncation="resample")
    assert law.sample(50, rng()).tolist() == law.sample(5000, rng())[:50].tolist()


def test_resample_within_impossible_bounds_stops():
    law = LognormalLength(mean=100, cv=0.1, min=5000, max=6000, truncation="resample")
    with pytest.raises(WorkloadError, match="1 draw in 1,000"):
        law.sample(10, rng())


def test_empirical_probabilities_are_met():
    lengths = LAWS[3].sample(N, rng())
    for value, share in ((5, 0.5), (50, 0.3), (500, 0.2)):
        assert abs((lengths == value).mean() - share) < 4 * np.sqrt(share * (1 - share) / N)


def test_empirical_table_comes_from_a_file(write):
    weighted = write("probability,tokens\n0.25,10\n0.75,20\n", "a.csv")
    equal = write("tokens\r\n10\r\n20\r\n", "b.csv")
    assert EmpiricalLength(path=weighted).mean == 17.5
    assert EmpiricalLength(path=equal).mean == 15.0
    assert set(EmpiricalLength(path=equal).sample(50, rng()).tolist()) == {10, 20}


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("token\n1\n", "column tokens: missing; did you mean 'token'"),
        ("tokens\n", "no rows"),
        ("tokens\n5\n0\n", "line 3, column tokens: got '0'"),
        ("tokens,probability\n5,0.5\n6\n", "line 3, column probability: got ''"),
        ("tokens,probability\n5,0.5\n6,0.4\n", "column probability: got 0.9"),
    ],
)
def test_bad_table_is_refused_with_its_place(write, content, told):
    with pytest.raises(WorkloadError, match=told) as error:
        EmpiricalLength(path=write(content)).sample(1, rng())
    assert "\n" not in str(error.value)


def test_kind_is_found_and_a_number_is_a_fixed_length():
    assert SPEC.validate_python(512) == FixedLength(tokens=512)
    assert SPEC.validate_python({"low": 1, "high": 2}).kind == "uniform"
    assert SPEC.validate_python({"mean": 5, "cv": 1}).kind == "lognormal"
    assert SPEC.validate_python({"values": [1]}).kind == "empirical"


@pytest.mark.parametrize("law", LAWS, ids=repr)
def test_spec_survives_a_round_trip(law):
    assert SPEC.validate_python(law.model_dump()) == law
    assert SPEC.validate_json(law.model_dump_json()) == law


@pytest.mark.parametrize(
    ("data", "field"),
    [
        (0, "tokens"),
        (12.5, "tokens"),
        ({"low": 5, "high": 4}, "low"),
        ({"low": 0, "high": 4}, "low"),
        ({"mean": 0, "cv": 1}, "mean"),
        ({"mean": 5, "cv": 0}, "cv"),
        ({"mean": 5}, "one pair"),
        ({"mean": 5, "cv": 1, "mu": 2, "sigma": 1}, "one pair"),
        ({"kind": "lognormal"}, "one pair"),
        ({"kind": "lognormal", "median": 10, "p99": 5}, "p99"),
        ({"kind": "lognormal", "median": None, "p99": 5}, "median"),
        ({"kind": "lognormal", "mu": 1, "sigma": 100}, "sigma"),
        ({"kind": "lognormal", "mu": "x", "sigma": 1}, "mu"),
        ({"kind": "lognormal", "mu": [1], "sigma": 1}, "mu"),
        ({"mean": 5, "cv": 1, "max": 10}, "truncation"),
        ({"mean": 5, "cv": 1, "min": 11, "max": 10, "truncation": "clip"}, "min"),
        ({"values": [1, 2], "probs": [0.5, 0.4]}, "add up to 1"),
        ({"values": [1, 2], "probs": [1.0]}, "as many"),
        ({"values": [1, 2], "probs": [1.5, -0.5]}, "probs"),
        ({"values": []}, "values"),
        ({"values": [1], "path": "a.csv"}, "exactly one"),
        ({"kind": "empirical"}, "exactly one"),
        ({"values": [0]}, "values"),
    ],
)
def test_nonsense_is_refused_by_name(data, field):
    with pytest.raises(ValidationError, match=field):
        SPEC.validate_python(data)


def test_something_that_is_not_a_set_of_keys_is_refused():
    with pytest.raises(ValidationError, match="valid dictionary"):
        LognormalLength.model_validate("long")


def test_table_and_union_name_the_same_kinds():
    mapping = SPEC.json_schema()["discriminator"]["mapping"]
    assert set(mapping) == {law.model_fields["kind"].default for law in LENGTHS}
