"""KV ledgers of a cohort: the blocks of its members grow without being looked at one by one.

A member needs a block once in `block_size` steps. `slot` is the clock of the cohort, modulo the
block size, at which that happens.
"""

from bisect import bisect_left, insort
from collections.abc import Sequence

from policies.base import RequestView, Running
from simulator.kv_cache import BlockManager
from simulator.prefix_cache import PrefixLedger


class CohortLedger(BlockManager):
    """Blocks are counted: what the members hold follows from their progress."""

    def __init__(self, num_blocks: int | None, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self.growing: set[int] = set()
        """Members that take blocks as they go; the others have reserved theirs."""
        self.in_step = 0
        """1 while the members hold the blocks of a step that has not ended."""

    def held(self, request: RequestView) -> int:
        """Return the number of blocks the request holds."""
        rid = request.id
        if rid in self.growing:
            return -(-(request.computed + self.in_step) // self.block_size)
        return self._held.get(rid, 0)

    def need(self, request: RequestView, tokens: int) -> int:
        """Return how many more blocks the request needs to compute `tokens` more tokens."""
        more = -(-(request.computed + tokens) // self.block_size) - self.held(request)
        return more if more > 0 else 0

    def enter(self, request: RequestView, order: int, slot: int, grows: bool) -> bool:
        """Take a request among the members; False if its blocks do not allow it."""
        if grows:
            self.growing.add(request.id)
        return True

    def settle(self, request: RequestView, order: int, slot: int) -> bool:
        """Write down what a leaving member holds; return whether it was growing."""
        if request.id not in self.growing:
            return False
        self._held[request.id] = self.held(request)
        self.growing.discard(request.id)
        return True

    def grow(self, clock: int, due: Sequence[int], steps: int) -> None:
        """Give the members the blocks of their next steps; `due` says how many by slot."""
        cycle = len(due)
        if steps == 1:
            blocks = due[clock % cycle]
        else:
            cycles, rest = divmod(steps, cycle)
            blocks = cycles * len(self.growing)
            blocks += sum([due[(clock + step) % cycle] for step in range(rest)])
        assert blocks <= self.free, "checked before the step"
        self.free -= blocks
        self.num_allocated += blocks


class CachedCohortLedger(PrefixLedger):
    """Blocks have content: members are handed out blocks, and publish full ones, in their turn."""

    def __init__(self, num_blocks: int | None, block_size: int) -> None:
        super().__init__(num_blocks, block_size)
        self.growing: set[int] = set()
        """Members that take blocks as they go; the others have reserved theirs."""
        self.in_step = 0
        """1 while the members hold the blocks of a step that has not ended."""
        self._clock_of_members = 0
        self._members: set[int] = set()
        self._turns: list[list[tuple[int, int]]] = [[] for _ in range(block_size)]
        """Members by slot, in running order: (order, request)."""

    def enter(self, request: RequestView, order: int, slot: int, grows: bool) -> bool:
        """Take a request among the members; False if its blocks do not allow it."""
        rid = request.id
        if self._filled.get(rid) != request.computed // self.block_size:
            return False
        insort(self._turns[slot], (order, rid))
        self._members.add(rid)
        if grows:
            self.growing.add(rid)
        return True

    def settle(self, request: RequestView, order: int, slot: int) -> bool:
        """Write down what a leaving member knows; return whether it was growing."""
        rid, turns = request.id, self._turns[slot]
        del turns[bisect_left(turns, (order, rid))]
        self._members.discard(rid)
        self._known[rid] = request.known - request.promised
        grew = rid in self.growing
        self.growing.discard(rid)
        return grew

    def grow(self, clock: int, due: Sequence[int], steps: int) -> None:
        """Give the members the blocks of their next steps, and publish what these steps fill."""
        for step in range(clock, clock + steps):
            self._take_turns(step)
        self._clock_of_members = clock + steps

    def hold_decodes(self, running: Running) -> None:
        """Hold blocks for one more token of every running decode, in running order."""
        if len(self._members) == running.num_decodes:
            if not self.in_step:
                self._take_turns(self._clock_of_members)
        else:
            super().hold_decodes(running)

    def _publish(self, rid: int, tokens: int) -> None:
        if rid in self._members:  # all it holds is known
            self._publish_up_to(rid, tokens // self.block_size)
        else:
            super()._publish(rid, tokens)

    def _take_turns(self, clock: int) -> None:
        """Do what `hold` does for each member, looking only at those that it changes."""
        size = self.block_size
        for _, rid in self._turns[clock % size]:
            if rid in self.growing:
                table = self._tables[rid] + self._hand_out(1)
                self._set_table(rid, table, self._filled[rid])
        for _, rid in self._turns[(clock + 1) % size]:
            self._publish_up_to(rid, self._filled[rid] + 1)
