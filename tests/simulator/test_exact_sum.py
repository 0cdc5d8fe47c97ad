from math import fsum

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simulator.stats import Floats
from simulator.stats.exact_sum import Total, exact_parts

NUMBERS = st.lists(st.floats(-1e290, 1e290), max_size=30)


@given(NUMBERS)
def test_parts_add_up_to_the_exact_sum(numbers: list[float]) -> None:
    assert fsum(exact_parts(np.array(numbers))) == fsum(numbers)


def total_of(parts: list[Floats]) -> float:
    total = Total()
    for part in parts:
        total.add(part)
    return total.value


@given(NUMBERS, st.lists(st.integers(0, 30), min_size=1), st.integers(0, 99))
def test_neither_order_nor_cuts_change_a_bit(
    numbers: list[float], cuts: list[int], seed: int
) -> None:
    shuffled = np.random.default_rng(seed).permutation(numbers)
    parts = np.split(shuffled, sorted(cuts))
    assert total_of(parts) == fsum(numbers)


def test_a_single_part_is_added_up_by_numpy() -> None:
    part = np.random.default_rng(1).random(1000)
    assert total_of([part]) == float(part.sum())
    assert total_of([]) == 0.0


def test_many_numbers_take_few_parts() -> None:
    numbers = np.random.default_rng(1).lognormal(3, 2, 100_000)
    parts = list(exact_parts(numbers))
    assert fsum(parts) == fsum(numbers)
    assert len(parts) <= 4
