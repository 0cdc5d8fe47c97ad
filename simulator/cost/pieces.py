"""A measured curve as straight pieces that a step can look up."""

from bisect import bisect_right
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from simulator.cost.profile import FloatArray
from simulator.cost.sum_table import stable

TOLERANCE = 1e-3
"""Largest relative distance of a piece from the curve at the points it skips."""

_PER_OCTAVE = 128
_LONGEST_PIECE = 32
_GRID: FloatArray = np.append(
    np.outer(2.0 ** np.arange(18), 1.0 + np.arange(_PER_OCTAVE) / _PER_OCTAVE).ravel(), 2.0**18
)
"""Contexts at which a curve is evaluated: 1 .. 262144 tokens, exact in binary."""


class DecodeRow(NamedTuple):
    """Decode attention of all layers at one batch size, piecewise linear in the mean context.

    Attributes
    ----------
    starts : list of float
        First mean context of each piece, tokens; starts at 0.
    base, slope : list of float
        The piece is `base + slope * mean`, seconds.
    max_context : float
        Longest mean context within the calibrated range, tokens.
    """

    starts: list[float]
    base: list[float]
    slope: list[float]
    max_context: float

    def at(self, mean: float) -> float:
        """Return the seconds at a mean context of at least 0 tokens."""
        piece = bisect_right(self.starts, mean) - 1
        return self.base[piece] + self.slope[piece] * mean

    def along(self, means: FloatArray) -> FloatArray:
        """Return the seconds at ascending mean contexts; the same bits as `at` gives."""
        first = bisect_right(self.starts, means.item(0)) - 1
        last = bisect_right(self.starts, means.item(-1)) - 1
        if first == last:
            return self.base[first] + self.slope[first] * means
        starts = np.array(self.starts[first + 1 : last + 1])
        piece = np.searchsorted(starts, means, side="right")
        base = np.array(self.base[first : last + 1])
        slope = np.array(self.slope[first : last + 1])
        seconds: FloatArray = base[piece] + slope[piece] * means
        return seconds


def cut_into_pieces(curve: Callable[[FloatArray], FloatArray], max_context: float) -> DecodeRow:
    """Return a curve over the context as linear pieces that never fall.

    Parameters
    ----------
    curve : callable
        Seconds for an ascending array of contexts in tokens, at least 1.
    max_context : float
        Longest calibrated context, tokens.

    Returns
    -------
    DecodeRow
        Pieces within `TOLERANCE` of the curve; the first is continued down to 0 tokens, the last
        without end.

    Examples
    --------
    >>> row = cut_into_pieces(lambda tokens: 1.0 + 0.5 * tokens, max_context=8.0)
    >>> row.base[0], set(row.slope)
    (1.0, {0.5})
    """
    values = stable(never_falling(curve(_GRID)))
    kept = _corners(values)
    contexts, seconds = _GRID[kept], values[kept]
    slope = np.diff(seconds) / np.diff(contexts)
    base = seconds[:-1] - slope * contexts[:-1]
    starts = [0.0, *contexts[1:-1].tolist()]
    return DecodeRow(starts, base.tolist(), slope.tolist(), max_context)


def never_falling(seconds: FloatArray) -> FloatArray:
    """Lower single slow measurements, so that a longer context never costs less.

    Parameters
    ----------
    seconds : array
        Times over an ascending size.

    Returns
    -------
    array
        At each size the smallest time of that size or a greater one.

    Examples
    --------
    >>> never_falling(np.array([1.0, 9.0, 3.0, 4.0])).tolist()
    [1.0, 3.0, 3.0, 4.0]
    """
    lowered: FloatArray = np.minimum.accumulate(seconds[::-1])[::-1]
    return lowered


def _corners(values: FloatArray) -> NDArray[np.intp]:
    """Return the grid points to keep: halve every piece that strays too far from the values."""
    kept = np.zeros(len(values), dtype=bool)
    kept[::_LONGEST_PIECE] = True
    starts, length = np.arange(0, len(values) - 1, _LONGEST_PIECE), _LONGEST_PIECE
    while length > 1:
        first, last = starts[:, None], starts[:, None] + length
        inside = first + np.arange(1, length)
        position = (_GRID[inside] - _GRID[first]) / (_GRID[last] - _GRID[first])
        line = values[first] + (values[last] - values[first]) * position
        strays = (np.abs(line - values[inside]) > TOLERANCE * values[inside]).any(axis=1)
        length //= 2
        kept[starts[strays] + length] = True
        starts = np.concatenate((starts[strays], starts[strays] + length))
    return np.flatnonzero(kept)
