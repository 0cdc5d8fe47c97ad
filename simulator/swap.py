"""Host memory for the KV blocks of requests that were swapped out."""

from policies.base import RequestView
from simulator.errors import RuleBroken

UNLIMITED_BLOCKS = 2**48
"""Number of blocks of a host that never fills up."""


class SwapSpace:
    """Counts the KV blocks in host memory and the time it takes to copy them.

    Parameters
    ----------
    num_blocks : int, optional
        Blocks that fit; None: as many as anyone wants.
    block_time : float
        Time to copy one block in either direction, seconds, at least 0: its bytes divided by the
        bandwidth of the link.

    Attributes
    ----------
    free : int
        Blocks that still fit.
    num_out, num_in : int
        Blocks copied to the host and back so far.

    Examples
    --------
    >>> swap = SwapSpace(num_blocks=8, block_time=0.25)
    >>> swap.store(rid=0, blocks=3)
    >>> swap.free, swap.fetch(rid=0), swap.free
    (5, 3, 8)
    """

    def __init__(self, num_blocks: int | None = None, block_time: float = 0.0) -> None:
        self.total = UNLIMITED_BLOCKS if num_blocks is None else num_blocks
        self.free = self.total
        self.block_time = block_time
        self.num_out = 0
        self.num_in = 0
        self._held: dict[int, int] = {}

    @property
    def used(self) -> int:
        """Blocks that swapped requests hold."""
        return self.total - self.free

    def held(self, request: RequestView) -> int:
        """Return the number of blocks the request holds here."""
        return self._held.get(request.id, 0)

    def store(self, rid: int, blocks: int) -> None:
        """Take in the blocks of a request.

        Raises
        ------
        RuleBroken
            If they do not fit.
        """
        if blocks > self.free:
            raise RuleBroken(
                f"request {rid} is swapped out with {blocks} KV blocks, {self.free} fit the host"
            )
        self._held[rid] = blocks
        self.free -= blocks
        self.num_out += blocks

    def fetch(self, rid: int) -> int:
        """Copy the blocks of a request back; return how many there were."""
        blocks = self.drop(rid)
        self.num_in += blocks
        return blocks

    def drop(self, rid: int) -> int:
        """Forget the blocks of a request; return how many there were."""
        blocks = self._held.pop(rid)
        self.free += blocks
        return blocks
