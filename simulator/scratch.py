"""A trial ledger that only counts: enough while blocks have no content."""

from typing import TYPE_CHECKING

from policies.base import Hit, KvOp, RequestView, Running

if TYPE_CHECKING:
    from simulator.kv_cache import BlockManager

_NO_HIT = Hit()


class CountingScratch:
    """Tries holds and releases on numbers of blocks (`policies.base.Scratch`).

    The order of the operations does not matter to the numbers, so there is no journal.
    """

    __slots__ = ("_held", "_kv", "free")

    journal: tuple[KvOp, ...] = ()

    def __init__(self, kv: "BlockManager") -> None:
        self._kv = kv
        self._held: dict[int, int] = {}
        self.free = kv.free

    def hit(self, request: RequestView) -> Hit:
        """Return that nothing is found."""
        return _NO_HIT

    def take(self, request: RequestView) -> None:
        """Take nothing."""

    def hold(self, request: RequestView, tokens: int) -> bool:
        """Hold blocks for `tokens` tokens in all; False, changing nothing, if too few are free."""
        held = self._held.get(request.id)
        if held is None:
            held = self._kv.held(request)
        blocks = max(held, self._kv.blocks_for(tokens))
        if blocks - held > self.free:
            return False
        self.free -= blocks - held
        self._held[request.id] = blocks
        return True

    def hold_decodes(self, running: Running) -> None:
        """Hold blocks for one more token of every running decode."""
        for request in running:
            if request.is_decode:
                self.hold(request, request.computed + 1)

    def release(self, request: RequestView) -> None:
        """Free all blocks of the request."""
        held = self._held.pop(request.id, None)
        self.free += self._kv.held(request) if held is None else held
        self._held[request.id] = 0
