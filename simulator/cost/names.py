"""Look-up of a record by name, with an error that offers the nearest names."""

from collections.abc import Mapping
from difflib import get_close_matches
from typing import TypeVar

from simulator.errors import UserError

T = TypeVar("T")


def look_up(what: str, name: str, table: Mapping[str, T]) -> T:
    """Return `table[name]`, or say which names come closest.

    Parameters
    ----------
    what : str
        The kind of thing looked for; used in the message.
    name : str
        Name asked for.
    table : mapping of str to object
        Known records.

    Returns
    -------
    object
        The record of that name.

    Raises
    ------
    UserError
        If the name is unknown.

    Examples
    --------
    >>> look_up("gpu", "h10", {"h100": 1, "l40s": 2})
    Traceback (most recent call last):
    simulator.errors.UserError: unknown gpu 'h10': did you mean h100? (known: h100, l40s)
    """
    if name in table:
        return table[name]
    near = get_close_matches(name, table, n=3, cutoff=0.5)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    raise UserError(f"unknown {what} {name!r}: {hint}(known: {', '.join(table)})")
