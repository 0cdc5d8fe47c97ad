"""Samples in parts against the same samples at once, and percentiles against sorting."""

from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.metrics.description import Samples, describe, describe_parts
from simulator.stats import Floats, Ints, weighted_percentile
from simulator.stats.order_statistics import OrderStatistics

PAIRS = st.lists(st.tuples(st.floats(-1e6, 1e6), st.integers(0, 50)), min_size=1, max_size=40)
ANY_FLOATS = st.floats(allow_nan=False, allow_infinity=False)
LEVELS = st.lists(st.floats(0, 100), min_size=1, max_size=5)
CUTS = st.lists(st.integers(0, 40), min_size=1, max_size=6)


def columns(pairs: list[tuple[float, int]]) -> tuple[Floats, Ints]:
    values, counts = zip(*pairs, strict=True)
    return np.array(values, np.float64), np.array(counts, np.int64)


def cut(samples: Samples, cuts: list[int]) -> list[Samples]:
    values, counts = (np.split(column, sorted(cuts)) for column in samples)
    return list(zip(values, counts, strict=True))


@given(st.lists(st.tuples(ANY_FLOATS, st.integers(1, 9)), min_size=1, max_size=40), LEVELS, CUTS)
def test_percentiles_are_those_of_sorting(
    pairs: list[tuple[float, int]], levels: list[float], cuts: list[int]
) -> None:
    samples, wanted = columns(pairs), np.array(levels)
    order = OrderStatistics(wanted)
    for _ in range(OrderStatistics.ROUNDS):
        for part in cut(samples, cuts):
            order.add(*part)
        order.end_round()
    with np.errstate(over="ignore", invalid="ignore"):  # between the largest floats
        found, expected = order.percentiles(), weighted_percentile(*samples, wanted)
    np.testing.assert_array_equal(found, expected)


@given(PAIRS, LEVELS, CUTS, st.integers(0, 99))
def test_parts_are_described_like_the_whole(
    pairs: list[tuple[float, int]], levels: list[float], cuts: list[int], seed: int
) -> None:
    wanted = np.array(levels)
    values, counts = columns(pairs)
    whole = describe(values, counts, wanted)
    order = np.random.default_rng(seed).permutation(len(pairs))
    parts = cut((values[order], counts[order]), cuts)
    found = describe_parts(lambda: [{"x": part} for part in parts], wanted)["x"]
    assert found.number == whole.number
    np.testing.assert_array_equal(found.percentiles, whole.percentiles)
    largest = max(abs(value) for value, _ in pairs)
    close = {"rel": 1e-12, "abs": 1e-12 * largest, "nan_ok": True}
    assert found.mean == pytest.approx(whole.mean, **close)
    assert found.std == pytest.approx(whole.std, **close)


def test_neither_order_nor_cuts_change_a_bit() -> None:
    rng = np.random.default_rng(3)
    values, counts = rng.lognormal(3, 2, 5000), rng.integers(1, 9, 5000)
    levels = np.array([50.0, 99.0])

    def described(order: Ints, size: int) -> object:
        def parts() -> Iterator[Mapping[str, Samples]]:
            for first in range(0, len(order), size):
                rows = order[first : first + size]
                yield {"x": (values[rows], counts[rows])}

        found = describe_parts(parts, levels)["x"]
        return found.number, found.mean, found.std, found.percentiles.tolist()

    straight = np.arange(5000)
    assert described(straight, 100) == described(straight, 999)
    assert described(straight, 100) == described(rng.permutation(5000), 100)


def test_empty_lists_have_no_figures() -> None:
    nothing = (np.array([]), np.array([], np.int64))
    for number in (1, 2):
        parts = [{"x": nothing}] * number
        found = describe_parts(lambda parts=parts: parts, np.array([50.0, 99.0]))["x"]
        assert found.number == 0
        assert np.isnan([found.mean, found.std, *found.percentiles]).all()
