"""What looks wrong about a whole file: above all, a clock read in another unit."""

from collections.abc import Mapping
from typing import Final

from workloads.base import FloatArray
from workloads.ticks import find_tick

_PLAUSIBLE_RATE: Final = (1e-4, 1e5)
_SLOW: Final = 5e-3
_MANY: Final = 1000
_TOKENS_PER_S: Final = 5e6


def about_rate(rows: int, span_s: float, tokens: float) -> list[str]:
    """Say if a rate is so unlikely that the unit of time must be wrong.

    Parameters
    ----------
    rows : int
        Number of requests.
    span_s : float
        Time from the first to the last in seconds.
    tokens : float
        Mean number of prompt and output tokens of a request.

    Returns
    -------
    list of str
        One warning, or none. Warned is below 1e-4 and above 1e5 requests/s; with 1000 rows or
        more also below 0.005 requests/s (milliseconds read as seconds) and above five
        million tokens/s (seconds read as milliseconds).

    Examples
    --------
    >>> about_rate(12_031, 3_536_999.0, 12_378.0)
    ['0.0034 requests/s (over 40.9 days): is the unit of time right? It may be ms']
    >>> about_rate(12_031, 3_536.999, 12_378.0)
    []
    """
    if rows < 2 or not span_s:
        return []
    rate = (rows - 1) / span_s
    slow = rate < _PLAUSIBLE_RATE[0] or (rows >= _MANY and rate < _SLOW)
    fast = rate > _PLAUSIBLE_RATE[1] or (rows >= _MANY and rate * tokens > _TOKENS_PER_S)
    if not (slow or fast):
        return []
    over = f"{span_s / 86_400:.1f} days" if span_s >= 86_400 else f"{span_s:.4g} s"
    hint = " It may be ms" if slow else " It may be s"
    return [f"{rate:.3g} requests/s (over {over}): is the unit of time right?{hint}"]


def about_clock(arrival_s: FloatArray) -> list[str]:
    """Say if the arrivals stand on a coarse clock; one warning, or none."""
    tick = find_tick(arrival_s)
    return [] if tick is None else [str(tick)]


def told_dropped(dropped: Mapping[str, int]) -> str:
    """Say how many rows were dropped, and why; empty if none was."""
    if not dropped:
        return ""
    reasons = ", ".join(f"{count} {reason}" for reason, count in sorted(dropped.items()))
    return f" left: {sum(dropped.values())} dropped ({reasons})"


def exact_seconds(time: float, ticks_per_s: int) -> str:
    """Return a time in ticks as seconds, with all its digits.

    Examples
    --------
    >>> exact_seconds(1_700_158_546_680_590_000, 1_000_000_000)
    '1700158546.680590000'
    """
    if ticks_per_s == 1:
        return repr(time)
    seconds, ticks = divmod(int(time), ticks_per_s)
    return f"{seconds}.{ticks:0{len(str(ticks_per_s)) - 1}d}"
