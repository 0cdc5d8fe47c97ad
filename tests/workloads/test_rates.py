import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from workloads.rates import DayRate, LinearRate, RateSpec, SinusoidRate, Spike, StepRate, WithSpikes

SPEC = TypeAdapter(RateSpec)
PROFILES = [
    StepRate(rates=(1, 0, 3, 0), width_s=5),
    StepRate(rates=(0, 2), width_s=1),
    DayRate(rates=tuple(range(24)), start_hour=20),
    LinearRate(times_s=(0, 10, 20, 50), rates=(0, 4, 4, 0)),
    LinearRate(times_s=(0, 1, 2, 3), rates=(0, 0, 1, 0)),
    SinusoidRate(mean_rate=2, amplitude=2, length_s=60, phase=1.0),
    SinusoidRate(mean_rate=2, amplitude=0, length_s=60),
]
FUNCTIONS = [
    *PROFILES,
    WithSpikes(PROFILES[0], (Spike(start_s=3, duration_s=9, factor=5),)),
    WithSpikes(
        PROFILES[5],
        (
            Spike(start_s=0, duration_s=10, factor=0),
            Spike(start_s=30, duration_s=40, factor=2),
            Spike(start_s=50, duration_s=10, factor=3),
        ),
    ),
]


@pytest.mark.parametrize("rate", FUNCTIONS, ids=lambda rate: type(rate).__name__)
def test_inverse_undoes_the_integral(rate):
    numbers = np.concatenate(([0.0], np.sort(np.random.default_rng(1).uniform(0, 500, 5000))))
    times = rate.inverse(numbers)
    assert np.all(np.diff(times) >= 0)
    assert times[0] >= 0
    np.testing.assert_allclose(rate.integral(times), numbers, atol=1e-6, rtol=1e-9)


@pytest.mark.parametrize("rate", PROFILES, ids=lambda rate: type(rate).__name__)
def test_integral_is_that_of_the_rate(rate):
    times = np.linspace(0, 3 * rate.period_s, 7)
    assert rate.integral(times)[-1] == pytest.approx(3 * rate.mean * rate.period_s)
    assert np.all(np.diff(rate.integral(np.linspace(0, rate.period_s, 1001))) >= -1e-12)


def test_rates_are_where_they_belong():
    assert np.diff(PROFILES[0].integral(np.arange(0, 25, 5.0))).tolist() == [5, 0, 15, 0]
    day = PROFILES[2].integral(np.arange(6) * 3600.0)
    assert (np.diff(day) / 3600).tolist() == [20, 21, 22, 23, 0]
    line = PROFILES[3].integral(np.array([5.0, 10.0, 20.0, 50.0]))
    assert line.tolist() == [5, 20, 60, 120]


def test_spikes_multiply_where_they_overlap():
    spikes = (Spike(start_s=2, duration_s=4, factor=3), Spike(start_s=4, duration_s=4, factor=2))
    rate = WithSpikes(StepRate(rates=(1,), width_s=1), spikes)
    times = np.array([0.0, 2, 4, 6, 8, 10])
    assert np.diff(rate.integral(times)).tolist() == [2, 6, 12, 4, 2]


@pytest.mark.parametrize("rate", PROFILES, ids=repr)
def test_spec_survives_a_round_trip(rate):
    assert SPEC.validate_python(rate.model_dump()) == rate
    assert hash(rate) == hash(rate.model_copy())


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"kind": "steps", "rates": [1, -1], "width_s": 1}, "rates"),
        ({"kind": "steps", "rates": [0, 0], "width_s": 1}, "rate greater than 0"),
        ({"kind": "steps", "rates": [], "width_s": 1}, "rates"),
        ({"kind": "steps", "rates": [1], "width_s": 0}, "width_s"),
        ({"kind": "day", "rates": [1] * 23}, "rates"),
        ({"kind": "day", "rates": [1] * 24, "start_hour": 24}, "start_hour"),
        ({"kind": "linear", "times_s": [0, 1], "rates": [1]}, "rates"),
        ({"kind": "linear", "times_s": [1, 2], "rates": [1, 1]}, "ascend from 0"),
        ({"kind": "linear", "times_s": [0, 2, 2], "rates": [1, 1, 1]}, "ascend from 0"),
        ({"kind": "linear", "times_s": [0, 1], "rates": [1, -1]}, "rates"),
        ({"kind": "sinusoid", "mean_rate": 1, "amplitude": 2, "length_s": 1}, "negative"),
        ({"kind": "sinusoid", "mean_rate": 0, "amplitude": 0, "length_s": 1}, "mean_rate"),
    ],
)
def test_nonsense_is_refused_by_name(data, told):
    with pytest.raises(ValidationError, match=told):
        SPEC.validate_python(data)
