"""Traces kept as a table of comma-separated values: one class, one instance a format."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from workloads.errors import WorkloadError
from workloads.readers.cells import BadCell, whole_number
from workloads.readers.csv_lines import locate, resemblance, split
from workloads.readers.rows import Rows
from workloads.readers.text import TextFile
from workloads.trace import Trace


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
    counts : mapping of str to str
        Header's names of further whole-number columns, to the trace's names.
    """

    name: str
    about: str
    time: str
    prompt_tokens: str
    output_tokens: str
    make_time_reader: Callable[[], Callable[[str], float]]
    ticks_per_s: int = 1
    counts: Mapping[str, str] = field(default_factory=dict)

    @property
    def required(self) -> tuple[str, str, str]:
        """Names of the columns that have to be there."""
        return (self.time, self.prompt_tokens, self.output_tokens)

    def fits(self, first_line: str) -> float:
        """Say how well the first line fits: 1 is certain, 0 is not at all."""
        return resemblance(split(first_line), self.required)

    def read(self, file: TextFile, *, strict: bool) -> Trace:
        """Read a file.

        Parameters
        ----------
        file : TextFile
            The file.
        strict : bool
            True: the first bad row is an error. False: bad rows are dropped and counted.

        Returns
        -------
        Trace
            The rows in order of time, the first at 0 s, with the column ``line``.

        Raises
        ------
        WorkloadError
            No rows, a column missing, or a bad row while strict.
        """
        lines = file.lines()
        line, header = next(lines, (0, ""))
        if not line:
            raise WorkloadError("no rows", path=file.path)
        names = split(header)
        places = locate(names, self.required, tuple(self.counts), file.path, line)
        extra = [name for name in self.counts if name in places]
        rows = Rows(
            file.path,
            strict=strict,
            ticks_per_s=self.ticks_per_s,
            extra=[self.counts[name] for name in extra],
        )
        read_row = self._row_reader(len(names), places, extra)
        for line, text in lines:
            cells = split(text)
            try:
                rows.add(line, *read_row(cells))
            except BadCell as bad:
                if bad.value is None:
                    bad.column, bad.value = self.time, cells[places[self.time]]
                rows.reject(line, bad)
        return rows.trace(file.sha256, self.name)

    def _row_reader(
        self, width: int, places: Mapping[str, int], extra: Sequence[str]
    ) -> Callable[[list[str]], tuple[float, tuple[int, ...]]]:
        """Make the function that turns the cells of a row into its time and its numbers."""
        read_time = self.make_time_reader()
        time_at, prompt_at, output_at = (places[name] for name in self.required)
        extra_at = [places[name] for name in extra]

        def read_row(cells: list[str]) -> tuple[float, tuple[int, ...]]:
            if len(cells) != width:
                raise _wrong_width(cells, width)
            at = time_at
            try:
                time = read_time(cells[at])
                prompt = whole_number(cells[at := prompt_at])
                output = whole_number(cells[at := output_at])
                more = [whole_number(cells[at := place], least=0) for place in extra_at]
            except BadCell as bad:
                bad.column = next(name for name, place in places.items() if place == at)
                bad.value = cells[at]
                raise
            return time, (prompt, output, *more)

        return read_row


def _wrong_width(cells: Sequence[str], width: int) -> BadCell:
    reason = "short row" if len(cells) < width else "long row"
    bad = BadCell(reason, f"{width} cells, not {len(cells)}")
    bad.value = ",".join(cells)
    return bad
