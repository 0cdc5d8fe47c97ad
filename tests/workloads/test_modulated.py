import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from workloads import (
    ArrivalSpec,
    BatchArrivals,
    GammaArrivals,
    MmppArrivals,
    OnOffArrivals,
    PoissonArrivals,
    Streams,
    SuperposedArrivals,
    VaryingArrivals,
)
from workloads.compound import superpose
from workloads.rates import SinusoidRate, Spike, StepRate
from workloads.statistics import counts, dispersion

SPEC = TypeAdapter(ArrivalSpec)
STEPS = StepRate(rates=(1, 0, 5), width_s=20)
PROCESSES = [
    VaryingArrivals(profile=STEPS),
    VaryingArrivals(profile=STEPS, request_rate=7, cv=2),
    VaryingArrivals(profile=SinusoidRate(mean_rate=3, amplitude=2, length_s=50)),
    MmppArrivals(rates=(10, 2), sojourns_s=(5, 15)),
    MmppArrivals(rates=(0, 4), sojourns_s=(1, 2), sojourn_cvs=(0.5, 2), cv=1.5),
    MmppArrivals(rates=(10, 2), sojourns_s=(5, 15), start="ordinary"),
    OnOffArrivals(request_rate=2.5, mean_on_s=3, mean_off_s=8, cv_on=0.6, cv=2.2),
    BatchArrivals(arrivals=PoissonArrivals(request_rate=2), batch_size={"low": 1, "high": 5}),
    SuperposedArrivals(
        parts=(
            PoissonArrivals(request_rate=1),
            GammaArrivals(request_rate=2, cv=3),
            OnOffArrivals(request_rate=3, mean_on_s=2, mean_off_s=4),
        )
    ),
]


def rng(seed: int = 1) -> np.random.Generator:
    return Streams(seed)("arrivals")


@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: process.kind)
def test_times_ascend_and_do_not_depend_on_their_number(process):
    times = process.times(3000, rng())
    assert np.all(np.diff(times) >= 0)
    assert times[0] >= 0
    assert process.times(10, rng()).tolist() == times[:10].tolist()
    assert process.times(0, rng()).size == 0


@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: process.kind)
def test_long_run_rate_is_the_rate_asked_for(process):
    rates = [2000 / process.times(2000, rng(seed))[-1] for seed in range(100)]
    error = 4 * np.std(rates) / np.sqrt(len(rates))
    # n over the n-th arrival overstates the rate by its relative variance.
    assert abs(np.mean(rates) / process.rate - 1) < error / process.rate + np.var(rates) + 0.01


@pytest.mark.parametrize("process", PROCESSES, ids=lambda process: process.kind)
def test_spec_survives_a_round_trip(process):
    assert SPEC.validate_python(process.model_dump(mode="json")) == process
    without_kind = {k: v for k, v in process.model_dump(mode="json").items() if k != "kind"}
    assert SPEC.validate_python(without_kind) == process
    assert hash(process) == hash(process.model_copy())


def test_counts_of_a_varying_rate_are_poisson_with_its_mean():
    """Disjoint bins: mean and variance both equal the integral of the rate."""
    process = VaryingArrivals(profile=STEPS)
    found = np.zeros((2000, 6))
    for seed in range(2000):
        times = process.times(400, rng(seed))
        assert times[-1] > 60
        found[seed] = np.histogram(times, np.arange(0, 61, 10.0))[0]
    expected = np.array([10, 10, 0, 0, 50, 50])
    assert np.all(np.abs(found.mean(0) - expected) <= 4 * np.sqrt(expected / 2000))
    assert np.all(np.abs(found.var(0) - expected) <= 4 * expected * np.sqrt(2.2 / 2000))
    correlations = np.corrcoef(found[:, [0, 1, 4, 5]].T)[np.triu_indices(4, 1)]
    assert np.abs(correlations).max() < 4 / np.sqrt(2000)


def test_time_rescaled_by_the_rate_is_a_unit_poisson_process():
    profile = SinusoidRate(mean_rate=3, amplitude=3, length_s=50)
    gaps = np.sort(np.diff(profile.integral(VaryingArrivals(profile=profile).times(50_000, rng()))))
    distance = np.abs(1 - np.exp(-gaps) - np.arange(1, gaps.size + 1) / gaps.size).max()
    assert distance < 1.95 / np.sqrt(gaps.size)


def test_scaling_the_rate_keeps_the_draws():
    one, two = (VaryingArrivals(profile=STEPS, request_rate=rate) for rate in (2.0, 4.0))
    units = [STEPS.integral(p.times(500, rng())) * p.rate / STEPS.mean for p in (one, two)]
    np.testing.assert_allclose(*units, rtol=1e-9)


def test_variability_at_a_constant_rate_is_local():
    process = VaryingArrivals(profile=STEPS, cv=2.5)
    gaps = np.diff(STEPS.integral(process.times(100_000, rng())))
    assert gaps.std() / gaps.mean() == pytest.approx(2.5, rel=0.05)


