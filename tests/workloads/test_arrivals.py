import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from workloads import (
    ARRIVALS,
    ArrivalSpec,
    DeterministicArrivals,
    GammaArrivals,
    HyperexponentialArrivals,
    PoissonArrivals,
    WeibullArrivals,
)
from workloads.gaps import HyperexponentialGaps, weibull_shape
from workloads.statistics import dispersion
from workloads.streams import Streams

N = 200_000
SPEC = TypeAdapter(ArrivalSpec)

PROCESSES = [
    PoissonArrivals(request_rate=3.0),
    DeterministicArrivals(request_rate=3.0),
    DeterministicArrivals(request_rate=3.0, start="equilibrium"),
    *(
        GammaArrivals(request_rate=0.7, cv=cv, start=start)
        for cv in (0.25, 1.0, 3.0, 10.0)
        for start in ("equilibrium", "ordinary")
    ),
    *(
        law(request_rate=0.7, cv=cv, start=start)
        for law in (WeibullArrivals, HyperexponentialArrivals)
        for cv in (1.0, 2.5)
        for start in ("equilibrium", "ordinary")
    ),
    WeibullArrivals(request_rate=0.7, cv=0.4),
]


def rng(seed: int = 1) -> np.random.Generator:
    return Streams(seed)("arrivals")


@pytest.mark.parametrize("process", PROCESSES, ids=repr)
def test_offered_rate_is_the_rate_asked_for(process):
    times = process.times(N, rng())
    rate = (N - 1) / (times[-1] - times[0])
    assert abs(rate / process.rate - 1) <= 4 * process.cv / np.sqrt(N) + 1e-12


@pytest.mark.parametrize("process", PROCESSES, ids=repr)
def test_gap_cv_is_the_cv_asked_for(process):
    gaps = np.diff(process.times(N, rng()))
    cv = process.cv
    # By the delta method with the third and fourth moments of the sample.
    unit = gaps / gaps.mean()
    influence = ((unit - 1) ** 2 - cv**2 * (2 * unit - 1)) / (2 * cv) if cv else np.zeros(1)
    assert abs(gaps.std() / gaps.mean() - cv) <= 5 * influence.std() / np.sqrt(N) + 1e-9


@pytest.mark.parametrize("process", PROCESSES, ids=repr)
def test_times_ascend_from_zero_and_do_not_depend_on_their_number(process):
    times = process.times(1000, rng())
    assert times.dtype == np.float64
    assert times[0] >= 0
    assert np.all(np.diff(times) >= 0)
    assert process.times(10, rng()).tolist() == times[:10].tolist()
    assert process.times(0, rng()).size == 0


def count_bias(process, horizon: float = 10.0, seeds: int = 4000) -> float:
    """Mean count in [0, horizon) minus rate·horizon, in standard errors."""
    n = int(process.rate * horizon * 30)
    counts = np.array(
        [np.searchsorted(process.times(n, rng(seed)), horizon) for seed in range(seeds)]
    )
    assert counts.max() < n
    return (counts.mean() - process.rate * horizon) / (counts.std(ddof=1) / np.sqrt(seeds))


@pytest.mark.parametrize("law", [GammaArrivals, WeibullArrivals, HyperexponentialArrivals])
def test_equilibrium_start_is_unbiased(law):
    assert abs(count_bias(law(request_rate=2.0, cv=3.0))) < 4


def test_equilibrium_of_a_regular_process_is_unbiased():
    assert abs(count_bias(WeibullArrivals(request_rate=2.0, cv=0.4))) < 4


def test_ordinary_start_delivers_too_many():
    process = GammaArrivals(request_rate=2.0, cv=3.0, start="ordinary")
    assert count_bias(process) > 10


def test_ordinary_excess_tends_to_its_limit():
    """Renewal theory: E N(t) - rate·t tends to (cv² - 1)/2."""
    process = GammaArrivals(request_rate=1.0, cv=3.0, start="ordinary")
    horizon, seeds = 200.0, 4000
    counts = [np.searchsorted(process.times(900, rng(seed)), horizon) for seed in range(seeds)]
    error = 4 * np.std(counts) / np.sqrt(seeds)
    assert abs(np.mean(counts) - horizon - 4.0) < error


def test_poisson_counts_have_dispersion_one():
    times = PoissonArrivals(request_rate=5.0).times(N, rng())
    counts = np.bincount(times.astype(np.int64))[:-1]
    assert abs(counts.var() / counts.mean() - 1) < 4 * np.sqrt(2 / counts.size)


@pytest.mark.parametrize(
    ("cv", "shape"),
    [(0.5, 2.1013), (1, 1), (1.5, 0.6848), (2, 0.5427), (3, 0.4113), (5, 0.3113), (10, 0.2332)],
)
def test_weibull_shape_is_the_tabulated_one(cv, shape):
    assert weibull_shape(cv) == pytest.approx(shape, abs=5e-5)
    assert SPEC.validate_python({"request_rate": 1, "shape": shape}).cv == pytest.approx(
        cv, rel=1e-3
    )


