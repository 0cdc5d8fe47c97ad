"""The solvers reproduce the values that the literature and independent programs give."""

from collections.abc import Callable

import numpy as np
import pytest

from simulator.errors import UserError
from simulator.theory.batch_service import (
    exponential_batches,
    inoue_bounds,
    linear_batches,
    window_only,
)
from simulator.theory.closed import closed_system, throughput_bound
from simulator.theory.continuous import continuous_batches, static_efficiency
from simulator.theory.several_servers import (
    erlang_c,
    mmc_wait,
    power_of_two_sojourn,
    round_robin_sojourn,
    shortest_of_two_sojourn,
)
from simulator.theory.single_server import (
    mg1_wait,
    mm1_preemptive_sjf_sojourn,
    mm1_sjf_wait,
    mm1_sojourn,
    mm1_srpt_sojourn,
    priority_waits,
    processor_sharing_sojourn,
)

# Values with six or five digits are those of the literature and of independent programs, to all
# digits that are printed there.


def test_one_server_one_request_at_a_time() -> None:
    assert mm1_sojourn(0.8, 1.0) == pytest.approx(5.0)
    assert mg1_wait(0.8, 1.0, 1.0) == pytest.approx(2.0)
    assert mg1_wait(0.5, 1.0, 0.9 * 0.5**2 + 0.1 * 5.5**2) == pytest.approx(1.625)
    assert 0.1 + mg1_wait(5.0, 0.1, 0.01) == pytest.approx(0.15)


@pytest.mark.parametrize(
    ("parameters", "size", "sojourn", "utilisation"),
    [
        ((0.1, 1, 1), 1.019164, 2.241285, 0.19812),
        ((0.3, 1, 1), 1.178583, 3.014983, 0.55454),
        ((0.5, 1, 1), 1.597353, 4.417357, 0.81302),
        ((0.9, 1, 1), 9.181855, 22.616985, 0.99802),
        ((1.0, 0.25, 1), 1.665398, 2.180366, 0.85046),
        ((2.0, 0.25, 1), 4.057479, 3.407222, 0.99292),
    ],
)
def test_unlimited_batches_are_inoues(
    parameters: tuple[float, float, float], size: float, sojourn: float, utilisation: float
) -> None:
    rate, alpha, tau0 = parameters
    found = linear_batches(rate, alpha, tau0)
    assert found.size == pytest.approx(size, abs=1e-6)
    assert found.sojourn == pytest.approx(sojourn, abs=1e-6)
    assert found.utilisation == pytest.approx(utilisation, abs=1e-5)
    # Inoue's closed form, with the chance of no arrival during a batch out of the flow balance.
    x = rate * alpha
    none = found.size * (1 - x) - rate * tau0
    second = (found.size * (1 + 2 * rate * x * tau0) + rate**2 * tau0**2) / (1 - x**2)
    area = alpha**2 * second + 2 * alpha * tau0 * found.size + tau0**2
    closed = rate * area / (2 * found.size) + alpha * second / found.size + tau0
    assert 0 < none < 1
    assert closed == pytest.approx(found.sojourn, rel=1e-6)


@pytest.mark.parametrize(
    ("parameters", "light", "heavy"),
    [
        ((0.1, 1, 1), 2.242424, 2.727273),
        ((0.3, 1, 1), 3.054945, 3.406593),
        ((0.5, 1, 1), 4.666667, 4.666667),
        ((0.9, 1, 1), 28.526316, 22.631579),
        ((1.0, 0.25, 1), 2.5, 2.3),
        ((2.0, 0.25, 1), 5.416667, 3.416667),
    ],
)
def test_inoues_bounds_are_above_the_mean(
    parameters: tuple[float, float, float], light: float, heavy: float
) -> None:
    assert inoue_bounds(*parameters) == pytest.approx((light, heavy), abs=1e-6)
    assert linear_batches(*parameters).sojourn <= min(light, heavy) + 1e-6


