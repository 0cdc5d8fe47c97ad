import pickle

import numpy as np
import pytest

from workloads import Streams, WorkloadError


def draw(rng: np.random.Generator) -> list[int]:
    return rng.integers(2**63, size=4).tolist()


def test_same_name_gives_the_same_fresh_stream():
    streams = Streams(seed=3)
    first = streams("arrivals")
    draw(first)
    assert draw(streams("arrivals")) == draw(Streams(3)("arrivals"))


@pytest.mark.parametrize(
    "other",
    [
        Streams(4)("arrivals"),
        Streams(3, 1)("arrivals"),
        Streams(3)("lengths"),
        Streams(3)("arrivals", 0),
        Streams(3)("arrivals", 1),
    ],
)
def test_any_difference_gives_another_stream(other):
    assert draw(other) != draw(Streams(3)("arrivals"))


def test_keys_are_not_interchangeable():
    streams = Streams(3)
    drawn = [draw(streams("think", *keys)) for keys in [(1, 2), (2, 1), (1, 2, 0), (1,), (12,)]]
    assert len({tuple(numbers) for numbers in drawn}) == len(drawn)


def test_streams_of_different_names_are_uncorrelated():
    streams = Streams(11)
    table = np.array([streams(f"client {i}").standard_normal(4000) for i in range(30)])
    correlations = np.corrcoef(table)[np.triu_indices(30, 1)]
    assert np.abs(correlations).max() < 4.5 / np.sqrt(4000)


def test_first_numbers_are_pinned():
    """A change of the naming scheme changes every result: it must not pass unnoticed."""
    assert Streams(0)("arrivals").bit_generator.random_raw(2).tolist() == [
        7544248005038603076,
        12084672006428783468,
    ]


def test_streams_pickle_and_compare():
    assert pickle.loads(pickle.dumps(Streams(1, 2))) == Streams(1, 2)


@pytest.mark.parametrize("seed", [-1, 2**128, 1.5, True, "7", None])
def test_bad_seed_is_refused(seed):
    with pytest.raises(WorkloadError, match="seed"):
        Streams(seed)


def test_bad_key_is_refused():
    with pytest.raises(WorkloadError, match="key"):
        Streams(1)("think", -1)
