"""Text files of any size, plain, gzip or zstd, line by line, with a digest of what was read."""

import gzip
import zlib
from collections.abc import Iterator
from hashlib import sha256
from io import BufferedReader
from os import PathLike
from pathlib import Path
from typing import BinaryIO, Final, cast

from workloads.errors import WorkloadError

_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_MARK: Final = b"\xef\xbb\xbf"
_LONGEST_LINE: Final = 2**24
_BLOCK: Final = 2**20


class TextFile:
    """A UTF-8 text file, opened anew for each pass.

    Gzip and zstd are recognised by their first bytes, not by the name. Lines may end in LF or CRLF,
    the last one need not, and a byte order mark at the start is skipped. Memory does not
    grow with the file.

    Parameters
    ----------
    path : path-like
        The file.

    Raises
    ------
    WorkloadError
        While reading: no such file, a directory, damaged compressed data, not UTF-8, or a
        line of more than 16 MiB.
    """

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path = Path(path)
        self.sha256: str | None = None
        """Digest of the uncompressed bytes, known after a complete pass."""

    def lines(self) -> Iterator[tuple[int, str]]:
        """Yield the number, from 1, and the text of each line that is not blank."""
        digest = sha256()
        number = 0
        for raw in self._whole_lines():
            digest.update(raw)
            for text in self._decode(number, raw).split("\n"):
                number += 1
                if text and not text.isspace():
                    yield number, text
            number -= raw.endswith(b"\n")
        self.sha256 = digest.hexdigest()

    def first_line(self) -> str:
        """Return the first line that is not blank, or an empty string."""
        return next(self.lines(), (0, ""))[1]

    def start(self, size: int = _BLOCK) -> bytes:
        """Return the first bytes, uncompressed."""
        return next(self._blocks(size), b"")

    def text(self) -> str:
        """Return the whole file: for formats that are one JSON document."""
        raw = b"".join(self._blocks())
        self.sha256 = sha256(raw).hexdigest()
        return self._decode(0, raw)

    def digest(self) -> str:
        """Return the digest of all bytes, with another pass if no pass was complete."""
        if self.sha256 is None:
            total = sha256()
            for block in self._blocks():
                total.update(block)
            self.sha256 = total.hexdigest()
        return self.sha256

    def _whole_lines(self) -> Iterator[bytes]:
        """Yield the bytes of the file in pieces that end with a line."""
        rest = b""
        line = 1
        for block in self._blocks():
            whole, newline, tail = (rest + block).rpartition(b"\n")
            line += block.count(b"\n")
            if len(tail) > _LONGEST_LINE:
                told = "expected lines of at most 16 MiB"
                raise WorkloadError(told, path=self.path, line=line)
            if newline:
                yield whole + newline
            rest = tail
        if rest:
            yield rest

    def _blocks(self, size: int | None = None) -> Iterator[bytes]:
        try:
            with self._open() as stream:
                yield from iter(lambda: stream.read(size or _BLOCK), b"")
        except FileNotFoundError:
            raise WorkloadError("no such file", path=self.path) from None
        except IsADirectoryError:
            raise WorkloadError("expected a file, got a directory", path=self.path) from None
        except (gzip.BadGzipFile, EOFError, zlib.error) as error:
            raise WorkloadError(f"damaged gzip data: {error}", path=self.path) from None
        except OSError as error:
            told = (
                f"cannot be read: {error.strerror}" if error.strerror else f"damaged data: {error}"
            )
            raise WorkloadError(told, path=self.path) from None

    def _open(self) -> BinaryIO:
        stream = self.path.open("rb")
        magic = stream.peek(4)[:4]
        if magic == _ZSTD:
            return _open_zstd(stream)
        if magic[:2] != _GZIP:
            return stream
        return cast(BinaryIO, BufferedReader(_OwningGzip(stream)))

    def _decode(self, lines_before: int, raw: bytes) -> str:
        try:
            text = (raw if lines_before else raw.removeprefix(_MARK)).decode()
        except UnicodeDecodeError as error:
            line = lines_before + 1 + error.object.count(b"\n", 0, error.start)
            value = error.object[error.start :][:8]
            raise WorkloadError(
                "expected UTF-8 text", path=self.path, line=line, value=value
            ) from None
        return text.replace("\r\n", "\n")


class _OwningGzip(gzip.GzipFile):
    """A gzip stream that closes the file below it."""

    def __init__(self, stream: BinaryIO) -> None:
        super().__init__(fileobj=stream)
        self._below = stream

    def close(self) -> None:
        super().close()
        self._below.close()


def _open_zstd(stream: BinaryIO) -> BinaryIO:
    """Return the uncompressed stream. pyarrow is slow to import and needed here only."""
    import pyarrow as pa

    return cast(BinaryIO, pa.CompressedInputStream(pa.PythonFile(stream, mode="r"), "zstd"))
