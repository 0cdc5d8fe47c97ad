"""What may stand in one cell of a trace file, and what it means."""

import math
import re
from collections.abc import Callable
from datetime import datetime, timedelta
from functools import lru_cache

TimeReader = Callable[[str], float]

_LARGEST = 2**31 - 1
_WHOLE = re.compile(r"[+-]?\d+(\.0*)?", re.ASCII)
_TIMESTAMP = re.compile(
    r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|([+-])(\d\d):?(\d\d))?",
    re.ASCII,
)
_POWERS = tuple(10 ** (9 - digits) for digits in range(10))
_DAY_ZERO = datetime(1970, 1, 1)
_SECOND = timedelta(seconds=1)


class BadCell(ValueError):
    """A cell, or a whole row, that cannot be used.

    Attributes
    ----------
    reason : str
        Short and the same for all cells of this kind: the key under which they are counted.
    expected : str
        What should have stood there.
    column : str or None
        The column, once known.
    value : str or None
        The text, once known.
    """

    def __init__(self, reason: str, expected: str) -> None:
        super().__init__(reason)
        self.reason = reason
        self.expected = expected
        self.column: str | None = None
        self.value: str | None = None


def whole_number(text: str, least: int = 1) -> int:
    """Read a count of tokens.

    Parameters
    ----------
    text : str
        Digits; a fraction of zeros (``12.0``) is accepted.
    least : int, default 1
        Smallest number accepted.

    Returns
    -------
    int
        The number.

    Raises
    ------
    BadCell
        Empty, not a number, fractional, too small or beyond 2**31 - 1.

    Examples
    --------
    >>> whole_number("12.0")
    12
    """
    number = int(text) if text.isascii() and text.isdigit() else _unusual(text.strip(), least)
    if number < least:
        reason = "zero" if number == 0 else "negative" if number < 0 else "too small"
        raise BadCell(reason, _expected(least))
    if number > _LARGEST:
        raise BadCell("too large", f"a whole number of at most {_LARGEST}")
    return number


def _unusual(text: str, least: int) -> int:
    match = _WHOLE.fullmatch(text)
    if match:
        return int(text.partition(".")[0])
    if not text:
        raise BadCell("empty", _expected(least))
    reason = "not a number" if math.isnan(_float(text)) else "not a whole number"
    raise BadCell(reason, _expected(least))


def _float(text: str) -> float:
    """Return a finite number in plain digits, NaN for anything else."""
    try:
        number = float(text) if text.isascii() and "_" not in text else math.nan
    except ValueError:
        number = math.nan
    return number if math.isfinite(number) else math.nan


def _expected(least: int) -> str:
    return f"a whole number of at least {least}"


def decimal(text: str) -> float:
    """Read a finite number of at least 0, in decimal or exponent notation.

    Parameters
    ----------
    text : str
        The cell.

    Returns
    -------
    float
        The number.

    Raises
    ------
    BadCell
        Empty, not a number, infinite or negative.

    Examples
    --------
    >>> decimal("1e-3")
    0.001
    """
    number = _float(text)
    if math.isnan(number):
        raise BadCell("empty" if not text.strip() else "not a number", "a number of at least 0")
    if number < 0:
        raise BadCell("negative", "a number of at least 0")
    return number


def decimal_or_none(text: str) -> float:
    """Read a number as `decimal` does; an empty cell is NaN.

    Examples
    --------
    >>> decimal_or_none(" "), decimal_or_none("0.5")
    (nan, 0.5)
    """
    return decimal(text) if text.strip() else math.nan


def in_units(units_per_s: int) -> Callable[[], TimeReader]:
    """Make a maker of readers of times that are plain numbers.

    Examples
    --------
    >>> in_units(1000)()("1500")
    1.5
    """
    if units_per_s == 1:
        return lambda: decimal
    return lambda: lambda text: decimal(text) / units_per_s


def timestamps() -> Callable[[str], int]:
    """Make a reader of ISO 8601 timestamps that keeps all digits.

    Returns
    -------
    callable
        Takes a cell such as ``2023-11-16 18:15:46.6805900`` or ``2024-05-12T00:00:01Z`` and
        returns nanoseconds since 1970. Up to nine fractional digits count. The first cell
        decides whether all have an offset from UTC or none.

    Examples
    --------
    >>> read = timestamps()
    >>> read("2024-05-12 00:00:01.5+00:00") - read("2024-05-12 00:00:01+00:00")
    500000000
    """
    with_offset: bool | None = None

    def read(text: str) -> int:
        nonlocal with_offset
        match = _TIMESTAMP.fullmatch(text) or _TIMESTAMP.fullmatch(text.strip())
        if match is None:
            raise BadCell("empty" if not text.strip() else "not a time", _EXPECTED_TIME)
        moment, fraction, offset, sign, hours, minutes = match.groups()
        nanoseconds = _seconds(moment) * 1_000_000_000
        if with_offset is None:
            with_offset = offset is not None
        elif with_offset != (offset is not None):
            expected = "an" if with_offset else "no"
            raise BadCell("mixed time zones", f"{expected} offset from UTC, as in the first row")
        if sign is not None:
            nanoseconds -= _east_of_utc(sign, hours, minutes) * 1_000_000_000
        return nanoseconds + int(fraction) * _POWERS[len(fraction)] if fraction else nanoseconds

    return read


_EXPECTED_TIME = "a time such as 2023-11-16 18:15:46.6805900"


@lru_cache(maxsize=64)
def _seconds(text: str) -> int:
    try:
        return (datetime.fromisoformat(text) - _DAY_ZERO) // _SECOND
    except ValueError:
        raise BadCell("not a time", _EXPECTED_TIME) from None


def _east_of_utc(sign: str, hours: str, minutes: str) -> int:
    offset = int(hours) * 3600 + int(minutes) * 60
    return -offset if sign == "-" else offset
