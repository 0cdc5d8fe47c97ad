import pytest

from workloads.readers.cells import BadCell
from workloads.readers.json_values import ChainCheck, lookup, number, parse, whole


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1', "not JSON"),
        ("never", "not JSON"),
        ("[1]", "not an object"),
        ("3", "not an object"),
        ('{"a": 1, "a": 2}', "duplicate key"),
        ('{"b": {"a": 1, "a": 2}}', "duplicate key"),
        ('{"a": NaN}', "not a number"),
        ('{"a": -Infinity}', "not a number"),
        ("[" * 100_000, "not JSON"),
    ],
)
def test_other_lines_are_refused_with_their_reason(text, reason):
    with pytest.raises(BadCell) as error:
        parse(text)
    assert error.value.reason == reason
    assert error.value.value


@pytest.mark.parametrize("value", [3, 3.0])
def test_whole_numbers_are_read(value):
    assert whole({"n": value}, "n") == 3


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (None, "missing"),
        (0, "zero"),
        (-2, "negative"),
        (1.5, "not a whole number"),
        ("3", "not a number"),
        (True, "not a number"),
        ([3], "not a number"),
        (2**31, "too large"),
        (1e300, "too large"),
    ],
)
def test_other_counts_are_refused(value, reason):
    with pytest.raises(BadCell) as error:
        whole({"n": value}, "n")
    assert error.value.reason == reason
    assert error.value.column == "n"


@pytest.mark.parametrize(
    ("value", "reason"),
    [(None, "missing"), ("3000", "not a number"), (False, "not a number"), (-0.5, "negative")],
)
def test_other_times_are_refused(value, reason):
    with pytest.raises(BadCell) as error:
        number({"t": value}, "t")
    assert error.value.reason == reason


def test_a_dot_leads_into_an_inner_object():
    row = {"a": {"b": 3}, "c.d": 4}
    assert (lookup(row, "a.b"), lookup(row, "c.d"), lookup(row, "a.x")) == (3, 4, None)


def test_chains_are_kept_trimmed_or_left_empty():
    check = ChainCheck("ids", 10)
    assert check({"ids": [1, 2]}, 15) == [1, 2]
    assert check({"ids": [1, 2, 3]}, 15) == [1, 2]
    assert check({"ids": []}, 15) == check({}, 15) == []
    assert check.trimmed == 1
    assert ChainCheck("ids", 10, partial=False)({"ids": [1]}, 15) == [1]


@pytest.mark.parametrize(
    ("ids", "reason"),
    [
        ("1", "not block ids"),
        ([1, -1], "not block ids"),
        ([1, 2.0], "not block ids"),
        ([1, True], "not block ids"),
        ([1], "too few blocks"),
        ([4, 4], "repeated block"),
        ([2, 1], "block at another depth"),
        ([9, 1], "block at another depth"),
    ],
)
def test_other_chains_are_refused(ids, reason):
    check = ChainCheck("ids", 10)
    check({"ids": [1, 2]}, 20)
    with pytest.raises(BadCell) as error:
        check({"ids": ids}, 15)
    assert error.value.reason == reason


def test_ids_that_are_no_prefix_hashes_may_stand_anywhere():
    check = ChainCheck("ids", 10, prefix_hashes=False)
    assert check({"ids": [4, 4]}, 20) == [4, 4]