@pytest.mark.parametrize(
    ("parameters", "size", "sojourn"),
    [
        ((0.5, 1, 1, 8), 1.597316, 4.416733),
        ((0.5, 1, 1, 4), 1.590504, 4.419154),
        ((0.5, 0.25, 1, 4), 1.170928, 1.699913),
        ((1, 0.25, 1, 4), 1.661278, 2.195443),
        ((1.5, 0.25, 1, 8), 2.556948, 2.707397),
        ((1.8, 0.25, 1, 8), 3.361502, 3.104622),
        ((2, 0, 1, 4), 2.126475, 1.516960),
        ((0.8, 0, 1, 1), 1.0, 3.0),
    ],
)
def test_capped_batches(
    parameters: tuple[float, float, float, int], size: float, sojourn: float
) -> None:
    found = linear_batches(*parameters)
    assert found.size == pytest.approx(size, abs=1e-6)
    assert found.sojourn == pytest.approx(sojourn, abs=1e-6)


@pytest.mark.parametrize(
    ("parameters", "sojourn"),
    [
        ((1.5, 1, 2), 3.770070),
        ((3, 1, 4), 3.552499),
        ((0.5, 1, 4), 1.435186),
        ((6.4, 1, 8), 3.956710),
        ((0.8, 1, 1), 5.0),
    ],
)
def test_exponential_batches(parameters: tuple[float, float, int], sojourn: float) -> None:
    assert exponential_batches(*parameters).sojourn == pytest.approx(sojourn, abs=1e-6)


def test_every_second_request() -> None:
    found = [round_robin_sojourn(rate, 1.0) for rate in (0.8, 0.9)]
    assert found == pytest.approx([3.843980, 7.588284], abs=1e-6)


def test_a_timer_alone() -> None:
    assert window_only(0.5, 4.0) == pytest.approx((3.0, 2.666667), abs=1e-6)
    assert window_only(2.0, 1.0) == pytest.approx((3.0, 0.666667), abs=1e-6)


def test_length_aware_orders() -> None:
    assert mm1_srpt_sojourn(0.8, 1.0) == pytest.approx(2.35277, abs=1e-5)
    assert mm1_srpt_sojourn(0.5, 1.0) == pytest.approx(1.42537, abs=1e-5)
    assert mm1_preemptive_sjf_sojourn(0.8, 1.0) == pytest.approx(2.65890, abs=1e-5)
    assert mm1_sjf_wait(0.8, 1.0) == pytest.approx(1.88222, abs=1e-5)
    assert 1 + mm1_sjf_wait(0.8, 1.0) == pytest.approx(2.88222, abs=1e-5)
    assert processor_sharing_sojourn(0.8, 1.0) == pytest.approx(mm1_sojourn(0.8, 1.0))
    # In other units of time, all are the same law.
    assert mm1_srpt_sojourn(80, 100) == pytest.approx(2.35277 / 100, rel=1e-5)


@pytest.mark.parametrize(
    ("servers", "load", "chance", "wait"),
    [(3, 2, 0.444444, 0.444444), (2, 1.6, 0.711111, 1.777778), (8, 6.4, 0.457645, 0.286028)],
)
def test_several_servers_with_one_queue(
    servers: int, load: float, chance: float, wait: float
) -> None:
    assert erlang_c(servers, load) == pytest.approx(chance, abs=1e-6)
    assert mmc_wait(load, 1.0, servers) == pytest.approx(wait, abs=1e-6)
    assert 1 / 2 + mmc_wait(1.6, 2.0, 1) == pytest.approx(mm1_sojourn(1.6, 2.0))


@pytest.mark.parametrize(
    ("load", "sojourn"), [(0.5, 1.265686), (0.8, 1.947363), (0.9, 2.614057), (0.95, 3.383046)]
)
def test_the_power_of_two_choices(load: float, sojourn: float) -> None:
    assert power_of_two_sojourn(load, 1.0) == pytest.approx(sojourn, abs=1e-6)
    assert sojourn < mm1_sojourn(load, 1.0)


def test_routers_stand_between_one_queue_and_chance() -> None:
    for load in (0.5, 0.8):
        central = 1 + mmc_wait(2 * load, 1.0, 2)
        shortest = shortest_of_two_sojourn(load, 1.0)
        turns, chance = round_robin_sojourn(load, 1.0), mm1_sojourn(load, 1.0)
        assert central < shortest < turns < chance
    assert round_robin_sojourn(0.8, 1.0, servers=1) == pytest.approx(5.0)


