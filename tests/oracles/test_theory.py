"""The solvers reproduce the values that the literature and independent programs give."""

import pytest

from tests.oracles.theory import (
    erlang2_m1_sojourn,
    exponential_batches,
    linear_batches,
    mg1_wait,
    mm1_sojourn,
    window_only,
)


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
    found = [erlang2_m1_sojourn(rate, 1.0) for rate in (0.8, 0.9)]
    assert found == pytest.approx([3.843980, 7.588284], abs=1e-6)


def test_a_timer_alone() -> None:
    assert window_only(0.5, 4.0) == pytest.approx((3.0, 2.666667), abs=1e-6)
    assert window_only(2.0, 1.0) == pytest.approx((3.0, 0.666667), abs=1e-6)
