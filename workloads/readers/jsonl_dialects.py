"""Smaller formats with one JSON object a line: Qwen-Bailian, ServeGen, LLMServingSim, aibrix.

References
----------
alibaba-edu/qwen-bailian-usagetraces-anon (Apache-2.0). alibaba/ServeGen (Apache-2.0),
offline batch jobs. casys-kaist/LLMServingSim (MIT). vllm-project/aibrix (Apache-2.0).
"""

import numpy as np

from workloads.base import IntArray
from workloads.errors import WorkloadError
from workloads.readers.cells import BadCell
from workloads.readers.csv_format import turns_of
from workloads.readers.json_values import ChainCheck, Json, number, whole
from workloads.readers.jsonl_format import Dialect, JsonlFormat
from workloads.readers.rows import Rows

_SMALL_BLOCK = 16
_ANY = -(2**31)


class _Qwen(Dialect):
    """Seconds; conversations are trees of chats, blocks have 16 tokens."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        rows.declare(texts=["log_type"], block_size=_SMALL_BLOCK)
        self._chain = ChainCheck("hash_ids", rows.block_size)
        self._per_s = self.per_s("s")
        self._chats: list[int] = []
        self._parents: list[int] = []

    def take(self, line: int, row: Json) -> None:
        prompt = whole(row, "input_length")
        output = whole(row, "output_length", 0 if self.rows.failures != "error" else 1)
        chat, parent = whole(row, "chat_id", _ANY), whole(row, "parent_chat_id", _ANY, -1)
        time = number(row, "timestamp") / self._per_s
        kind = self.rows.code("log_type", str(row.get("type", "")))
        if _keep(self.rows, line, row, time, prompt, output, (kind,), self._chain(row, prompt)):
            self._chats.append(chat)
            self._parents.append(parent)

    def end(self) -> None:
        roots, orphans, late = find_roots(self._chats, self._parents, self.rows)
        self.rows.fill("conversation", roots)
        self.rows.fill("turn", turns_of(roots))
        if orphans:
            self.rows.remarks["the parent of a chat is not in the file; a new root"] += orphans
        if late:
            self.rows.remarks["a chat stands before its parent"] += late


def find_roots(chats: list[int], parents: list[int], rows: Rows) -> tuple[IntArray, int, int]:
    """Return for each row the number of the tree of chats it belongs to.

    Returns
    -------
    roots : array of int
        One number a row, counted from 0 in order of first appearance.
    orphans, late : int
        Rows whose parent is missing, and rows that stand before their parent.

    Raises
    ------
    WorkloadError
        A chat that is its own ancestor.
    """
    at = {chat: row for row, chat in enumerate(chats)}
    above = [at.get(parent, -1) if parent != -1 else -1 for parent in parents]
    orphans = sum(parent != -1 and row < 0 for parent, row in zip(parents, above, strict=True))
    late = sum(row < up for row, up in enumerate(above))
    roots = [-1] * len(chats)
    for row in range(len(chats)):
        path: list[int] = []
        here = row
        while roots[here] < 0 and above[here] >= 0:
            path.append(here)
            if len(path) > len(chats):
                told = "expected no chat among its own ancestors"
                raise WorkloadError(told, path=rows.path, column="chat_id", value=chats[row])
            here = above[here]
        root = roots[here] if roots[here] >= 0 else here
        for step in (*path, here):
            roots[step] = root
    numbers: dict[int, int] = {}
    named = [numbers.setdefault(root, len(numbers)) for root in roots]
    return np.array(named, np.int64), orphans, late


class _ServeGenOffline(Dialect):
    """Batch jobs: no times, all at 0 s; some files have no output lengths."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        rows.timed = False
        rows.declare(texts=["log_type"], block_size=_SMALL_BLOCK)
        self._chain = ChainCheck("hash_ids", rows.block_size)

    def take(self, line: int, row: Json) -> None:
        prompt = whole(row, "input_length")
        least = 0 if self.rows.failures != "error" else 1
        output = whole(row, "output_length", least, self.rows.options.default_output)
        kind = self.rows.code("log_type", str(row.get("type", "")))
        self.rows.keep(line, 0.0, prompt, output, (kind,), self._chain(row, prompt))


class _LLMServingSim(Dialect):
    """Nanoseconds."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        rows.declare()
        self._per_s = self.per_s("ns")

    def take(self, line: int, row: Json) -> None:
        time = number(row, "arrival_time_ns") / self._per_s
        prompt, output = whole(row, "input_toks"), whole(row, "output_toks")
        _keep(self.rows, line, row, time, prompt, output, (), (), "arrival_time_ns")


class _Aibrix(Dialect):
    """Milliseconds; one line holds all requests of a moment."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        rows.declare()
        self._per_s = self.per_s("ms")

    def take(self, line: int, row: Json) -> None:
        time = number(row, "timestamp") / self._per_s
        requests = row.get("requests")
        if not isinstance(requests, list):
            raise _told("not a list", "a list of requests", "requests", requests)
        for request in requests:
            try:
                self._one(line, row, time, request)
            except BadCell as bad:
                self.rows.reject(line, bad)

    def _one(self, line: int, row: Json, time: float, request: object) -> None:
        if not isinstance(request, dict):
            raise _told("not an object", "a JSON object", "requests", request)
        names = {key.lower().replace(" ", "_"): key for key in request}
        prompt = whole(request, names.get("prompt_length", "Prompt Length"))
        output = whole(request, names.get("output_length", "Output Length"))
        _keep(self.rows, line, row, time, prompt, output, (), ())


def _keep(
    rows: Rows,
    line: int,
    row: Json,
    time: float,
    prompt: int,
    output: int,
    extra: tuple[float, ...],
    chain: list[int] | tuple[()],
    key: str = "timestamp",
) -> bool:
    """Keep a row; one out of order is told with its own time."""
    try:
        return rows.keep(line, time, prompt, output, extra, chain)
    except BadCell as bad:
        bad.column, bad.value = key, repr(row[key])
        raise


def _told(reason: str, expected: str, column: str, value: object) -> BadCell:
    bad = BadCell(reason, expected)
    bad.column, bad.value = column, repr(value)
    return bad


QWEN = JsonlFormat(
    "qwen-bailian",
    "Qwen-Bailian usage traces, in seconds, with trees of chats",
    _Qwen,
    required=("chat_id", "parent_chat_id", "timestamp", "input_length", "output_length"),
)
SERVEGEN_OFFLINE = JsonlFormat(
    "servegen-offline",
    "offline batch jobs of ServeGen: lengths without times",
    _ServeGenOffline,
    required=("request_id", "input_length"),
    without=("timestamp",),
)
LLMSERVINGSIM = JsonlFormat(
    "llmservingsim",
    "traces of the simulator LLMServingSim, in nanoseconds",
    _LLMServingSim,
    required=("input_toks", "output_toks", "arrival_time_ns"),
)
AIBRIX = JsonlFormat(
    "aibrix",
    "workloads of aibrix, in milliseconds, several requests a line",
    _Aibrix,
    required=("timestamp", "requests"),
    without=("input_length",),
)
