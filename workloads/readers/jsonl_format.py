"""Traces with one JSON object a line: the loop that all dialects share."""

from abc import ABC, abstractmethod
from typing import ClassVar

from workloads.readers.cells import BadCell
from workloads.readers.json_values import Json, parse
from workloads.readers.options import UNITS_PER_S, Failures
from workloads.readers.rows import Enough, Rows
from workloads.readers.sample import Sample, share_of
from workloads.readers.text import TextFile


class Dialect(ABC):
    """Reads the objects of one file; a fresh one for each file.

    Parameters
    ----------
    rows : Rows
        Where the requests go.
    """

    def __init__(self, rows: Rows) -> None:
        self.rows = rows

    @abstractmethod
    def take(self, line: int, row: Json) -> None:
        """Hand the request, or requests, of one object to `rows`."""

    def end(self) -> None:  # noqa: B027 - nothing to do is a fine default
        """Do what is possible only when all rows are known."""

    def per_s(self, unit: str) -> int:
        """Return units of time per second: those asked for, or the dialect's own."""
        return UNITS_PER_S[self.rows.options.time_unit or unit]


class JsonlFormat:
    """A format with one JSON object a line.

    Parameters
    ----------
    name, about : str
        Name of the format, and a line on who publishes it.
    dialect : type
        Reads the objects.
    required : tuple of str
        Keys by which the format is known.
    without : tuple of str
        Keys that tell it from others by their absence.
    failures : str
        What happens to rows without output if the person does not say.
    """

    hint: ClassVar[str] = ""

    def __init__(
        self,
        name: str,
        about: str,
        dialect: type[Dialect],
        required: tuple[str, ...],
        without: tuple[str, ...] = (),
        failures: Failures = "error",
    ) -> None:
        self.name = name
        self.about = about
        self.failures: Failures = failures
        self._dialect = dialect
        self._required = required
        self._without = without

    def fits(self, sample: Sample) -> float:
        """Say how well the beginning of a file fits: 1 is certain, 0 is not at all."""
        if any(key in sample.keys for key in self._without):
            return 0.0
        return share_of(sample.keys, self._required)

    def read(self, file: TextFile, rows: Rows) -> None:
        """Read a file, line by line.

        Raises
        ------
        WorkloadError
            A bad row while strict.
        """
        dialect = self._dialect(rows)
        try:
            for line, text in file.lines():
                try:
                    dialect.take(line, parse(text))
                except BadCell as bad:
                    rows.reject(line, bad)
        except Enough:
            pass
        dialect.end()
