"""Files that are there whole or not at all."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def complete(target: Path) -> Iterator[Path]:
    """Give a name to write to, which becomes the file once it is complete; devices stay as is.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     with complete(Path(folder, "a.txt")) as path:
    ...         _ = path.write_text("whole")
    ...     print([file.name for file in Path(folder).iterdir()])
    ['a.txt']
    """
    if target.exists() and not target.is_file():
        yield target
        return
    final = target.resolve()
    temporary = final.with_name(f".{final.stem}.{os.getpid()}{final.suffix}")
    try:
        yield temporary
        os.replace(temporary, final)
    finally:
        temporary.unlink(missing_ok=True)
