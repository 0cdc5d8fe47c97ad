"""The table of formats, and how a file is read in one of them."""

from collections.abc import Mapping
from os import PathLike
from pathlib import Path
from typing import Final, Protocol

from workloads.errors import WorkloadError
from workloads.readers.azure import AZURE
from workloads.readers.burstgpt import ARENA, BURSTGPT
from workloads.readers.conversations import KvCacheTester, conversation_files
from workloads.readers.generic import GENERIC_JSONL, GenericCsv, GenericParquet
from workloads.readers.jsonl_dialects import AIBRIX, LLMSERVINGSIM, QWEN, SERVEGEN_OFFLINE
from workloads.readers.mooncake import MOONCAKE
from workloads.readers.options import Failures, ReadOptions, TimeUnit
from workloads.readers.results import AIPERF_RECORDS, GuideLlmResult, VllmResult
from workloads.readers.rows import Rows
from workloads.readers.sample import CLIENT_FILE, Sample
from workloads.readers.text import TextFile
from workloads.readers.vidur import SPLITWISE, VIDUR
from workloads.trace import Trace

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

    @property
    def failures(self) -> Failures:
        """What happens to rows without output if the person does not say."""
        ...

    def fits(self, sample: Sample) -> float:
        """Say how well the beginning of a file fits: 1 is certain, 0 is not at all."""
        ...

    def read(self, file: TextFile, rows: Rows) -> None:
        """Hand the rows of a file to `rows`."""
        ...


_ALL: Final[tuple[TraceReader, ...]] = (
    AZURE,
    VIDUR,
    SPLITWISE,
    BURSTGPT,
    ARENA,
    MOONCAKE,
    QWEN,
    SERVEGEN_OFFLINE,
    LLMSERVINGSIM,
    AIBRIX,
    KvCacheTester(),
    VllmResult(),
    GuideLlmResult(),
    AIPERF_RECORDS,
    GenericCsv(),
    GENERIC_JSONL,
    GenericParquet(),
)

READERS: Final[Mapping[str, TraceReader]] = {reader.name: reader for reader in _ALL}
"""The formats by name."""


def read_trace(
    path: str | PathLike[str],
    format: str | None = None,
    *,
    strict: bool = True,
    failures: Failures | None = None,
    start_s: float | None = None,
    end_s: float | None = None,
    max_rows: int | None = None,
    time_unit: TimeUnit | None = None,
    block_size: int | None = None,
    default_output: int | None = None,
    columns: Mapping[str, str] | None = None,
) -> Trace:
    """Read a trace file, plain, gzip or zstd, or a folder of conversations.

    Parameters
    ----------
    path : path-like
        The file.
    format : str, optional
        Name of the format, a key of `READERS`; found by the content if left out.
    strict, failures, start_s, end_s, max_rows, time_unit, block_size, default_output, columns
        See `ReadOptions`. Rows that these leave out are never stored, so that a window of a
        file of any length fits into memory.

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
    options = ReadOptions(
        strict=strict,
        failures=failures,
        start_s=start_s,
        end_s=end_s,
        max_rows=max_rows,
        time_unit=time_unit,
        block_size=block_size,
        default_output=default_output,
        columns=columns,
    )
    file = TextFile(path)
    reader = READERS[detect_format(path) if format is None else _known_name(format)]
    rows = Rows(file.path, options, reader.failures)
    reader.read(file, rows)
    folder = file.path.is_dir()
    return rows.trace(None if folder else file.digest(), reader.name)


def detect_format(path: str | PathLike[str]) -> str:
    """Return the name of the format that fits the beginning of a file best.

    Raises
    ------
    WorkloadError
        No such file, no rows, or a format that is not known.
    """
    file = TextFile(path)
    if file.path.is_dir():
        return _detect_folder(file.path)
    if CLIENT_FILE.fullmatch(file.path.name):
        told = "expected a file of requests, got one file of a ServeGen client: read_clients"
        raise WorkloadError(f"{told} reads its folder", path=file.path)
    sample = Sample.of(file.start())
    if not sample.line:
        raise WorkloadError("no rows", path=file.path)
    if sample.line.startswith("chunk-") or "chunk-" in sample.line[:512]:
        told = "expected a file of requests, got ServeGen clients: read_clients reads those"
        raise WorkloadError(told, path=file.path)
    best = max(_ALL, key=lambda reader: reader.fits(sample))
    if best.fits(sample) < _SIMILAR:
        raise WorkloadError(
            f"expected the first line of a format out of {_known()}",
            path=file.path,
            line=1,
            value=sample.line,
        )
    return best.name


def _detect_folder(folder: Path) -> str:
    if any(folder.glob("chunk-*-trace.csv")):
        told = "expected a file, got a folder of ServeGen clients: read_clients reads those"
        raise WorkloadError(told, path=folder)
    if not conversation_files(folder):
        raise WorkloadError("expected a file, got a directory without conversations", path=folder)
    return detect_format(conversation_files(folder)[0])


def _known_name(format_name: str) -> str:
    if format_name not in READERS:
        raise WorkloadError(f"expected a format out of {_known()}", value=format_name)
    return format_name


def _known() -> str:
    return ", ".join(READERS)
