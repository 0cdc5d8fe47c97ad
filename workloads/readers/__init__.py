"""Readers of trace files: one file a format, one table of them.

A new format is an object with `name`, `about`, `fits` and `read` (`CsvFormat` makes one of a
few names) and one more entry in `READERS`.
"""

from os import PathLike
from typing import Final, Protocol

from workloads.errors import WorkloadError
from workloads.readers.azure import AZURE
from workloads.readers.text import TextFile
from workloads.readers.vidur import VIDUR
from workloads.trace import Trace

__all__ = ["READERS", "TraceReader", "read_trace"]

_SIMILAR: Final = 0.5


class TraceReader(Protocol):
    """Reads one format."""

    @property
    def name(self) -> str:
        """Name of the format, as a person writes it."""
        ...

    @property
    def about(self) -> str:
        """One line: what it is and who publishes it."""
        ...

    def fits(self, first_line: str) -> float:
        """Say how well the first line of a file fits: 1 is certain, 0 is not at all."""
        ...

    def read(self, file: TextFile, *, strict: bool) -> Trace:
        """Read a file of this format."""
        ...


READERS: Final[dict[str, TraceReader]] = {reader.name: reader for reader in (AZURE, VIDUR)}
"""The formats by name."""


def read_trace(
    path: str | PathLike[str], format: str | None = None, *, strict: bool = True
) -> Trace:
    """Read a trace file, plain or gzip.

    Parameters
    ----------
    path : path-like
        The file.
    format : str, optional
        Name of the format, a key of `READERS`; found by the first line if left out.
    strict : bool, default True
        True: the first bad row, or row out of order, is an error. False: bad rows are
        dropped and counted by reason, rows out of order are sorted.

    Returns
    -------
    Trace
        The requests, the first at 0 s. Column ``line`` holds their lines in the file.

    Raises
    ------
    WorkloadError
        No such file, unknown format, a column missing, no rows, or a bad row while strict.
        The message names the file, and the line and column where there is one.
    """
    file = TextFile(path)
    return _reader(file, format).read(file, strict=strict)


def _reader(file: TextFile, format_name: str | None) -> TraceReader:
    if format_name is not None:
        if format_name not in READERS:
            raise WorkloadError(f"expected a format out of {_known()}", value=format_name)
        return READERS[format_name]
    first_line = file.first_line()
    if not first_line:
        raise WorkloadError("no rows", path=file.path)
    best = max(READERS.values(), key=lambda reader: reader.fits(first_line))
    if best.fits(first_line) < _SIMILAR:
        raise WorkloadError(
            f"expected the first line of a format out of {_known()}",
            path=file.path,
            line=1,
            value=first_line,
        )
    return best


def _known() -> str:
    return ", ".join(READERS)
