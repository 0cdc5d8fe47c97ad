"""Exact percentiles of numbers that come by in parts, several times, and never stay in memory."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from simulator.stats import Floats, Ints, interpolate, neighbours

_BITS: Final = 16
"""Bits of a number that are looked at in a round."""

_SIGN: Final = np.uint64(1 << 63)

Keys = NDArray[np.uint64]


class OrderStatistics:
    """Percentiles of a list in which each value stands `counts` times.

    In every round all parts come by once, in any order. A round counts which 16 bits follow those
    that are known of the wanted values; after `ROUNDS` of them all bits are known. The numbers are
    those of `simulator.stats.weighted_percentile`.

    Parameters
    ----------
    percentiles : array of shape (m,)
        In 0..100; each takes up to 2 MB.

    Attributes
    ----------
    total : int
        Length of the list, known after a round.
    round : int
        Rounds that are over.

    Examples
    --------
    >>> order = OrderStatistics(np.array([50.0, 100.0]))
    >>> for _ in range(OrderStatistics.ROUNDS):
    ...     order.add(np.array([5.0]), np.array([1]))
    ...     order.add(np.array([1.0]), np.array([3]))
    ...     order.end_round()
    >>> order.percentiles()
    array([1., 5.])
    """

    ROUNDS: Final = 64 // _BITS
    """Times that all parts come by."""

    def __init__(self, percentiles: Floats) -> None:
        self.total = 0
        self._levels = percentiles
        self.round = 0
        self._heads = np.zeros(1, np.uint64)  # bits that wanted values start with, in order
        self._counts = np.zeros(1 << _BITS, np.int64)  # of the next bits, head by head
        self._wanted = np.zeros(0, np.uint64)  # of each wanted value, the bits that are known
        self._ranks = np.zeros(0, np.int64)  # its place among the values that start with them

    def add(self, values: Floats, counts: Ints) -> None:
        """Count the next bits of a part."""
        bits = _keys(values) >> np.uint64(64 - _BITS * (self.round + 1))
        if self.round:
            head = bits >> np.uint64(_BITS)
            place = np.searchsorted(self._heads, head)
            place[place == len(self._heads)] = 0
            found = self._heads[place] == head
            place, bits, counts = place[found], bits[found], counts[found]
            bits = (bits & np.uint64((1 << _BITS) - 1)) | (
                place.astype(np.uint64) << np.uint64(_BITS)
            )
        cells = np.bincount(bits.view(np.int64), counts, len(self._counts))
        self._counts += cells.astype(np.int64)

    def end_round(self) -> None:
        """Add what this round told to the known bits."""
        if self.round == 0:
            self._want()
        before = np.cumsum(self._counts.reshape(-1, 1 << _BITS), axis=1)
        for index, (head, rank) in enumerate(zip(self._wanted, self._ranks, strict=True)):
            row = before[np.searchsorted(self._heads, head)]
            bits = int(np.searchsorted(row, rank, side="right"))
            self._wanted[index] = (head << np.uint64(_BITS)) | np.uint64(bits)
            self._ranks[index] -= row[bits - 1] if bits else 0
        self._heads = np.unique(self._wanted)
        self._counts = np.zeros(len(self._heads) << _BITS, np.int64)
        self.round += 1

    def _want(self) -> None:
        """Say which places in the sorted list hold the percentiles."""
        self.total = int(self._counts.sum())
        lower, upper, _ = neighbours(self._levels, self.total)
        self._ranks = np.concatenate([lower, upper])
        self._wanted = np.zeros(len(self._ranks), np.uint64)

    def percentiles(self) -> Floats:
        """Return the percentiles, after all rounds."""
        low, high = np.split(_values(self._wanted), 2)
        return interpolate(low, high, neighbours(self._levels, self.total)[2])


def _keys(values: Floats) -> Keys:
    """Return whole numbers in the order of the values."""
    bits = (values + 0.0).view(np.uint64)  # -0.0 becomes 0.0
    negative = bits >> np.uint64(63)
    return bits ^ (_SIGN | (np.uint64(0) - negative))


def _values(keys: Keys) -> Floats:
    """Undo `_keys`."""
    negative = (keys >> np.uint64(63)) ^ np.uint64(1)
    return (keys ^ (_SIGN | (np.uint64(0) - negative))).view(np.float64)
