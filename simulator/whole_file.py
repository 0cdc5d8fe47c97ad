"""Files that are there whole or not at all, and one line where they cannot be."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from simulator.errors import UserError
from workloads.complete import complete


@contextmanager
def whole_file(target: Path) -> Iterator[Path]:
    """Give a name to write to, which becomes the file once it is complete.

    Raises
    ------
    UserError
        If it cannot be written.
    """
    try:
        with complete(target) as path:
            yield path
    except OSError as error:
        raise UserError(f"{target}: cannot be written: {error.strerror or error}") from None


def write_whole(target: Path, text: str) -> None:
    """Write a text into a file, all of it or nothing.

    Raises
    ------
    UserError
        If it cannot be written.
    """
    with whole_file(target) as path:
        path.write_text(text, encoding="utf-8", newline="")
