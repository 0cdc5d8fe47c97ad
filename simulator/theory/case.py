"""A case: a run that a formula describes, the formula, and what to take from the run."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from simulator.result import Result
from simulator.run import simulate
from simulator.spec import RunSpec
from simulator.theory.replications import MOST, Estimate, Sample, replicate_until


@dataclass(frozen=True)
class Case:
    """One queueing system at one setting.

    Attributes
    ----------
    family : str
        The queueing system, such as ``M/D/1``.
    parameters : mapping
        Name to value, as in the formula.
    policy : str
        What stands for it here.
    run : mapping
        Sections of the specification.
    theory : callable
        Takes nothing; returns name to value of everything that is compared.
    sample : callable
        Takes the result of a replication.
    is_quick : bool
        Whether it is in the tests that run by default.
    """

    family: str
    parameters: Mapping[str, Any]
    policy: str
    run: Mapping[str, Any]
    theory: Callable[[], Mapping[str, float]]
    sample: Callable[[Result], Sample]
    is_quick: bool = False

    @property
    def name(self) -> str:
        """Family, policy and parameters; no two cases have the same."""
        values = ", ".join(f"{key} {value}" for key, value in self.parameters.items())
        return f"{self.family} as {self.policy}: {values}"

    @property
    def num_requests(self) -> int:
        """Requests of a replication."""
        workload = self.run["workload"]
        number = workload["num_requests"] if isinstance(workload, dict) else workload.num_requests
        return int(number)

    def spec(self, seed: int = 0) -> RunSpec:
        """Return the specification; cases have seeds of their own, and share no luck.

        Parameters
        ----------
        seed : int
            Root from which the seed of the case is made, at least 0.
        """
        digest = hashlib.sha256(f"{self.name}; {seed}".encode()).hexdigest()
        return RunSpec(**self.run, seed=int(digest[:8], 16))


def estimate_case(case: Case, seed: int = 0, *, again: bool = False) -> dict[str, Estimate]:
    """Simulate until every interval is narrow enough.

    Parameters
    ----------
    case : Case
        What is simulated.
    seed : int
        Root of all random streams, at least 0.
    again : bool
        Use other replications than the first time.

    Returns
    -------
    dict
        Name of a value to its estimate.
    """
    spec = case.spec(seed)
    theory = case.theory()

    def measure(replication: int) -> Sample:
        return case.sample(simulate(spec, replication=replication))

    return replicate_until(measure, theory, first=MOST if again else 0)