def test_weibull_survives_a_very_large_cv():
    gaps = np.diff(WeibullArrivals(request_rate=1.0, cv=50.0).times(1000, rng()))
    assert np.all(np.isfinite(gaps))
    assert np.all(gaps >= 0)


def test_hyperexponential_means_are_balanced():
    """Each of the two laws brings half of the time: p/(2p) = (1 - p)/(2(1 - p))."""
    gaps = HyperexponentialGaps(3.0).draw(N, rng())
    share = (1 + np.sqrt(8 / 10)) / 2
    rates = HyperexponentialGaps(3.0)._rates
    assert rates.tolist() == pytest.approx([2 * share, 2 * (1 - share)])
    second = share * 2 / rates[0] ** 2 + (1 - share) * 2 / rates[1] ** 2
    assert second - 1 == pytest.approx(9.0)
    assert gaps.mean() == pytest.approx(1.0, abs=4 * 3 / np.sqrt(N))


@pytest.mark.parametrize("cv", [0.5, 3.0])
@pytest.mark.parametrize("law", [GammaArrivals, WeibullArrivals])
def test_dispersion_tends_to_the_square_of_the_cv(law, cv):
    times = law(request_rate=1.0, cv=cv).times(400_000, rng())
    width = 200.0 * max(cv, 1)
    number = times[-1] / width
    assert dispersion(times, width) == pytest.approx(cv**2, rel=5 * np.sqrt(2 / number) + 0.03)


def test_gaps_are_not_clamped():
    gaps = np.diff(GammaArrivals(request_rate=1.0, cv=10.0).times(N, rng()))
    assert gaps.max() > 300
    assert gaps.min() < 1e-12


def test_burstiness_is_the_gamma_shape():
    spec = SPEC.validate_python({"request_rate": 2, "burstiness": 0.25})
    assert spec == GammaArrivals(request_rate=2, cv=2.0)
    assert SPEC.validate_python({"request_rate": 2, "smoothness": 4}).cv == 0.5


def test_kind_is_found_and_a_number_is_a_poisson_rate():
    assert SPEC.validate_python(4) == PoissonArrivals(request_rate=4)
    assert SPEC.validate_python({"request_rate": 4}).kind == "poisson"
    assert SPEC.validate_python({"request_rate": 4, "cv": 2}).kind == "gamma"


@pytest.mark.parametrize("process", PROCESSES, ids=repr)
def test_spec_survives_a_round_trip(process):
    assert SPEC.validate_python(process.model_dump()) == process
    assert hash(process) == hash(process.model_copy())


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ({"kind": "poisson", "request_rate": 0}, "request_rate"),
        ({"kind": "poisson", "request_rate": -1}, "request_rate"),
        ({"kind": "poisson", "request_rate": float("inf")}, "request_rate"),
        ({"kind": "poisson", "request_rate": float("nan")}, "request_rate"),
        ({"kind": "gamma", "request_rate": 0, "cv": 1}, "request_rate"),
        ({"kind": "deterministic", "request_rate": 0}, "request_rate"),
        ({"kind": "gamma", "request_rate": 1}, "exactly one of cv and burstiness"),
        ({"request_rate": 1, "cv": 1, "burstiness": 1}, "exactly one of cv and burstiness"),
        ({"request_rate": 1, "smoothness": 1, "burstiness": 1}, "exactly one"),
        ({"request_rate": 1, "cv": 0}, "cv"),
        ({"request_rate": 1, "cv": float("nan")}, "cv"),
        ({"request_rate": 1, "burstiness": 0}, "burstiness"),
        ({"request_rate": 1, "burstiness": "x"}, "burstiness"),
        ({"request_rate": 1, "rate": 2}, "rate"),
        ({"kind": "weibull", "request_rate": 1}, "cv"),
        ({"request_rate": 1, "shape": 0}, "shape"),
        (
            {"kind": "weibull", "request_rate": 1, "cv": 2, "shape": 1},
            "exactly one of cv and shape",
        ),
        ({"kind": "weibull", "request_rate": 1, "cv": 101}, "cv"),
        ({"request_rate": 1, "shape": 1e-4}, "shape"),
        ({"kind": "hyperexponential", "request_rate": 1, "cv": 0.9}, "cv"),
        ({"kind": "poison", "request_rate": 1}, "poisson"),
        (True, "valid"),
        ("fast", "valid"),
    ],
)
def test_nonsense_is_refused_by_name(data, field):
    with pytest.raises(ValidationError, match=field):
        SPEC.validate_python(data)


def test_something_that_is_not_a_set_of_keys_is_refused():
    with pytest.raises(ValidationError, match="valid dictionary"):
        GammaArrivals.model_validate("fast")


def test_schema_offers_burstiness_instead_of_cv():
    schema = GammaArrivals.model_json_schema()
    assert "burstiness" in schema["properties"]
    assert "cv" not in schema["required"]


def test_table_and_union_name_the_same_kinds():
    mapping = SPEC.json_schema()["discriminator"]["mapping"]
    assert set(mapping) == {law.model_fields["kind"].default for law in ARRIVALS}