def test_spike_multiplies_the_rate():
    spike = Spike(start_s=100, duration_s=50, factor=4)
    process = VaryingArrivals(profile=StepRate(rates=(10,), width_s=1), spikes=(spike,))
    per_50_s = counts(np.concatenate(([0.0], process.times(6000, rng()))), 50.0)[:5]
    assert per_50_s == pytest.approx([500, 500, 2000, 500, 500], rel=0.2)


MMPP = MmppArrivals(rates=(10, 2), sojourns_s=(5, 15))


def test_formula_of_the_dispersion_has_its_limits():
    assert MMPP.dispersion(1e-6) == pytest.approx(1.0, abs=1e-4)
    c = 2 * 64 * (1 / 5) * (1 / 15) / ((1 / 5 + 1 / 15) ** 2 * (10 / 15 + 2 / 5))
    assert MMPP.dispersion(1e9) == pytest.approx(1 + c)


@pytest.mark.parametrize("width", [0.5, 2.0, 10.0, 60.0])
def test_dispersion_of_mmpp_is_the_analytic_one(width):
    values = [dispersion(MMPP.times(20_000, rng(seed)), width) for seed in range(40)]
    error = 4 * np.std(values) / np.sqrt(len(values))
    # The variance within a sample of n bins lacks about one part in n.
    assert abs(np.mean(values) - MMPP.dispersion(width)) < error + MMPP.dispersion(width) * 0.02


def test_stationary_start_of_mmpp_is_unbiased_and_the_ordinary_one_is_not():
    def bias(process):
        number = [np.searchsorted(process.times(300, rng(seed)), 3.0) for seed in range(1500)]
        return (np.mean(number) - 3 * process.rate) / (np.std(number) / np.sqrt(1500))

    assert abs(bias(MMPP)) < 4
    gamma = MmppArrivals(rates=(10, 0), sojourns_s=(5, 15), sojourn_cvs=(0.4, 1.5), cv=2)
    assert abs(bias(gamma)) < 4
    assert bias(MMPP.model_copy(update={"start": "ordinary"})) > 8


def test_on_off_has_its_share_of_silence():
    law = OnOffArrivals(request_rate=9, mean_on_s=10, mean_off_s=30, cv_on=0.5, cv_off=0.5)
    times = np.concatenate([law.times(4000, rng(seed)) + 1e5 * seed for seed in range(20)])
    gaps = np.diff(times)
    silence = gaps[(gaps > 3) & (gaps < 1e4)].sum() / sum(
        np.ptp(law.times(4000, rng(seed))) for seed in range(20)
    )
    assert silence == pytest.approx(0.75, abs=0.05)
    inside = SPEC.validate_python({"rate_on": 36, "mean_on_s": 10, "mean_off_s": 30})
    assert inside.rate == pytest.approx(9)


def test_batches_arrive_together():
    process = PROCESSES[7]
    times = process.times(20_000, rng())
    _, sizes = np.unique(times, return_counts=True)
    assert set(sizes) == {1, 2, 3, 4, 5}
    assert process.rate == 6.0


def test_superposed_parts_do_not_disturb_each_other():
    parts = PROCESSES[8].parts
    times, member = superpose(parts, 5000, rng())
    alone, _ = superpose(parts[:1], 500, rng())
    mine = times[member == 0]
    assert alone[: mine.size].tolist() == mine.tolist()[: alone.size]
    shares = np.bincount(member) / 5000
    assert shares == pytest.approx([1 / 6, 1 / 3, 1 / 2], abs=0.1)


def test_many_independent_processes_together_are_locally_poisson():
    """At large widths the dispersion stays that of one process."""
    parts = tuple(GammaArrivals(request_rate=0.1, cv=0.3) for _ in range(100))
    times, _ = superpose(parts, 100_000, rng())
    gaps = np.diff(times)
    assert gaps.std() / gaps.mean() == pytest.approx(1.0, abs=0.03)
    assert dispersion(times, 100.0) == pytest.approx(0.09, abs=0.05)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"kind": "mmpp", "rates": [0, 0], "sojourns_s": [1, 1]}, "rates"),
        ({"kind": "mmpp", "rates": [-1, 2], "sojourns_s": [1, 1]}, "rates"),
        ({"kind": "mmpp", "rates": [1, 2], "sojourns_s": [1, 0]}, "sojourns_s"),
        ({"kind": "mmpp", "rates": [1, 2], "sojourns_s": [1, 1], "sojourn_cvs": [1, 0]}, "cvs"),
        ({"mean_on_s": 1, "mean_off_s": 1}, "request_rate"),
        ({"mean_on_s": 1, "mean_off_s": 1, "request_rate": 1, "rate_on": 2}, "exactly one"),
        ({"mean_on_s": 0, "mean_off_s": 1, "rate_on": 2}, "mean_on_s"),
        ({"mean_off_s": 1, "rate_on": 2}, "mean_on_s"),
        ({"parts": []}, "parts"),
        ({"arrivals": 2, "batch_size": 0}, "batch_size"),
        ({"profile": {"kind": "steps", "rates": [1], "width_s": 1}, "request_rate": 0}, "rate"),
        ({"kind": "varying", "profile": {"kind": "wave"}}, "sinusoid"),
    ],
)
def test_nonsense_is_refused_by_name(data, told):
    with pytest.raises(ValidationError, match=told):
        SPEC.validate_python(data)
