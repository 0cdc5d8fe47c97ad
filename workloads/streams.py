"""Random streams by name: each purpose has its own, whatever else a workload draws."""

from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from workloads.errors import WorkloadError

_LARGEST_SEED = 2**128
_LARGEST_KEY = 2**32


@dataclass(frozen=True, slots=True)
class Streams:
    """Independent generators, found by name instead of by order of creation.

    A stream depends on the seed, the replication and its name, and on nothing else. A
    workload that draws its output lengths in another way therefore keeps its arrivals and
    prompts to the last bit, and two policies meet the same requests (common random numbers).

    Parameters
    ----------
    seed : int
        Root seed, 0 or more and below 2**128.
    replication : int, default 0
        Number of the replication, 0 or more and below 2**32. Replications are independent.

    Raises
    ------
    WorkloadError
        Seed or replication out of range.

    Notes
    -----
    The name enters `numpy.random.SeedSequence` as the first four little-endian words of its
    SHA-256, after the replication, as the spawn key. The generator is PCG64; NumPy keeps its
    raw stream stable, but may change how a distribution uses it in a new minor version.

    Examples
    --------
    >>> streams = Streams(seed=7)
    >>> int(streams("arrivals").integers(1000)) == int(streams("arrivals").integers(1000))
    True
    >>> Streams(7, replication=1)("arrivals").random() == streams("arrivals").random()
    False
    """

    seed: int
    replication: int = 0

    def __post_init__(self) -> None:
        _check_range("seed", self.seed, _LARGEST_SEED)
        _check_range("replication", self.replication, _LARGEST_KEY)

    def __call__(self, name: str, *keys: int) -> np.random.Generator:
        """Return a fresh generator for a purpose, always at the start of its stream.

        Parameters
        ----------
        name : str
            The purpose, such as ``"arrivals"``.
        *keys : int
            Numbers that single out one member of a family, such as a user and a turn; each
            0 or more and below 2**32.

        Returns
        -------
        numpy.random.Generator
            The same stream for the same seed, replication, name and keys.
        """
        for key in keys:
            _check_range("key", key, _LARGEST_KEY)
        digest = sha256(name.encode()).digest()
        words = (int.from_bytes(digest[at : at + 4], "little") for at in range(0, 16, 4))
        sequence = np.random.SeedSequence(self.seed, spawn_key=(self.replication, *words, *keys))
        return np.random.Generator(np.random.PCG64(sequence))


def split(rng: np.random.Generator, number: int) -> list[np.random.Generator]:
    """Return independent generators that depend on the state of one, for parts of a law.

    Examples
    --------
    >>> one, two = split(np.random.default_rng(1), 2)
    >>> again, _ = split(np.random.default_rng(1), 2)
    >>> one.random() == again.random() != two.random()
    True
    """
    seeds = rng.integers(0, 2**63, (number, 2)).tolist()
    sequences = (np.random.SeedSequence(seed) for seed in seeds)
    return [np.random.Generator(np.random.PCG64(sequence)) for sequence in sequences]


def _check_range(what: str, value: int, limit: int) -> None:
    whole = hasattr(value, "__index__") and not isinstance(value, bool)
    if not whole or not 0 <= value < limit:
        raise WorkloadError(f"expected a whole number from 0 to {limit - 1} as {what}", value=value)
