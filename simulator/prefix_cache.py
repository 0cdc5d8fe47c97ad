"""The KV ledger with prefix caching: blocks have content, and full ones are found again.

A block is published under its content, chained from the start of the prompt, as soon as a step is
planned that fills it. Freed blocks that are published stay until they are handed out for something
else, the least recently freed first and the tail of a request before its head.

Source: vLLM 0.32 `v1/core/kv_cache_manager.py` and `block_pool.py`, checked against recorded
decisions.
"""

import sys
from collections.abc import Hashable, Sequence

from policies.base import Hit, KvOp, RequestView, Running, Scratch
from simulator.errors import RuleBroken
from simulator.free_list import FreeList, Undo
from simulator.kv_cache import BlockManager, Segment


class Content:
    """What the blocks of requests hold, as numbers: equal chains of tokens get equal numbers.

    Parameters
    ----------
    block_size : int
        Tokens in a block.
    """

    def __init__(self, block_size: int) -> None:
        self._block_size = block_size
        self._numbers: dict[Hashable, int] = {}
        self._count = 0
        self._segments: dict[int, Sequence[Segment]] = {}
        self._chains: dict[int, list[int]] = {}
        self._shared_tokens: dict[int, int] = {}
        """Leading tokens of a request that another may have in common with it."""

    def add(self, rid: int, prompt: Sequence[Segment] | None, prompt_tokens: int) -> None:
        """Register a request; a prompt of None is like no other."""
        self._segments[rid] = [*(prompt or [(("prompt", rid), prompt_tokens)])]
        self._chains[rid] = []
        self._shared_tokens[rid] = 0
        for source, length in self._segments[rid]:
            if source == ("prompt", rid):
                return
            self._shared_tokens[rid] += length
        self._shared_tokens[rid] = sys.maxsize  # even its output may be quoted

    def key(self, rid: int, block: int) -> int:
        """Return the number of a full block of a request and all before it."""
        chain = self._chains[rid]
        if len(chain) <= block:
            self._lengthen(rid, chain, block + 1)
        return chain[block]

    def _lengthen(self, rid: int, chain: list[int], length: int) -> None:
        """Give numbers to the blocks of a request, up to a length of its chain."""
        size = self._block_size
        while len(chain) < length and len(chain) * size < self._shared_tokens[rid]:
            link = (chain[-1] if chain else -1, self._pieces(rid, len(chain)))
            number = self._numbers.get(link)
            if number is None:
                number = self._numbers[link] = self._count
                self._count += 1
            chain.append(number)
        own = length - len(chain)  # blocks that only this request can have
        if own > 0:
            chain.extend(range(self._count, self._count + own))
            self._count += own

    def _pieces(self, rid: int, block: int) -> tuple[tuple[Hashable, int, int], ...]:
        """Return the runs of tokens in a block: source, first token of it, number."""
        first, last = block * self._block_size, (block + 1) * self._block_size
        pieces: list[tuple[Hashable, int, int]] = []
        start = 0
        for source, length in self._segments[rid]:
            low, high = max(first, start), min(last, start + length)
            if low < high:
                pieces.append((source, low - start, high - low))
            start += length
        if start < last:  # generated tokens follow the prompt
            low = max(first, start)
            pieces.append((("output", rid), low - start, last - low))
        return tuple(pieces)


