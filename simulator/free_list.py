"""The list of free blocks, in the order in which they are handed out, and a way back."""

from collections.abc import Callable, Iterator, Sequence


class Undo:
    """Calls that take back what was done, to be run in reverse order."""

    def __init__(self) -> None:
        self._calls: list[tuple[Callable[..., object], tuple[object, ...]]] = []

    def add(self, call: Callable[..., object], *arguments: object) -> None:
        """Remember how to take back a change that has just been made."""
        self._calls.append((call, arguments))

    def run(self) -> None:
        """Take back everything, the latest change first."""
        for call, arguments in reversed(self._calls):
            call(*arguments)
        self._calls.clear()


class FreeList:
    """A doubly linked list of block numbers; every change costs the same and can be taken back.

    Parameters
    ----------
    size : int
        Blocks 0 to size - 1, all free at first, in this order.

    Examples
    --------
    >>> blocks = FreeList(3)
    >>> blocks.remove(0)
    >>> blocks.append(0)
    >>> list(blocks)
    [1, 2, 0]
    """

    def __init__(self, size: int) -> None:
        self._end = size  # one element more closes the ring
        self._next: list[int] = [*range(1, size + 1), 0]
        self._previous: list[int] = [size, *range(size)]

    def __iter__(self) -> Iterator[int]:
        block = self._next[self._end]
        while block != self._end:
            yield block
            block = self._next[block]

    def pop(self, count: int) -> list[int]:
        """Take blocks out at the front; `push` takes that back.

        Raises
        ------
        IndexError
            If the list has fewer.
        """
        end, following = self._end, self._next
        blocks, block = [], following[end]
        for _ in range(count):
            if block == end:
                raise IndexError("no block is free")
            blocks.append(block)
            block = following[block]
        following[end], self._previous[block] = block, end
        return blocks

    def push(self, blocks: Sequence[int]) -> None:
        """Put blocks back at the front, in this order."""
        for block in reversed(blocks):
            self._insert(block, self._end, self._next[self._end])

    def remove(self, block: int, undo: Undo | None = None) -> None:
        """Take a block out."""
        before, after = self._previous[block], self._next[block]
        self._next[before], self._previous[after] = after, before
        if undo is not None:
            undo.add(self._insert, block, before, after)

    def append(self, block: int, undo: Undo | None = None) -> None:
        """Put a block at the end."""
        self._insert(block, self._previous[self._end], self._end)
        if undo is not None:
            undo.add(self.remove, block)

    def prepend(self, block: int, undo: Undo | None = None) -> None:
        """Put a block at the front."""
        self._insert(block, self._end, self._next[self._end])
        if undo is not None:
            undo.add(self.remove, block)

    def _insert(self, block: int, before: int, after: int) -> None:
        self._next[before] = self._previous[after] = block
        self._previous[block], self._next[block] = before, after
