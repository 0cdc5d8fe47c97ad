"""Sums of numbers that come in parts, such as the blocks of a table that memory does not hold."""

from collections.abc import Iterator
from math import frexp, fsum, ldexp
from typing import Final

import numpy as np

from simulator.stats import Floats

_DOUBLINGS: Final = 20
"""At most ``2**_DOUBLINGS - 2`` numbers are added up at a time."""


class Total:
    """The sum of numbers that come in parts.

    Of a single part it is NumPy's sum. Of more it is the exact sum, rounded once, which does not
    depend on their order or on where one part ends and the next begins.

    Examples
    --------
    >>> total = Total()
    >>> for part in ([1e16, 1.0], [1.0, -1e16]):
    ...     total.add(np.array(part))
    >>> total.value
    2.0
    """

    __slots__ = ("_first", "_parts")

    def __init__(self) -> None:
        self._first: Floats | None = None
        self._parts: list[float] | None = None

    def add(self, values: Floats) -> None:
        """Add a part; the first one must not change before the sum is read."""
        if self._first is None:
            self._first = values
            return
        if self._parts is None:
            self._parts = list(exact_parts(self._first))
            self._first = values[:0]
        self._parts.extend(exact_parts(values))

    @property
    def value(self) -> float:
        """The sum so far."""
        if self._parts is not None:
            return fsum(self._parts)
        return 0.0 if self._first is None else float(self._first.sum())


def exact_parts(values: Floats) -> Iterator[float]:
    """Yield a few numbers whose sum is that of many, without any rounding.

    Each round takes the leading digits off all numbers. They are multiples of one power of two and
    so few that their sum is exact.

    Parameters
    ----------
    values : array
        Finite, below 1e300.

    References
    ----------
    S. M. Rump, T. Ogita, S. Oishi, "Accurate floating-point summation part I: faithful rounding",
    SIAM Journal on Scientific Computing 31 (2008), section 3 (`ExtractVector`).

    Examples
    --------
    >>> fsum(exact_parts(np.full(10, 0.1))), sum([0.1] * 10)
    (1.0, 0.9999999999999999)
    """
    size = 1 << (_DOUBLINGS - 1)
    for first in range(0, len(values), size):
        rest = values[first : first + size]
        while (most := float(np.abs(rest).max())) > 0:
            cut = ldexp(1.0, frexp(most)[1] + _DOUBLINGS)
            leading = (rest + cut) - cut
            yield float(leading.sum())
            rest = rest - leading