class PrefixLedger(BlockManager):
    """Counts blocks and knows what is in them.

    Parameters
    ----------
    num_blocks : int
        Usable blocks.
    block_size : int
        Tokens in a block.
    """

    caching = True

    def __init__(self, num_blocks: int | None, block_size: int) -> None:
        if num_blocks is None:
            raise ValueError("prefix caching needs a limited number of blocks")
        super().__init__(num_blocks, block_size)
        self.content = Content(block_size)
        self._list = FreeList(num_blocks)
        self._holders = [0] * num_blocks
        self._keys: list[int | None] = [None] * num_blocks
        self._age = [0] * num_blocks
        self._published: dict[int, set[int]] = {}
        self._clock = 0
        self._tables: dict[int, list[int]] = {}
        self._filled: dict[int, int] = {}
        self._known: dict[int, int] = {}
        self._undo: Undo | None = None

    def register(self, request: RequestView, prompt: Sequence[Segment] | None) -> None:
        """Take note of a request's content before it is held for the first time."""
        self.content.add(request.id, prompt, request.prompt_tokens)
        self._known[request.id] = request.prompt_tokens

    def learn(self, request: RequestView) -> None:
        """Take note of newly generated tokens, and publish the blocks that end in one."""
        self._known[request.id] = request.known - request.promised
        if request.id in self._tables:
            self._publish(request.id, request.computed)

    def scratch(self) -> Scratch:
        """Return a trial ledger; it has to be rolled back before anything else is done."""
        self._undo = Undo()
        return PrefixScratch(self)

    def rollback(self) -> None:
        """Undo everything that was tried on the scratch ledger."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo.run()

    def find(self, request: RequestView) -> list[int]:
        """Return the cached blocks that a waiting request finds, from the start of its prompt."""
        found: list[int] = []
        for block in range((request.known - request.promised - 1) // self.block_size):
            candidates = self._published.get(self.content.key(request.id, block))
            if not candidates:
                break
            found.append(min(candidates, key=self._age.__getitem__))
        return found

    def hit(self, request: RequestView) -> Hit:
        """Return what a waiting request finds."""
        found = self.find(request)
        idle = sum(self._holders[block] == 0 for block in found)
        return Hit(len(found) * self.block_size, len(found), idle)

    def take(self, request: RequestView) -> int:
        """Let a waiting request hold what it finds; return the tokens in it."""
        found = self.find(request)
        for block in found:
            if self._holders[block] == 0:
                self._unlist(block)
            self._count(block, +1)
        self._set_table(request.id, found, len(found))
        return len(found) * self.block_size

    def hold(self, rid: int, tokens: int) -> None:
        """Make the request hold blocks for at least `tokens` tokens, and publish the full ones."""
        table = self._tables.get(rid, [])
        more = -(-tokens // self.block_size) - len(table)
        if more > self.free:
            raise RuleBroken(f"request {rid} needs {more} more KV blocks, {self.free} are free")
        if more > 0:
            self._set_table(rid, table + self._hand_out(more), self._filled.get(rid, 0))
        self._publish(rid, tokens)

    def hold_decodes(self, running: Running) -> None:
        """Hold blocks for one more token of every running decode, in running order."""
        for request in running:
            if request.is_decode:
                self.hold(request.id, request.computed + 1)

    def held(self, request: RequestView) -> int:
        """Return the number of blocks the request holds."""
        return len(self._tables.get(request.id, ()))

    def need(self, request: RequestView, tokens: int) -> int:
        """Return how many more blocks the request needs to compute `tokens` more tokens."""
        return max(0, self.blocks_for(request.computed + tokens) - self.held(request))

    def release(self, rid: int) -> None:
        """Free all blocks of the request, the last one first; published ones may be found again."""
        table = self._tables.get(rid)
        if table is None:
            raise RuleBroken(f"request {rid} holds no KV blocks to free")
        for block in reversed(table):
            self._count(block, -1)
            if self._holders[block] == 0:
                self._list_again(block)
        self._set_table(rid, None, 0)

    # Everything below changes the state and writes down how to change it back.

    def _hand_out(self, count: int) -> list[int]:
        """Take the next blocks off the list, whatever they held."""
        blocks = self._list.pop(count)
        lost = [(block, self._keys[block]) for block in blocks if self._keys[block] is not None]
        for block, _ in lost:
            self._unpublish(block)
        for block in blocks:
            self._holders[block] = 1
        self.free -= count
        self.num_allocated += count
        if self._undo is not None:
            self._undo.add(self._hand_back, blocks, lost)
        return blocks

    def _hand_back(self, blocks: list[int], lost: list[tuple[int, int]]) -> None:
        """Take back a `_hand_out`."""
        self.free += len(blocks)
        self.num_allocated -= len(blocks)
        for block in blocks:
            self._holders[block] = 0
        for block, key in lost:
            self._keys[block] = key
            self._published.setdefault(key, set()).add(block)
        self._list.push(blocks)

    def _unlist(self, block: int) -> None:
        self._list.remove(block, self._undo)
        self.free -= 1
        self.num_allocated += 1
        if self._undo is not None:
            self._undo.add(self._shift_counts, 1, -1, 0)

    def _list_again(self, block: int) -> None:
        if self._keys[block] is None:
            self._list.prepend(block, self._undo)
        else:
            self._list.append(block, self._undo)
        self.free += 1
        self.num_freed += 1
        if self._undo is not None:
            self._undo.add(self._shift_counts, -1, 0, -1)

    def _shift_counts(self, free: int, allocated: int, freed: int) -> None:
        self.free += free
        self.num_allocated += allocated
        self.num_freed += freed

    def _count(self, block: int, by: int) -> None:
        self._holders[block] += by
        if self._undo is not None:
            self._undo.add(self._holders.__setitem__, block, self._holders[block] - by)

    def _set_table(self, rid: int, table: list[int] | None, filled: int) -> None:
        if self._undo is not None:
            self._undo.add(self._put_table, rid, self._tables.get(rid), self._filled.get(rid, 0))
        self._put_table(rid, table, filled)

    def _put_table(self, rid: int, table: list[int] | None, filled: int) -> None:
        if table is None:
            self._tables.pop(rid, None)
            self._filled.pop(rid, None)
        else:
            self._tables[rid] = table
            self._filled[rid] = filled

    def _publish(self, rid: int, tokens: int) -> None:
        """Publish the blocks that are full with known tokens."""
        self._publish_up_to(rid, min(tokens, self._known[rid]) // self.block_size)

    def _publish_up_to(self, rid: int, full: int) -> None:
        """Publish the first `full` blocks of a request."""
        table, filled = self._tables[rid], self._filled[rid]
        if full <= filled:
            return
        blocks = table[filled:full]
        if self._undo is not None:
            self._undo.add(self._unpublish_all, blocks, [self._age[block] for block in blocks])
        for index, block in enumerate(blocks, filled):
            key = self._keys[block] = self.content.key(rid, index)
            self._clock += 1
            self._age[block] = self._clock
            published = self._published.get(key)
            if published is None:
                self._published[key] = {block}
            else:
                published.add(block)
        self._set_table(rid, table, full)

    def _unpublish_all(self, blocks: list[int], ages: list[int]) -> None:
        """Take back a `_publish_up_to`."""
        for block, age in zip(blocks, ages, strict=True):
            self._unpublish(block)
            self._age[block] = age

    def _unpublish(self, block: int) -> None:
        """Let the content of a block be found no more."""
        key = self._keys[block]
        assert key is not None
        self._keys[block] = None
        blocks = self._published[key]
        blocks.discard(block)
        if not blocks:
            del self._published[key]


class PrefixScratch:
    """Tries operations on the ledger itself, which undoes them (`policies.base.Scratch`)."""

    def __init__(self, kv: PrefixLedger) -> None:
        self._kv = kv
        self._done: list[KvOp] = []

    @property
    def free(self) -> int:
        """Blocks that nobody holds."""
        return self._kv.free

    @property
    def journal(self) -> tuple[KvOp, ...]:
        """What was done, in order."""
        return tuple(self._done)

    def hit(self, request: RequestView) -> Hit:
        """Return what a waiting request finds in the prefix cache."""
        return self._kv.hit(request)

    def take(self, request: RequestView) -> None:
        """Let a waiting request take the blocks it finds in the prefix cache."""
        self._kv.take(request)
        self._done.append(KvOp("take", request.id))

    def hold(self, request: RequestView, tokens: int) -> bool:
        """Hold blocks for `tokens` tokens in all; False, changing nothing, if too few are free."""
        if self._kv.blocks_for(tokens) - self._kv.held(request) > self._kv.free:
            return False
        self._kv.hold(request.id, tokens)
        self._done.append(KvOp("hold", request.id, tokens))
        return True

    def hold_decodes(self, running: Running) -> None:
        """Hold blocks for one more token of every running decode; they are known to be free."""
        self._kv.hold_decodes(running)
        self._done.append(KvOp("decodes", -1))

    def release(self, request: RequestView) -> None:
        """Free all blocks of the request."""
        self._kv.release(request.id)
        self._done.append(KvOp("release", request.id))
