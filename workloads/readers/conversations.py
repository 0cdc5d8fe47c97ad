"""Recorded conversations with a coding assistant: one JSON document each (kv-cache-tester).

Times are seconds from the start of the conversation, so that all conversations of a folder
start at 0 s: the trace has no common clock. Block ids hold within a file and are renamed to be
unique in a folder; a block that the prompt fills in part has none. A ``subagent`` entry holds
requests of its own; they share the ids of the conversation around them and count as a
conversation of their own. Requests without output are failures.

References
----------
callanjfox/kv-cache-tester (Apache-2.0).
"""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from workloads.errors import WorkloadError
from workloads.readers.cells import BadCell
from workloads.readers.json_values import ChainCheck, Json, number, parse, whole
from workloads.readers.options import Failures
from workloads.readers.rows import Enough, Rows
from workloads.readers.sample import Sample, share_of
from workloads.readers.text import TextFile

BLOCK_SIZE: Final = 64


class KvCacheTester:
    """Reads one conversation, or a folder of them."""

    name = "kv-cache-tester"
    about = "coding-assistant conversations of kv-cache-tester, a file or a folder of files"
    failures: Failures = "drop"

    def fits(self, sample: Sample) -> float:
        """Say how well the beginning of a file fits: 1 is certain, 0 is not at all."""
        return share_of(sample.keys, ("requests", "block_size", "hash_id_scope"))

    def read(self, file: TextFile, rows: Rows) -> None:
        """Read all conversations.

        Raises
        ------
        WorkloadError
            Not such a document, files of different block sizes, or a bad request while strict.
        """
        _Conversations(rows).read(file)


class _Conversations:
    def __init__(self, rows: Rows) -> None:
        self.rows = rows
        rows.clock = "per conversation"
        self._next_id = 0
        self._conversation = 0
        self._declared = 0

    def read(self, file: TextFile) -> None:
        for part in _files(file):
            document = self._document(part)
            self._declare(part.path, document)
            check = ChainCheck("hash_ids", self.rows.block_size, prefix_hashes=False, partial=False)
            first_id, self._next_id = self._next_id, self._next_id + _largest_id(document) + 1
            try:
                for entries in _conversations(document):
                    self._entries(part.path, entries, check, first_id)
            except Enough:
                return

    def _document(self, file: TextFile) -> Json:
        try:
            document = parse(file.text())
        except BadCell as bad:
            raise WorkloadError(f"expected {bad.expected}", path=file.path) from None
        if not isinstance(document.get("requests"), list):
            raise WorkloadError("expected a list", path=file.path, column="requests")
        return document

    def _declare(self, path: Path, document: Json) -> None:
        try:
            block_size = whole(document, "block_size", default=BLOCK_SIZE)
        except BadCell as bad:
            expected, value = f"expected {bad.expected}", bad.value
            raise WorkloadError(expected, path=path, column=bad.column, value=value) from None
        if not self._declared:
            self._declared = block_size
            self.rows.declare(
                numbers=["conversation", "turn"], reals=["think_s"], block_size=block_size
            )
        elif block_size != self._declared:
            expected = f"expected {self._declared} as in the files before"
            raise WorkloadError(expected, path=path, column="block_size", value=block_size)

    def _entries(self, path: Path, entries: list[Json], check: ChainCheck, first_id: int) -> None:
        """Take the requests of one conversation, numbered from 1 as lines."""
        turn = 0
        for line, entry in enumerate(entries, start=1):
            try:
                prompt, output = whole(entry, "in", 0), whole(entry, "out", 0)
                time, think = number(entry, "t"), number(entry, "think_time", math.nan)
                chain = [first_id + block for block in check(entry, prompt)] if prompt else []
                extra = (self._conversation, turn, think)
                kept = self.rows.keep(line, time, prompt, output, extra, chain, ordered=False)
                turn += kept
            except BadCell as bad:
                self.rows.path = path
                self.rows.reject(line, bad)
        self._conversation += 1


def _files(file: TextFile) -> Iterator[TextFile]:
    if not file.path.is_dir():
        yield file
        return
    for path in conversation_files(file.path):
        yield TextFile(path)


def conversation_files(folder: Path) -> list[Path]:
    """Return the files of a folder that may be conversations, in the order of their names."""
    names = (path for path in folder.iterdir() if path.name.endswith((".json", ".json.gz")))
    return sorted(names)


def _conversations(document: Json) -> Iterator[list[Json]]:
    """Yield the conversation, then those of its subagents, which start later."""
    own: list[Json] = []
    nested: list[Json] = []
    for entry in document["requests"]:
        if isinstance(entry, Mapping):
            (nested if entry.get("type") == "subagent" else own).append(entry)
    yield own
    for entry in nested:
        requests = entry.get("requests")
        yield from _conversations({"requests": requests if isinstance(requests, list) else []})


def _largest_id(document: Json) -> int:
    largest = -1
    for entries in _conversations(document):
        for entry in entries:
            ids = entry.get("hash_ids")
            ids = ids if isinstance(ids, list) else []
            largest = max(largest, *(block for block in ids if type(block) is int), -1)
    return largest
