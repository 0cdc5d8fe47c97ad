"""Interval estimates from independent replications: how long to run, and when to stop.

The interval is the 99.9 % t interval over replications, its half-width at most 1 % of the
theoretical value; never one from within a run.

The estimates use control variates: numbers whose mean is known to be 0 (see
`simulator.theory.measured`). Subtracting a multiple of one moves no mean, right or wrong; it takes
luck out of it. The multiples are those of the regression over the replications, at the price of a
degree of freedom each (Lavenberg and Welch, "A perspective on the use of control variables to
increase the efficiency of Monte Carlo simulations", Management Science 27, 1981).
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import process_time

import numpy as np

CONFIDENCE = 0.999
LARGEST_HALF_WIDTH = 0.01
"""Of the theoretical value."""
ROUNDING = 1e-9
"""Of the theoretical value: what may be lost where all replications give the same number."""
FEWEST, MOST = 20, 200
"""Replications before the first look, and before giving up."""
PER_CONTROL = 3
"""Replications before the first look, for each control."""
GROWTH = 1.25
"""Replications at the next look over those at the last."""


@dataclass(frozen=True)
class Sample:
    """What one replication says: values by name, and controls whose mean is known to be 0."""

    values: dict[str, float]
    controls: tuple[float, ...] = ()
    num_requests: int = 0


@dataclass(frozen=True)
class Estimate:
    """A mean over replications with the half-width of its interval.

    Attributes
    ----------
    value, half_width : float
        In the unit of the value.
    theory : float
        What it should be.
    num_replications, num_requests : int
        What it is made of.
    seconds : float
        Processor time, for all values of the replications together.
    """

    value: float
    half_width: float
    theory: float
    num_replications: int
    num_requests: int
    seconds: float

    @property
    def is_narrow(self) -> bool:
        """Whether the interval is as narrow as the rule asks."""
        return self.half_width <= LARGEST_HALF_WIDTH * abs(self.theory)

    @property
    def agrees(self) -> bool:
        """Whether theory lies within an interval that is narrow enough."""
        rounding = ROUNDING * abs(self.theory)
        return self.is_narrow and abs(self.value - self.theory) <= self.half_width + rounding

    def __str__(self) -> str:
        share = self.half_width / self.theory
        return (
            f"{self.value:.6g} ± {self.half_width:.2g} ({share:.2%}), theory {self.theory:.6g}; "
            f"{self.num_replications} replications, {self.num_requests} requests"
        )


def replicate_until(
    measure: Callable[[int], Sample], theory: Mapping[str, float], first: int = 0
) -> dict[str, Estimate]:
    """Add replications until every interval is narrow enough, or there are `MOST` of them.

    Parameters
    ----------
    measure : callable
        Takes the number of the replication.
    theory : mapping
        Name of a value to what it should be.
    first : int
        Number of the first replication.

    Returns
    -------
    dict
        Name to estimate.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> found = replicate_until(lambda number: Sample({"x": rng.normal(10, 0.05)}), {"x": 10.0})
    >>> found["x"].num_replications, found["x"].agrees
    (20, True)
    """
    started = process_time()
    samples: list[Sample] = []
    look = FEWEST
    while True:
        samples += [measure(first + number) for number in range(len(samples), look)]
        enough = PER_CONTROL * len(samples[0].controls)
        if look < enough:
            look = enough
            continue
        found = {name: estimate(samples, name) for name in theory}
        widest = max(half / abs(theory[name]) for name, (_, half) in found.items())
        if widest <= LARGEST_HALF_WIDTH or look >= MOST:
            break
        look = min(MOST, int(np.ceil(look * GROWTH)))
    seconds = process_time() - started
    number = sum(sample.num_requests for sample in samples)
    return {
        name: Estimate(value, half, theory[name], len(samples), number, seconds)
        for name, (value, half) in found.items()
    }


def estimate(samples: Sequence[Sample], name: str) -> tuple[float, float]:
    """Return mean and half-width of a value, freed of its regression on the controls.

    Parameters
    ----------
    samples : sequence of Sample
        One a replication.
    name : str
        Of the value.

    Examples
    --------
    >>> samples = [Sample({"x": 3 + luck}, (luck,)) for luck in (-1.0, 0.0, 1.0, 2.0)]
    >>> value, half_width = estimate(samples, "x")
    >>> round(value, 6), half_width < 1e-9
    (3.0, True)
    """
    from scipy.special import stdtrit  # quantile of Student's t

    values = np.array([sample.values[name] for sample in samples])
    controls = np.array([sample.controls for sample in samples])
    controls = controls[:, controls.std(axis=0) > 0]
    design = np.column_stack([np.ones(len(values)), controls / controls.std(axis=0)])
    # The first row of the inverse gives the mean at controls of 0. Controls may say the same twice.
    inverse = np.linalg.pinv(design, rcond=1e-6)
    rest = values - design @ (inverse @ values)
    freedom = len(values) - np.linalg.matrix_rank(design, tol=1e-6 * len(values) ** 0.5)
    error = np.sqrt(rest @ rest / freedom * (inverse[0] @ inverse[0]))
    half_width = stdtrit(freedom, (1 + CONFIDENCE) / 2) * error
    return float(inverse[0] @ values), float(half_width)
