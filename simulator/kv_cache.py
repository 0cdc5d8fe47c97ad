"""The KV ledger: who holds how many blocks. Every block is either free or held by one request."""

from collections.abc import Hashable, Sequence

from policies.base import RequestView, Scratch
from simulator.errors import RuleBroken
from simulator.scratch import CountingScratch

Segment = tuple[Hashable, int]
"""A source of tokens and how many of its leading tokens follow; equal sources are equal text."""

UNLIMITED_BLOCKS = 2**48
"""Number of blocks of a cache that never fills up."""


class BlockManager:
    """Counts the KV blocks of a replica.

    Parameters
    ----------
    num_blocks : int or None
        Usable blocks; None: as many as anyone wants.
    block_size : int
        Tokens in a block.

    Examples
    --------
    >>> kv = BlockManager(num_blocks=4, block_size=16)
    >>> kv.hold(rid=0, tokens=17)
    >>> kv.used, kv.free
    (2, 2)
    """

    def __init__(self, num_blocks: int | None, block_size: int) -> None:
        self.is_limited = num_blocks is not None
        self.total = UNLIMITED_BLOCKS if num_blocks is None else num_blocks
        self.free = self.total
        self.block_size = block_size
        self.num_allocated = 0
        self.num_freed = 0
        self._held: dict[int, int] = {}

    caching = False
    """Whether full blocks are kept for requests with the same prefix."""

    def scratch(self) -> Scratch:
        """Return a trial ledger that starts as this one stands."""
        return CountingScratch(self)

    def rollback(self) -> None:
        """Undo what was tried on a scratch ledger; for prefix caching only."""

    def register(self, request: RequestView, prompt: Sequence[Segment] | None) -> None:
        """Take note of the content of a request's prompt; for prefix caching only."""

    def learn(self, request: RequestView) -> None:
        """Take note of newly generated tokens; for prefix caching only."""

    def take(self, request: RequestView) -> int:
        """Let a waiting request hold the cached blocks it finds; return the tokens in them."""
        return 0

    @property
    def used(self) -> int:
        """Blocks that requests hold."""
        return self.total - self.free

    def blocks_for(self, tokens: int) -> int:
        """Return the number of blocks that hold `tokens` tokens."""
        return -(-tokens // self.block_size)

    def held(self, request: RequestView) -> int:
        """Return the number of blocks the request holds."""
        return self._held.get(request.id, 0)

    def need(self, request: RequestView, tokens: int) -> int:
        """Return how many more blocks the request needs to compute `tokens` more tokens."""
        blocks = -(-(request.computed + tokens) // self.block_size)
        return max(0, blocks - self._held.get(request.id, 0))

    def hold(self, rid: int, tokens: int) -> None:
        """Make the request hold blocks for at least `tokens` tokens.

        Raises
        ------
        RuleBroken
            If fewer blocks are free than that takes.
        """
        held = self._held.get(rid, 0)
        more = -(-tokens // self.block_size) - held
        if more <= 0:
            return
        if more > self.free:
            raise RuleBroken(f"request {rid} needs {more} more KV blocks, {self.free} are free")
        self._held[rid] = held + more
        self.free -= more
        self.num_allocated += more

    def release(self, rid: int) -> None:
        """Free all blocks of the request.

        Raises
        ------
        RuleBroken
            If it holds none, so that no block is freed twice.
        """
        blocks = self._held.pop(rid, None)
        if blocks is None:
            raise RuleBroken(f"request {rid} holds no KV blocks to free")
        self.free += blocks
        self.num_freed += blocks