def test_priorities_keep_the_work_of_first_come_first_served() -> None:
    rates, means, moments = [0.2, 0.3, 0.1], [1.0, 0.5, 2.0], [2.0, 0.5, 5.0]
    waits = priority_waits(rates, means, moments)
    assert waits == sorted(waits)
    loads = [rate * mean for rate, mean in zip(rates, means, strict=True)]
    moment = sum(rate * m for rate, m in zip(rates, moments, strict=True)) / sum(rates)
    fcfs = mg1_wait(sum(rates), sum(loads) / sum(rates), moment)
    work = sum(load * wait for load, wait in zip(loads, waits, strict=True))
    assert work == pytest.approx(fcfs * sum(loads))


def test_static_batches_wait_for_their_longest_member() -> None:
    assert static_efficiency(8) == pytest.approx(0.367937, abs=1e-6)
    assert static_efficiency(1) == 1
    lengths = np.random.default_rng(1).exponential(100, 200_000)
    assert static_efficiency(8, lengths) == pytest.approx(static_efficiency(8), rel=0.01)


def test_continuous_batches_have_known_limits() -> None:
    assert continuous_batches(1.5, 0.25, 1, 1, 8) == pytest.approx(linear_batches(1.5, 0.25, 1, 8))
    short = continuous_batches(2.0, 0.0, 0.005, 200, 3)
    assert short.sojourn == pytest.approx(1 + mmc_wait(2.0, 1.0, 3), rel=1e-3)
    shared = continuous_batches(0.5, 0.01, 0.0, 100, 60)
    assert shared.sojourn == pytest.approx(processor_sharing_sojourn(0.5, 1.0), rel=1e-4)


def test_a_threshold_of_one_is_none_and_one_of_the_cap_gives_full_batches() -> None:
    assert linear_batches(1.5, 0.25, 1, 8, 1) == linear_batches(1.5, 0.25, 1, 8)
    full = linear_batches(1.5, 0.25, 1, 4, 4)
    assert full.size == pytest.approx(4.0)
    assert full.utilisation == pytest.approx(1.5 * (0.25 + 1 / 4))


def test_a_threshold_agrees_with_a_program_without_events() -> None:
    rng = np.random.default_rng(1)
    arrivals = np.cumsum(rng.exponential(2.0, 40_000))
    first, free, total, batches = 0, 0.0, 0.0, 0
    while first + 2 <= len(arrivals):
        start = max(free, arrivals[first + 1])
        size = min(4, int(np.searchsorted(arrivals, start, "right")) - first)
        free = start + 1 + 0.25 * size
        total += (free - arrivals[first : first + size]).sum()
        first, batches = first + size, batches + 1
    found = linear_batches(0.5, 0.25, 1, 4, 2)
    assert found.size == pytest.approx(first / batches, rel=0.01)
    assert found.sojourn == pytest.approx(total / first, rel=0.02)


def test_closed_systems_by_mean_value_analysis() -> None:
    think, queue = 7.0, 0.0
    for clients in range(1, 31):
        sojourn = 1 + queue
        throughput = clients / (think + sojourn)
        queue = throughput * sojourn
        found = closed_system(clients, think, 1.0)
        assert found.sojourn == pytest.approx(sojourn)
        assert found.throughput == pytest.approx(throughput)
        assert found.throughput <= throughput_bound(clients, think, 1.0, 1.0)


@pytest.mark.parametrize(
    "call",
    [
        lambda: mm1_sojourn(1.0, 1.0),
        lambda: mg1_wait(2.0, 0.5, 1.0),
        lambda: linear_batches(1.0, 1.0, 1.0),
        lambda: linear_batches(1.0, 0.0, 1.0, 4, 5),
        lambda: exponential_batches(4.0, 1.0, 4),
        lambda: continuous_batches(1.0, 0.1, 0.0, 10, 5),
        lambda: erlang_c(0, 0.5),
        lambda: mmc_wait(2.0, 1.0, 2),
        lambda: power_of_two_sojourn(1.0, 1.0),
        lambda: closed_system(0, 1.0, 1.0),
        lambda: closed_system(1, 0.0, 1.0),
        lambda: static_efficiency(0),
    ],
)
def test_what_has_no_steady_state_is_refused(call: Callable[[], object]) -> None:
    with pytest.raises(UserError, match="expected"):
        call()
