"""The beginning of a file, looked at by every reader to say whether the file is its own."""

import json
import re
from dataclasses import dataclass
from typing import Final, Self

from workloads.readers.cells import BadCell
from workloads.readers.csv_lines import split

_KEY: Final = re.compile(r'"([^"\\]{1,80})"\s*:')
_START: Final = 2**20
CLIENT_FILE: Final = re.compile(r"chunk-(\d+)-(trace\.csv|dataset\.json)")
"""Names of the two files of a ServeGen client."""


@dataclass(frozen=True, slots=True)
class Sample:
    """What can be seen without reading a file as a whole.

    Parameters
    ----------
    magic : bytes
        The first four bytes, uncompressed.
    line : str
        The first line that is not blank.
    cells : tuple of str
        That line as comma-separated values; empty if it is JSON.
    keys : frozenset of str
        Keys of the JSON object on that line, or of a JSON document that begins here.
    whole : bool
        Whether that line is a complete JSON object.
    """

    magic: bytes
    line: str
    cells: tuple[str, ...] = ()
    keys: frozenset[str] = frozenset()
    whole: bool = False

    @classmethod
    def of(cls, start: bytes) -> Self:
        """Look at the first bytes of a file.

        Examples
        --------
        >>> sorted(Sample.of(b'{"a": 1, "b": {"c": 2}}').keys), Sample.of(b"x,y").cells
        (['a', 'b'], ('x', 'y'))
        """
        text = start.decode("utf-8-sig", "replace")
        lines = (line.strip("\r") for line in text.split("\n"))
        line = next((line for line in lines if line and not line.isspace()), "")
        if not line.lstrip().startswith(("{", "[")):
            return cls(start[:4], line, _cells(line))
        try:
            value = json.loads(line)
        except ValueError:
            return cls(start[:4], line, keys=frozenset(_KEY.findall(text[:_START])))
        keys = frozenset(value) if isinstance(value, dict) else frozenset()
        return cls(start[:4], line, keys=keys, whole=True)


def _cells(line: str) -> tuple[str, ...]:
    try:
        return tuple(cell.strip() for cell in split(line))
    except BadCell:
        return ()


def share_of(keys: frozenset[str], required: tuple[str, ...]) -> float:
    """Return the part of the required keys that is there."""
    return sum(key in keys for key in required) / len(required)
