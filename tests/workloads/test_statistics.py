import numpy as np
import pytest

from workloads import PoissonArrivals, Streams, Trace
from workloads.statistics import (
    correlation,
    counts,
    coupling,
    dispersion,
    queueing,
    rank_correlation,
    waits,
)


def test_counts_start_at_the_first_arrival_and_leave_out_the_rest():
    assert counts([5.0, 5.1, 6.0, 8.9], 1.0).tolist() == [2, 1, 0]


def test_dispersion_is_variance_over_mean_and_takes_no_memory_for_empty_bins():
    times = np.cumsum(np.random.default_rng(2).exponential(0.4, 500))
    number = counts(times, 1.0)
    assert dispersion(times, 1.0) == pytest.approx(number.var() / number.mean())
    assert dispersion([0.0, 1e12, 2e12], 1.0) == pytest.approx(1.0)


def test_poisson_has_dispersion_one_at_every_width():
    times = PoissonArrivals(request_rate=5.0).times(100_000, Streams(1)("arrivals"))
    for width in (0.1, 1.0, 10.0):
        n = int(times[-1] / width)
        assert abs(dispersion(times, width) - 1) < 4 * np.sqrt(2 / n + 1 / (5 * width * n))


def test_too_few_bins_give_no_number():
    assert np.isnan(dispersion([0.0, 1.0, 4.0], 1.0))
    assert np.isnan(coupling(np.array([0.0, 1.0]), np.array([1, 2])))
    assert np.isnan(correlation([1, 1], [1, 2]))


def test_ties_share_their_mean_rank():
    from scipy.stats import spearmanr

    rng = np.random.default_rng(1)
    x, y = rng.integers(0, 9, 200), rng.integers(0, 9, 200)
    assert rank_correlation(x, y) == pytest.approx(spearmanr(x, y).statistic)


def test_coupling_sees_longer_requests_in_busy_bins():
    arrival_s = np.sort(np.concatenate([np.arange(0, 600, 10.0), np.arange(300, 360, 1.0)]))
    lengths = np.where((arrival_s >= 300) & (arrival_s < 360), 100, 10)
    assert coupling(arrival_s, lengths) == pytest.approx(1.0)


def test_waits_are_those_of_the_recursion():
    rng = np.random.default_rng(1)
    arrival_s, service_s = np.cumsum(rng.exponential(1, 500)), rng.exponential(0.8, 500)
    wait = 0.0
    for row, found in enumerate(waits(arrival_s, service_s)):
        assert found == pytest.approx(wait, abs=1e-9)
        if row < 499:
            wait = max(0.0, wait + service_s[row] - (arrival_s[row + 1] - arrival_s[row]))


def test_deterministic_service_waits_as_theory_has_it():
    """M/D/1 at load 0.7: rho/(2(1 - rho)) services on average."""
    means = []
    for replication in range(200):
        times = PoissonArrivals(request_rate=1.0).times(5000, Streams(1, replication)("arrivals"))
        mean, _ = queueing(times, np.ones(5000, np.int64), per_unit_s=0.7)
        means.append(mean)
    error = 4 * np.std(means) / np.sqrt(len(means))
    assert abs(np.mean(means) - 0.7 * 0.7 / (2 * 0.3)) < error + 0.01


def test_the_account_holds_the_figures_of_what_is_left():
    rng = np.random.default_rng(1)
    trace = Trace(np.cumsum(rng.exponential(0.5, 400)), rng.integers(1, 50, 400), [3] * 400)
    fast = trace.rescale(request_rate=8.0)
    figures = fast.provenance["figures"]
    assert figures["rate"] == pytest.approx(8.0)
    assert figures["cv"] == pytest.approx(trace.provenance["figures"]["cv"]) == trace.cv
    assert figures["dispersion_1_s"] == dispersion(fast.arrival_s, 1.0)
    assert figures["dispersion_60_s"] is None
    assert figures["mean_prompt_tokens"] == trace.prompt_tokens.mean()
    assert set(Trace([0.0], [1], [1]).provenance["figures"].values()) == {None, 1.0}
