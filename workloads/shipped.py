"""Tables that are shipped with the package: packed, found by name, and attributed."""

import bz2
import json
from collections.abc import Mapping
from functools import cached_property
from hashlib import sha256
from importlib.resources import files
from typing import Any

from workloads.errors import check_num_requests, check_rate
from workloads.provenance import Provenance, origin


def pack(table: Mapping[str, Any]) -> bytes:
    """Return the bytes of a table: compact JSON, bzip2; the same at every call."""
    text = json.dumps(table, separators=(",", ":"), ensure_ascii=False)
    return bz2.compress(text.encode(), 9)


class Shipped:
    """Base of the presets that stand in a file of `workloads.data`.

    Parameters
    ----------
    name : str
        Name of the preset and, with ``.json.bz2``, of its file.
    about : str
        One line: what kind of workload it is.
    """

    is_open = True

    def __init__(self, name: str, about: str) -> None:
        self.name = name
        self.about = about

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.about!r})"

    @property
    def source(self) -> str:
        """The data set and its citation."""
        return str(self._table["source"])

    @property
    def licence(self) -> str:
        """Licence of the data set."""
        return str(self._table["licence"])

    @property
    def num_rows(self) -> int:
        """Requests made by default."""
        return int(self._table["num_rows"])

    def _account(self, n: int) -> Provenance:
        notes = {key: str(self._table[key]) for key in ("source", "licence", "made")}
        return origin(f"preset {self.name}", n, sha256=self._sha256, notes=notes)

    def _checked(self, num_requests: int | None, request_rate: float | None) -> int:
        """Return the number of requests asked for; refuse what makes no sense."""
        n = self.num_rows if num_requests is None else num_requests
        check_num_requests(n)
        if request_rate is not None:
            check_rate(request_rate)
        return n

    @cached_property
    def _bytes(self) -> bytes:
        return (files("workloads.data") / f"{self.name}.json.bz2").read_bytes()

    @cached_property
    def _sha256(self) -> str:
        return sha256(self._bytes).hexdigest()

    @cached_property
    def _table(self) -> dict[str, Any]:
        table: dict[str, Any] = json.loads(bz2.decompress(self._bytes))
        return table
