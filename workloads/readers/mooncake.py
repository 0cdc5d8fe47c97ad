"""Mooncake's trace format, which AIPerf, Dynamo, vLLM, SGLang and GuideLLM read, too.

Times are milliseconds (GuideLLM takes the same numbers for seconds: ``time_unit``), blocks
have 512 tokens (vLLM's own default is 16: ``block_size``). AIPerf adds ``session_id`` and, for
the later turns of a session, ``delay`` in milliseconds after the answer to the turn before
instead of a time. How long that answer takes is not known here, so such a turn is placed
`delay` after the turn before arrived, the earliest it can be; column ``think_s`` keeps the delay.

References
----------
kvcache-ai/Mooncake (Apache-2.0); Qin et al., Mooncake: Trading More Storage for Less
Computation, FAST 2025. ai-dynamo/aiperf, trace datasets.
"""

import math

import numpy as np

from workloads.readers.cells import BadCell
from workloads.readers.csv_format import turns_of
from workloads.readers.json_values import ChainCheck, Json, number, whole
from workloads.readers.jsonl_format import Dialect, JsonlFormat
from workloads.readers.rows import Rows

BLOCK_SIZE = 512
_TEXT = ("text_input", "messages", "payload")


class _Mooncake(Dialect):
    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        rows.declare(reals=["think_s"], block_size=BLOCK_SIZE)
        self._chain = ChainCheck("hash_ids", rows.block_size)
        self._per_s = self.per_s("ms")
        self._sessions: dict[str, int] = {}
        self._last: dict[str, float] = {}
        self._conversations: list[int] = []

    def take(self, line: int, row: Json) -> None:
        prompt = self._prompt(row)
        least = 0 if self.rows.failures != "error" else 1
        output = whole(row, "output_length", least, self.rows.options.default_output)
        session = row.get("session_id")
        label = None if session is None else str(session)
        time, think = self._time(row, label)
        chain = self._chain(row, prompt)
        ordered = math.isnan(think)
        try:
            kept = self.rows.keep(line, time, prompt, output, (think,), chain, ordered=ordered)
        except BadCell as bad:
            bad.column, bad.value = "timestamp", repr(row["timestamp"])
            raise
        if label is not None:
            self._last[label] = time
        if kept:
            code = -1 if label is None else self._sessions.setdefault(label, len(self._sessions))
            self._conversations.append(code)

    def _prompt(self, row: Json) -> int:
        text = next((key for key in _TEXT if key in row), None)
        if "input_length" not in row and text is not None:
            bad = BadCell("text instead of a length", "input_length, as no tokenizer is at hand")
            bad.column, bad.value = text, str(row[text])
            raise bad
        return whole(row, "input_length")

    def _time(self, row: Json, label: str | None) -> tuple[float, float]:
        """Return the time in seconds and the delay, NaN where a time is stated."""
        if "timestamp" not in row and label in self._last and "delay" in row:
            delay = number(row, "delay") / self._per_s
            return self._last[label] + delay, delay
        return number(row, "timestamp") / self._per_s, math.nan

    def end(self) -> None:
        if self._chain.trimmed:
            self.rows.remarks["more blocks than the prompt needs; trimmed"] += self._chain.trimmed
        if self._sessions:
            conversations = np.array(self._conversations, np.int64)
            self.rows.fill("conversation", conversations)
            self.rows.fill("turn", turns_of(conversations))
        else:
            self.rows.leave_out("think_s")


MOONCAKE = JsonlFormat(
    name="mooncake",
    about="Mooncake JSONL and its dialects (AIPerf, Dynamo, vLLM, SGLang, GuideLLM), in ms",
    dialect=_Mooncake,
    required=("timestamp", "input_length", "output_length"),
    without=("chat_id", "request_id"),
)
