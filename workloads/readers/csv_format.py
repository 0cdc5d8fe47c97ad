"""Traces kept as a table of comma-separated values: one class, one instance a format."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from workloads.base import IntArray
from workloads.errors import WorkloadError
from workloads.readers.cells import BadCell, TimeReader, decimal_or_none, whole_number
from workloads.readers.csv_lines import locate, resemblance, split
from workloads.readers.options import Failures
from workloads.readers.rows import Enough, Rows
from workloads.readers.sample import Sample
from workloads.readers.text import TextFile

_LEAST_PRIORITY: Final = -(2**31)

RowReader = Callable[[list[str]], tuple[float, int, int, tuple[float, ...]]]


@dataclass(frozen=True, slots=True)
class CsvFormat:
    """A format with a header line and one request a row.

    Parameters
    ----------
    name : str
        Name of the format.
    about : str
        One line: who publishes it.
    time, prompt_tokens, output_tokens : str
        The header's names of the three columns every request needs.
    make_time_reader : callable
        Returns a fresh reader of time cells for one file.
    ticks_per_s : int
        Units per second that the reader returns; 1 for float seconds.
    time_optional : bool
        Whether a file without times is a table of lengths, all at 0 s.
    numbers : mapping of str to str
        Header's names of further whole-number columns, to the trace's names.
    seconds : mapping of str to str
        The same for columns of seconds; an empty cell stands for none (NaN).
    texts : mapping of str to str
        The same for columns of texts.
    conversation : str
        Header's name of the column that tells conversations apart; empty if there is none.
        Empty cells stand for none (-1).
    total : str
        Header's name of a column that should be prompt plus output; empty if there is none.
    failures : str
        What happens to rows without output if the person does not say.
    """

    name: str
    about: str
    time: str
    prompt_tokens: str
    output_tokens: str
    make_time_reader: Callable[[], TimeReader]
    ticks_per_s: int = 1
    time_optional: bool = False
    numbers: Mapping[str, str] = field(default_factory=dict)
    seconds: Mapping[str, str] = field(default_factory=dict)
    texts: Mapping[str, str] = field(default_factory=dict)
    conversation: str = ""
    total: str = ""
    failures: Failures = "error"

    def fits(self, sample: Sample) -> float:
        """Say how well the beginning of a file fits: 1 is certain, 0 is not at all."""
        lengths = (self.prompt_tokens, self.output_tokens)
        likeness = resemblance(sample.cells, lengths if self.time_optional else self._required)
        return likeness - (0.01 if self.time_optional and self.time not in sample.cells else 0.0)

    @property
    def _required(self) -> tuple[str, ...]:
        return (self.time, self.prompt_tokens, self.output_tokens)

    def read(self, file: TextFile, rows: Rows) -> None:
        """Read a file, row by row.

        Raises
        ------
        WorkloadError
            No rows, a column missing, or a bad row while strict.
        """
        lines = file.lines()
        line, header = next(lines, (0, ""))
        if not line:
            raise WorkloadError("no rows", path=file.path)
        try:
            names = split(header)
        except BadCell as bad:
            raise WorkloadError(f"expected {bad.expected}", path=file.path, line=line) from None
        places = self._locate(names, rows, line)
        read_row = self._row_reader(len(names), places, rows)
        sessions: list[int] = []
        codes: dict[str, int] = {}
        session_at = places.get(self.conversation)
        try:
            for line, text in lines:
                cells: list[str] = []
                try:
                    cells = split(text)
                    time, prompt, output, extra = read_row(cells)
                    kept = rows.keep(line, time, prompt, output, extra)
                except BadCell as bad:
                    if bad.value is None:
                        bad.column, bad.value = self.time, cells[places[self.time]]
                    rows.reject(line, bad)
                else:
                    if kept and session_at is not None:
                        label = cells[session_at].strip()
                        sessions.append(codes.setdefault(label, len(codes)) if label else -1)
        except Enough:
            pass
        if session_at is not None:
            add_conversations(rows, np.array(sessions, np.int64))

    def _locate(self, names: Sequence[str], rows: Rows, line: int) -> dict[str, int]:
        """Find the columns, and declare those that are there."""
        rows.timed = not self.time_optional or self.time in [name.strip() for name in names]
        required = self._required if rows.timed else self._required[1:]
        optional = (*self.numbers, *self.seconds, *self.texts, self.conversation, self.total)
        places = locate(names, required, optional, rows.path, line)
        rows.declare(
            ticks_per_s=self.ticks_per_s,
            numbers=[self.numbers[name] for name in self.numbers if name in places],
            reals=[self.seconds[name] for name in self.seconds if name in places],
            texts=[self.texts[name] for name in self.texts if name in places],
        )
        return places

    def _row_reader(self, width: int, places: Mapping[str, int], rows: Rows) -> RowReader:
        """Make the function that turns the cells of a row into its time and its numbers."""
        read_time = self.make_time_reader()
        time_at = places.get(self.time, -1)
        prompt_at, output_at = places[self.prompt_tokens], places[self.output_tokens]
        least_output = 0 if rows.failures != "error" else 1
        number_at = [(mine, places[name]) for name, mine in self.numbers.items() if name in places]
        seconds_at = [places[name] for name in self.seconds if name in places]
        text_at = [(self.texts[name], places[name]) for name in self.texts if name in places]
        total_at = places.get(self.total, -1)

        def read_row(cells: list[str]) -> tuple[float, int, int, tuple[float, ...]]:
            if len(cells) != width:
                raise _wrong_width(cells, width)
            at = time_at
            try:
                time = read_time(cells[at]) if time_at >= 0 else 0.0
                output = whole_number(cells[at := output_at], least_output)
                prompt = whole_number(cells[at := prompt_at], 1 if output else 0)
                more: list[float] = [
                    _further(name, cells[at := place], output) for name, place in number_at
                ]
                more += [decimal_or_none(cells[at := place]) for place in seconds_at]
            except BadCell as bad:
                bad.column = next(name for name, place in places.items() if place == at)
                bad.value = cells[at]
                raise
            more += [rows.code(name, cells[place].strip()) for name, place in text_at]
            if total_at >= 0 and cells[total_at].strip() != str(prompt + output):
                rows.remarks[f"{self.total} is not prompt plus output"] += 1
            return time, prompt, output, tuple(more)

        return read_row


def _further(name: str, text: str, output: int) -> int:
    """Read a further number; a cap that is not stated is the output."""
    if name == "max_tokens":
        return whole_number(text, max(output, 1)) if text.strip() else max(output, 1)
    return whole_number(text, _LEAST_PRIORITY if name == "priority" else 0)


def add_conversations(rows: Rows, sessions: IntArray) -> None:
    """Add conversation and turn; one that changes its model or client is remarked."""
    rows.fill("conversation", sessions)
    rows.fill("turn", turns_of(sessions))
    for column, told in (("model", "model"), ("tenant", "client")):
        codes = rows.codes_of(column)
        if codes is None:
            continue
        pairs = np.unique(np.stack([sessions, codes])[:, sessions >= 0], axis=1)
        changes = int(np.count_nonzero(np.bincount(pairs[0]) > 1)) if pairs.size else 0
        if changes:
            rows.remarks[f"a conversation changes its {told}"] += changes


def turns_of(conversations: IntArray) -> IntArray:
    """Return the position of each row in its conversation; 0 for rows of none (-1).

    Examples
    --------
    >>> turns_of(np.array([5, -1, 5, 2, -1])).tolist()
    [0, 0, 1, 0, 0]
    """
    order = np.argsort(conversations, kind="stable")
    ordered = conversations[order]
    first = np.searchsorted(ordered, ordered)
    turns = np.empty(conversations.size, np.int64)
    turns[order] = np.arange(conversations.size) - first
    turns[conversations < 0] = 0
    return turns


def _wrong_width(cells: Sequence[str], width: int) -> BadCell:
    reason = "short row" if len(cells) < width else "long row"
    bad = BadCell(reason, f"{width} cells, not {len(cells)}")
    bad.value = ",".join(cells)
    return bad
