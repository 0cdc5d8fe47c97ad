"""Prefix chains: which blocks a prompt consists of, so that equal beginnings can be reused."""

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import sha256
from typing import Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workloads.base import IntArray
from workloads.errors import WorkloadError


class Chains:
    """One chain of block ids a request, stored end to end. Never changes.

    Two requests share a block when their chains begin with the same ids up to and including
    it. A block that the prompt fills in part only is never shared, and what the prompt has
    beyond its chain is its own.

    Parameters
    ----------
    ids : array_like of int
        The ids of all chains, one chain after the other; 0 or more.
    ends : array_like of int
        End of each chain in `ids`, ascending.
    block_size : int
        Tokens in a block, 1 or more.

    Raises
    ------
    WorkloadError
        Ids, ends or block size that do not fit each other.

    Examples
    --------
    >>> chains = Chains.of([(1, 2), (), (1, 3)], block_size=512)
    >>> chains[2]
    (1, 3)
    >>> len(chains.take([2, 0])), chains.reblock(256)[0]
    (2, (2, 3, 4, 5))
    """

    __slots__ = ("block_size", "ends", "ids")

    def __init__(self, ids: ArrayLike, ends: ArrayLike, block_size: int) -> None:
        self.ids: IntArray = np.array(ids, np.int64)
        self.ends: IntArray = np.array(ends, np.int64)
        self.block_size = block_size
        if block_size < 1:
            raise WorkloadError("expected a block_size of at least 1", value=block_size)
        lengths = np.diff(self.ends, prepend=0)
        if np.any(lengths < 0) or (self.ends[-1] if self.ends.size else 0) != self.ids.size:
            raise WorkloadError("expected ends of chains that ascend to the number of ids")
        if self.ids.size and self.ids.min() < 0:
            raise WorkloadError("expected block ids of at least 0", value=int(self.ids.min()))
        self.ids.flags.writeable = self.ends.flags.writeable = False

    @classmethod
    def of(cls, chains: Sequence[Sequence[int]], block_size: int) -> Self:
        """Make chains from sequences of ids."""
        ids = [number for chain in chains for number in chain]
        return cls(ids, np.cumsum([len(chain) for chain in chains]), block_size)

    def __len__(self) -> int:
        return self.ends.size

    def __getitem__(self, row: int) -> tuple[int, ...]:
        start = self.ends[row - 1] if row else 0
        return tuple(self.ids[start : self.ends[row]].tolist())

    def __reduce__(self) -> tuple[object, ...]:
        return Chains, (self.ids, self.ends, self.block_size)

    @property
    def lengths(self) -> IntArray:
        """Blocks in each chain."""
        return np.diff(self.ends, prepend=0)

    def take(self, rows: ArrayLike | slice) -> "Chains":
        """Return the chains of some rows, in the order given; a mask works, too."""
        wanted = np.arange(len(self))[rows if isinstance(rows, slice) else np.asarray(rows)]
        lengths = self.lengths[wanted]
        return Chains(self.ids[self._places(wanted, lengths)], np.cumsum(lengths), self.block_size)

    def fit(self, prompt_tokens: IntArray) -> "Chains":
        """Cut each chain to the blocks that its prompt reaches."""
        most = -(-prompt_tokens // self.block_size)
        lengths = np.minimum(self.lengths, most)
        if np.array_equal(lengths, self.lengths):
            return self
        places = self._places(np.arange(len(self)), lengths)
        return Chains(self.ids[places], np.cumsum(lengths), self.block_size)

    def reblock(self, block_size: int) -> "Chains":
        """Return the same chains in blocks of another size.

        Smaller blocks: each id becomes as many ids as fit into it. Larger ones: a new id
        stands for each run of old ones, told apart by everything before it, too; a remainder
        that does not fill a new block is dropped from the chain, so that some reuse is lost.

        Parameters
        ----------
        block_size : int
            Tokens in a new block; a divisor or a multiple of the old size.

        Raises
        ------
        WorkloadError
            Neither a divisor nor a multiple.
        """
        if block_size == self.block_size:
            return self
        if block_size > 0 and self.block_size % block_size == 0:
            parts = self.block_size // block_size
            ids = (self.ids[:, None] * parts + np.arange(parts)).ravel()
            return Chains(ids, self.ends * parts, block_size)
        if block_size < 1 or block_size % self.block_size:
            expected = f"expected a divisor or a multiple of {self.block_size} as block_size"
            raise WorkloadError(expected, value=block_size)
        return self._merged(block_size // self.block_size, block_size)

    def renamed(self, offset: int) -> "Chains":
        """Return chains that share nothing with these: all ids moved by `offset`."""
        return Chains(self.ids + offset, self.ends, self.block_size)

    def digest(self) -> bytes:
        """Return the SHA-256 of ids, ends and block size."""
        result = sha256(str(self.block_size).encode())
        for column in (self.ids, self.ends):
            result.update(column.astype("<i8").tobytes())
        return result.digest()

    def _places(self, rows: IntArray, lengths: IntArray) -> IntArray:
        """Return where in `ids` the leading `lengths` ids of some chains stand."""
        starts = np.concatenate(([0], self.ends))[rows]
        before = np.concatenate(([0], np.cumsum(lengths)))[:-1]
        return np.repeat(starts - before, lengths) + np.arange(int(lengths.sum()))

    def _merged(self, parts: int, block_size: int) -> "Chains":
        names: dict[tuple[int, ...], int] = {}
        ids: list[int] = []
        ends: list[int] = []
        for row in range(len(self)):
            chain, above = self[row], -1
            for start in range(0, len(chain) - parts + 1, parts):
                above = names.setdefault((above, *chain[start : start + parts]), len(names))
                ids.append(above)
            ends.append(len(ids))
        return Chains(np.array(ids, np.int64), np.array(ends, np.int64), block_size)


def reusable_tokens(
    chains: Chains, prompt_tokens: NDArray[np.int64], *, partial: bool = False
) -> IntArray:
    """Return the tokens of each prompt that an infinite cache holds when it arrives.

    Rules: whole blocks only, as a leading run, and the whole prompt is stored after the
    look-up. With `partial` a last block that is not full counts as well where the same
    prompt came before.

    Examples
    --------
    >>> chains = Chains.of([(1, 2), (1, 2), (1, 3)], block_size=10)
    >>> reusable_tokens(chains, np.array([20, 15, 20])).tolist()
    [0, 10, 10]
    """
    seen: set[int] = set()
    hits = np.zeros(len(chains), np.int64)
    blocks = chains.lengths if partial else prompt_tokens // chains.block_size
    for row in range(len(chains)):
        chain = chains[row][: int(blocks[row])]
        run = next((at for at, block in enumerate(chain) if block not in seen), len(chain))
        hits[row] = run * chains.block_size
        seen.update(chain)
    return np.minimum(hits, prompt_tokens)


def lru_hit_blocks(chains: Chains, capacity: int) -> int:
    """Return the blocks found in a cache of so many blocks that drops the least recently used.

    Rules: a leading run of each chain is found; then the whole chain is stored, in order, and
    counts as used. A last block that is not full is treated like the others.

    Parameters
    ----------
    chains : Chains
        The chains, in order of arrival.
    capacity : int
        Blocks that the cache holds, 1 or more.

    Examples
    --------
    >>> chains = Chains.of([(1, 2), (1, 3), (1, 2)], block_size=10)
    >>> lru_hit_blocks(chains, 3), lru_hit_blocks(chains, 2)
    (3, 2)
    """
    if capacity < 1:
        raise WorkloadError("expected a capacity of at least 1", value=capacity)
    cache: OrderedDict[int, None] = OrderedDict()
    hits = 0
    for row in range(len(chains)):
        chain = chains[row]
        hits += next((at for at, block in enumerate(chain) if block not in cache), len(chain))
        for block in chain:
            cache[block] = None
            cache.move_to_end(block)
            if len(cache) > capacity:
                cache.popitem(last=False)
    return hits
