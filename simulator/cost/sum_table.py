"""A table over the integers of a sum of named parts, continued by straight lines."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from simulator.cost.profile import FloatArray


@dataclass(frozen=True)
class SumTable:
    """Seconds by an integer count, with the parts they consist of.

    Attributes
    ----------
    total : list of float
        Seconds at index 0, 1, 2, ...; the sum of the parts in their order.
    parts : array (parts, counts)
        The parts, seconds.
    slopes : array (parts,)
        Seconds per further count of each part, beyond the last entry.

    Examples
    --------
    >>> table = tabulate([lambda n: 2.0 * n, lambda n: 1.0 + 0.0 * n], last=3)
    >>> table.total, table.at(5), table.parts_at(5)
    ([0.0, 3.0, 5.0, 7.0], 11.0, [10.0, 1.0])
    """

    total: list[float]
    parts: FloatArray
    slopes: FloatArray

    @property
    def last(self) -> int:
        """Greatest tabulated count."""
        return len(self.total) - 1

    def at(self, count: int) -> float:
        """Return the seconds of any count of at least 0."""
        if count <= self.last:
            return self.total[count]
        return sum(self.parts_at(count))

    def with_step(self, free: int, seconds: float) -> "SumTable":
        """Return the table with a further part: `seconds` at every count greater than `free`.

        Examples
        --------
        >>> tabulate([lambda n: 1.0 * n], last=3).with_step(free=2, seconds=0.5).total
        [0.0, 1.0, 2.0, 3.5]
        """
        step = np.where(np.arange(self.last + 1) > free, seconds, 0.0)
        if free >= self.last:
            raise ValueError(f"expected a step inside the table of {self.last}, got {free}")
        total = np.array(self.total) + step
        parts = np.concatenate((self.parts, step[None]))
        return SumTable(total.tolist(), parts, np.append(self.slopes, 0.0))

    def parts_at(self, count: int) -> list[float]:
        """Return the seconds of each part at any count of at least 0."""
        column = self.parts[:, min(count, self.last)]
        if count <= self.last:
            return [float(part) for part in column]
        beyond = count - self.last
        return [
            float(part + slope * beyond) for part, slope in zip(column, self.slopes, strict=True)
        ]


def tabulate(functions: Sequence[Callable[[FloatArray], FloatArray]], last: int) -> SumTable:
    """Tabulate a sum of functions at 1 .. last, with 0 at 0.

    Beyond the table each part continues on the straight line through its value there and at
    twice the count.

    Parameters
    ----------
    functions : sequence of callable
        Seconds of each part for an ascending array of counts.
    last : int
        Greatest tabulated count, at least 1.

    Returns
    -------
    SumTable
        Values rounded by `stable`.

    Examples
    --------
    >>> tabulate([lambda n: 0.5 * n], last=2).total
    [0.0, 0.5, 1.0]
    """
    counts = np.append(np.arange(1, last + 1, dtype=np.float64), 2.0 * last)
    values = stable(np.stack([function(counts) for function in functions]))
    slopes = (values[:, -1] - values[:, -2]) / last
    parts = np.concatenate((np.zeros((len(functions), 1)), values[:, :-1]), axis=1)
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    return SumTable(total.tolist(), parts, slopes)


def stable(seconds: FloatArray) -> FloatArray:
    """Round to 24 significant bits, so that mathematical libraries that differ in the last agree.

    Parameters
    ----------
    seconds : array
        Values.

    Returns
    -------
    array
        The nearest single-precision numbers.

    Examples
    --------
    >>> float(stable(np.array([0.5]))[0])
    0.5
    """
    return seconds.astype(np.float32).astype(np.float64)
