"""The largest value up to which something holds, found by doubling and halving."""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from math import ceil, log2

Search = Generator[float, bool, "Bracket"]
"""Yields values to try, is sent whether they are good, and returns where good ends."""


@dataclass(frozen=True)
class Bracket:
    """Where good ends.

    Attributes
    ----------
    good : float or None
        The best value that is good; None if none in the range is.
    bad : float or None
        Its neighbour that is not good; None if all in the range are.
    """

    good: float | None
    bad: float | None


def highest(start: float, low: float, high: float, tolerance: float) -> Search:
    """Search the largest good value, where small values are good and large ones are not.

    Parameters
    ----------
    start, low, high : float
        Where to begin, and the range, above 0.
    tolerance : float
        The search ends when good and bad differ by no more than this fraction.

    Examples
    --------
    >>> run_search(highest(1, 0.1, 100, 0.05), lambda value: value <= 7)
    Bracket(good=6.727, bad=7.025)
    """

    def middle(good: float, bad: float) -> float | None:
        if bad / good <= 1 + tolerance:
            return None
        return _round((good * bad) ** 0.5)

    def harder(value: float) -> float:
        return _round(min(2 * value, high))

    def easier(value: float) -> float:
        return _round(max(value / 2, low))

    return _search(start, harder, easier, middle)


def lowest_whole(start: int, low: int, high: int) -> Search:
    """Search the smallest good whole number, where large numbers are good and small ones are not.

    Examples
    --------
    >>> run_search(lowest_whole(1, 1, 64), lambda value: value >= 5)
    Bracket(good=5, bad=4)
    """

    def middle(good: float, bad: float) -> float | None:
        return None if good - bad <= 1 else (good + bad) // 2

    def harder(value: float) -> float:
        return max(value // 2, low)

    def easier(value: float) -> float:
        return min(2 * value, high)

    return _search(start, harder, easier, middle)


def _search(
    start: float,
    harder: Callable[[float], float],
    easier: Callable[[float], float],
    middle: Callable[[float, float], float | None],
) -> Search:
    """Step until one value is good and one is not, then halve what lies between."""
    good: float | None = None
    bad: float | None = None
    value = start
    while good is None or bad is None:
        if (yield value):
            good = value
            following = harder(value)
        else:
            bad = value
            following = easier(value)
        if (good is None or bad is None) and following == value:
            return Bracket(good, bad)
        value = following
    while (between := middle(good, bad)) is not None:
        if (yield between):
            good = between
        else:
            bad = between
    return Bracket(good, bad)


def run_search(search: Search, is_good: Callable[[float], bool]) -> Bracket:
    """Run a search whose questions are answered at once."""
    try:
        value = next(search)
        while True:
            value = search.send(is_good(value))
    except StopIteration as stop:
        found: Bracket = stop.value
        return found


def most_probes(start: float, low: float, high: float, tolerance: float | None) -> int:
    """Return how many values a search asks for at most; no tolerance: among whole numbers.

    Examples
    --------
    >>> most_probes(1, 0.01, 100, 0.02)
    14
    """
    widest = max(start / low, high / start, 1.0)
    steps = ceil(log2(widest)) + 1
    halvings = log2(high) if tolerance is None else log2(log2(2) / log2(1 + tolerance))
    return steps + max(0, ceil(halvings))


def _round(value: float) -> float:
    """Return a value to four significant digits."""
    return float(f"{value:.4g}")
