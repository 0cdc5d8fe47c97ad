"""The folder of a sweep: a file for every finished run, written whole or not at all."""

import json
import os
import shutil
import weakref
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from simulator.errors import UserError
from simulator.experiments.fingerprint import code_hash
from simulator.experiments.task import Row, Task
from simulator.result import MANIFEST, check_target, versions
from simulator.whole_file import whole_file, write_whole

TIMING = "timing.json"
"""Wall-clock times; the one file that differs when a sweep is repeated."""


class _Lock:
    """Keeps others out of a folder until it is closed, or the process ends in whatever way.

    Where the system or the file system has no such locks, it keeps nobody out.
    """

    def __init__(self, folder: Path) -> None:
        self.close: Callable[[], object] = lambda: None
        try:
            import fcntl
        except ImportError:  # not a POSIX system
            return
        handle = os.open(folder, os.O_RDONLY)
        self.close = weakref.finalize(self, os.close, handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            text = "another process writes its results there; wait for it, or choose another folder"
            raise UserError(f"{folder}: {text}") from None
        except OSError:
            pass


class Store:
    """The folder of a sweep; while it is open, no other process may write into it.

    Parameters
    ----------
    folder : path
        New, or of the same sweep.
    definition : dict
        What was asked for; a folder belongs to one definition.
    kind : str
        Kind of results, such as sweep.
    force : bool
        Replace the results of something else. Finished runs that both have in common stay.

    Raises
    ------
    UserError
        If the folder belongs to something else, is in use, or cannot be written.
    """

    def __init__(
        self, folder: Path, definition: dict[str, Any], *, kind: str = "sweep", force: bool = False
    ) -> None:
        self.folder = folder
        self.points = folder / "points"
        definition = json.loads(json.dumps(definition))  # as it will be read again
        manifest = {
            "kind": kind,
            "definition": definition,
            "code_sha256": code_hash(),
            "versions": versions(),
        }
        is_new = self._open()
        found = _load(folder / MANIFEST)
        same = isinstance(found, dict) and (found.get("kind"), found.get("definition")) == (
            kind,
            definition,
        )
        if not same and not is_new:
            self._take_over(force, found, kind)
        if found != manifest:
            self.write_json(MANIFEST, manifest)
        with self._as_user_error():
            self.points.mkdir(exist_ok=True)

    def _open(self) -> bool:
        """Create and lock the folder; return whether nothing has been finished in it yet."""
        if self.folder.exists() and not self.folder.is_dir():
            return False
        with self._as_user_error():
            self.folder.mkdir(parents=True, exist_ok=True)
            self._lock = _Lock(self.folder)
            found = list(self.folder.iterdir())
            is_new = all(path.match(".manifest.*.json") for path in found)
            for draft in found if is_new else ():  # of a process that was killed
                draft.unlink()
            return is_new

    def close(self) -> None:
        """Let others write into the folder."""
        self._lock.close()

    @contextmanager
    def _as_user_error(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(f"{self.folder}: cannot be written: {error.strerror}") from None

    def _take_over(self, force: bool, found: object, kind: str) -> None:
        if not force and isinstance(found, dict) and found.get("kind") == kind:
            raise UserError(
                f"{self.folder}: exists already and holds another {kind}; choose another folder, "
                "or add --force to replace it (runs that both share are kept)"
            )
        check_target(self.folder, force)
        for path in self.folder.iterdir():
            if path == self.points:
                continue
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()

    def load(self, task: Task) -> Row | None:
        """Return the row of a finished run, or None; a damaged file counts as not finished."""
        return load_row(self.folder, task)

    def keep(self, task: Task, row: Row) -> None:
        """Write the row of a finished run; not an error that may pass."""
        if not row.get("transient"):
            write_whole(self.points / f"{task.key}.json", json.dumps(row, allow_nan=False))

    def prune(self, tasks: Iterable[Task]) -> None:
        """Remove what does not belong to these tasks."""
        names = {f"{task.key}.json" for task in tasks}
        for path in self.points.iterdir():
            if path.name not in names:
                path.unlink(missing_ok=True)

    def write_json(self, name: str, data: object) -> None:
        """Write a file of JSON."""
        text = json.dumps(data, indent=2, allow_nan=False) + "\n"
        self.write_text(name, text)

    def write_text(self, name: str, text: str) -> None:
        """Write a file of text."""
        write_whole(self.folder / name, text)

    def write(self, name: str, writer: Callable[[Path], object]) -> None:
        """Let `writer` fill a file, which takes its name when it is complete.

        Raises
        ------
        UserError
            If it cannot be written.
        """
        with whole_file(self.folder / name) as path:
            writer(path)

    def timing(self) -> dict[str, Any]:
        """Return what was noted of wall-clock times, empty at first."""
        found = _load(self.folder / TIMING)
        return found if isinstance(found, dict) else {}


def load_row(folder: Path, task: Task) -> Row | None:
    """Return the row of a finished run in the folder of a sweep, or None."""
    row = _load(folder / "points" / f"{task.key}.json")
    if not isinstance(row, dict):
        return None
    is_row = isinstance(row.get("metrics"), dict) or isinstance(row.get("error"), str)
    return row if is_row else None


def _load(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
