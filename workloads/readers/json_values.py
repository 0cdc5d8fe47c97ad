"""What may stand in a JSON object of a trace file, and what it means."""

import json
import math
from collections.abc import Mapping
from typing import Any

from workloads.readers.cells import BadCell

_LARGEST = 2**31 - 1
_MISSING = object()

Json = Mapping[str, Any]


def parse(text: str) -> Json:
    """Read one JSON object.

    Raises
    ------
    BadCell
        Cut off or not JSON, not an object, a key that stands twice, NaN or Infinity.

    Examples
    --------
    >>> parse('{"a": 1}')
    {'a': 1}
    """
    try:
        value = json.loads(text, object_pairs_hook=_pairs, parse_constant=_constant)
    except (ValueError, RecursionError) as error:
        if isinstance(error, BadCell):
            if error.value is None:
                error.value = text
            raise
        raise _bad("not JSON", "a JSON object on one line", None, text) from None
    if not isinstance(value, dict):
        raise _bad("not an object", "a JSON object", None, text)
    return value


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise _bad("duplicate key", "each key once", twice, twice)
    return result


def _constant(name: str) -> float:
    raise _bad("not a number", "finite numbers", None, name)


def _bad(reason: str, expected: str, column: str | None, value: object) -> BadCell:
    bad = BadCell(reason, expected)
    bad.column = column
    bad.value = value if isinstance(value, str) else json.dumps(value)
    return bad


def lookup(row: Json, key: str) -> object:
    """Return what stands under a key; a dot leads into an inner object; None if missing."""
    value: object = row.get(key, _MISSING)
    if value is _MISSING and "." in key:
        outer, _, inner = key.partition(".")
        below = row.get(outer)
        return lookup(below, inner) if isinstance(below, Mapping) else None
    return None if value is _MISSING else value


def whole(row: Json, key: str, least: int = 1, default: int | None = None) -> int:
    """Return a count; a float without a fraction is accepted, text and true are not.

    Raises
    ------
    BadCell
        Missing without a default, not a whole number, too small or beyond 2**31 - 1.

    Examples
    --------
    >>> whole({"n": 3.0}, "n")
    3
    """
    value = lookup(row, key)
    if value is None:
        if default is not None:
            return default
        raise _bad("missing", f"this key, with a whole number of at least {least}", key, row)
    if type(value) is not int:
        if not isinstance(value, float) or not value.is_integer():
            reason = "not a whole number" if type(value) is float else "not a number"
            raise _bad(reason, f"a whole number of at least {least}", key, value)
        value = int(value)
    if value < least:
        reason = "zero" if value == 0 else "negative" if value < 0 else "too small"
        raise _bad(reason, f"a whole number of at least {least}", key, value)
    if value > _LARGEST:
        raise _bad("too large", f"a whole number of at most {_LARGEST}", key, value)
    return value


def number(row: Json, key: str, default: float | None = None) -> float:
    """Return a finite number of at least 0.

    Raises
    ------
    BadCell
        Missing without a default, not a number, infinite or negative.
    """
    value = lookup(row, key)
    if value is None and default is not None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        if value is None:
            raise _bad("missing", "this key, with a number of at least 0", key, row)
        raise _bad("not a number", "a number of at least 0", key, value)
    if value < 0:
        raise _bad("negative", "a number of at least 0", key, value)
    return float(value)


class ChainCheck:
    """Checks the prefix chains of one file, whose ids stand for a block and all before it.

    Parameters
    ----------
    key : str
        Where the chain stands.
    block_size : int
        Tokens in a block.
    prefix_hashes : bool, default True
        Whether an id belongs to one depth only.
    partial : bool, default True
        Whether a last block that the prompt fills in part has an id, too.
    short : bool, default False
        Whether a chain may end before its prompt does.
    """

    def __init__(
        self,
        key: str,
        block_size: int,
        *,
        prefix_hashes: bool = True,
        partial: bool = True,
        short: bool = False,
    ) -> None:
        self.key = key
        self.block_size = block_size
        self.trimmed = 0
        self._partial = partial
        self._short = short
        self._depths: dict[int, int] | None = {} if prefix_hashes else None

    def __call__(self, row: Json, prompt: int) -> list[int]:
        """Return the chain of a prompt: empty if it has none, trimmed if it is too long.

        Raises
        ------
        BadCell
            Not a list of whole numbers of at least 0, fewer blocks than the prompt needs, a
            block twice, or a block known at another depth.
        """
        ids = lookup(row, self.key)
        if ids is None or ids == []:
            return []
        if not isinstance(ids, list) or {*map(type, ids)} != {int} or min(ids) < 0:
            raise _bad("not block ids", "a list of whole numbers of at least 0", self.key, ids)
        most = -(-prompt // self.block_size)
        needed = most if self._partial else prompt // self.block_size
        if len(ids) < needed and not self._short:
            expected = f"{needed} blocks of {self.block_size} for {prompt} tokens, not {len(ids)}"
            raise _bad("too few blocks", expected, self.key, ids)
        self.trimmed += len(ids) > most
        ids = ids[:most]
        if self._depths is not None:
            self._check_depths(ids, self._depths)
        return ids

    def _check_depths(self, ids: list[int], depths: dict[int, int]) -> None:
        if len(set(ids)) < len(ids):
            raise _bad("repeated block", "each block once in a chain", self.key, ids)
        for depth, block in enumerate(ids):
            if depths.get(block, depth) != depth:
                at = f"{depths[block]}, where it stood before, not {depth}"
                raise _bad("block at another depth", f"block {block} at depth {at}", self.key, ids)
        depths.update(zip(ids, range(len(ids)), strict=True))
