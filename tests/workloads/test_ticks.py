import numpy as np
import pytest

from workloads import PoissonArrivals, Streams, Trace, WorkloadError
from workloads.statistics import dispersion
from workloads.ticks import detick, find_tick

RNG = np.random.default_rng


def trace(arrival_s) -> Trace:
    return Trace(arrival_s, np.arange(1, len(arrival_s) + 1), np.ones(len(arrival_s)))


def test_a_coarse_clock_is_found_through_jitter_and_empty_ticks():
    rng = RNG(1)
    moments = np.delete(np.arange(200) * 3.0, [5, 50, 51]) + rng.uniform(-0.003, 0.003, 197)
    arrival_s = np.repeat(moments, rng.integers(1, 20, 197))
    tick = find_tick(arrival_s)
    assert tick.tick_s == pytest.approx(3.0, abs=0.01)
    assert tick.moments == 197
    assert "clock of 3 s" in str(tick)


@pytest.mark.parametrize(
    "arrival_s",
    [
        PoissonArrivals(request_rate=3).times(5000, RNG(1)),
        np.arange(100.0),
        np.repeat(np.cumsum(RNG(1).exponential(1, 500)), 4),
        np.zeros(50),
        np.repeat([0.0, 1.0], 9),
    ],
)
def test_other_arrivals_have_no_clock(arrival_s):
    assert find_tick(arrival_s) is None


@pytest.mark.parametrize("placement", ["uniform", "even"])
def test_requests_stay_in_their_tick_and_in_their_order(placement):
    before = trace(np.repeat([0.0, 3.0, 6.0], [4, 1, 7]))
    after = detick(before, RNG(1), 3.0, placement)
    assert after.prompt_tokens.tolist() == before.prompt_tokens.tolist()
    late = after.arrival_s - before.arrival_s
    assert late.min() >= 0
    assert late.max() <= 3.0
    step = after.provenance["transforms"][0]
    assert (step["name"], step["tick_s"], step["moments"]) == ("detick", 3.0, 3)


def test_even_placement_gives_equal_gaps():
    after = detick(trace([0.0, 0.0, 0.0]), RNG(1), 3.0, "even")
    assert after.arrival_s.tolist() == pytest.approx([0.5, 1.5, 2.5])


def test_nothing_found_and_nonsense_are_told():
    with pytest.raises(WorkloadError, match="no clock found in in memory: expected tick_s"):
        detick(trace([0.0, 1.0]), RNG(1))
    with pytest.raises(WorkloadError, match="tick_s"):
        detick(trace([0.0, 1.0]), RNG(1), 0.0)


@pytest.mark.shared
def test_mooncake_is_poisson_once_its_clock_is_undone(real):
    raw = real("mooncake_fast25/conversation_trace.jsonl.gz")
    (warning,) = raw.provenance["warnings"]
    assert "clock of 3 s (1180 moments, 90% of requests" in warning
    assert dispersion(raw.arrival_s, 1.0) == pytest.approx(7.9, abs=0.1)
    smooth = detick(raw, Streams(1)("detick"))
    assert smooth.provenance["warnings"] == []
    assert smooth.cv == pytest.approx(1.01, abs=0.02)
    figures = [dispersion(smooth.arrival_s, width) for width in (1.0, 10.0, 60.0)]
    assert figures == pytest.approx([1.02, 1.46, 2.8], rel=0.1)
    assert smooth.chains is raw.chains
