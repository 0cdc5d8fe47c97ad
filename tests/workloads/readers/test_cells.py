import pytest

from workloads.readers.cells import BadCell, decimal, timestamps, whole_number


@pytest.mark.parametrize(
    ("text", "number"),
    [("12", 12), ("12.0", 12), ("12.", 12), (" 12 ", 12), ("+12", 12), ("007", 7)],
)
def test_whole_numbers_are_read(text, number):
    assert whole_number(text) == number


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("0", "zero"),
        ("-0", "zero"),
        ("-3", "negative"),
        ("-3.0", "negative"),
        ("12.5", "not a whole number"),
        ("1e3", "not a whole number"),
        ("nan", "not a number"),
        ("inf", "not a number"),
        ("1e999", "not a number"),
        ("True", "not a number"),
        ("1_000", "not a number"),
        ("0x10", "not a number"),
        ("١٢", "not a number"),
        ("99999999999999999999", "too large"),
    ],
)
def test_other_lengths_are_refused_with_their_reason(text, reason):
    with pytest.raises(BadCell) as error:
        whole_number(text)
    assert error.value.reason == reason


def test_zero_is_fine_where_it_is_allowed():
    assert whole_number("0", least=0) == 0


@pytest.mark.parametrize(("text", "number"), [("0.0", 0.0), ("4.314579", 4.314579), ("1e3", 1e3)])
def test_seconds_are_read(text, number):
    assert decimal(text) == number


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        ("nan", "not a number"),
        ("inf", "not a number"),
        ("1_0", "not a number"),
        ("x", "not a number"),
        ("-0.5", "negative"),
    ],
)
def test_other_seconds_are_refused(text, reason):
    with pytest.raises(BadCell) as error:
        decimal(text)
    assert error.value.reason == reason


@pytest.mark.parametrize(
    "text",
    [
        "2023-11-16 18:15:46.6805900",
        "2023-11-16 18:15:46.680590000",
        "2023-11-16T18:15:46.68059",
    ],
)
def test_all_digits_of_a_time_count(text):
    assert timestamps()(text) == 1_700_158_546_680_590_000


def test_ninth_digit_is_kept():
    read = timestamps()
    assert read("2023-11-16 18:15:46.000000001") - read("2023-11-16 18:15:46") == 1


@pytest.mark.parametrize(
    "text",
    [
        "2024-05-12T10:00:00Z",
        "2024-05-12 10:00:00+00:00",
        "2024-05-12 12:30:00+02:30",
        "2024-05-12 07:00:00-0300",
    ],
)
def test_offsets_from_utc_are_taken_off(text):
    assert timestamps()(text) == 1_715_508_000_000_000_000


@pytest.mark.parametrize(
    "text",
    [
        "never",
        "2023-02-31 00:00:00",
        "2023-11-16",
        "18:15:46",
        "2023-11-16 25:00:00",
        "2023-11-16 18:15:46.1234567890",
        "2023-11-16 18:15:60",
        "NaT",
        "nan",
        "1700158546",
    ],
)
def test_other_times_are_refused(text):
    with pytest.raises(BadCell) as error:
        timestamps()(text)
    assert error.value.reason == "not a time"


def test_naive_and_aware_times_do_not_mix():
    read = timestamps()
    read("2024-05-12 10:00:00")
    with pytest.raises(BadCell) as error:
        read("2024-05-12 10:00:00Z")
    assert error.value.reason == "mixed time zones"
    assert timestamps()("2024-05-12 10:00:00Z")
