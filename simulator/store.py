"""The folder of a sweep: a file for every finished run, written whole or not at all."""

import json
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from simulator.errors import UserError
from simulator.fingerprint import code_hash
from simulator.result import MANIFEST, check_target, versions
from simulator.task import Row, Task

TIMING = "timing.json"
"""Wall-clock times; the one file that differs when a sweep is repeated."""


class Store:
    """The folder of a sweep.

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
        If the folder belongs to something else or cannot be written.
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
        found = _load(folder / MANIFEST)
        same = isinstance(found, dict) and (found.get("kind"), found.get("definition")) == (
            kind,
            definition,
        )
        if not same:
            self._take_over(force, found, kind)
        try:
            self.points.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(f"{folder}: cannot be written: {error.strerror}") from None
        if found != manifest:
            self.write_json(MANIFEST, manifest)

    def _take_over(self, force: bool, found: object, kind: str) -> None:
        if not force and isinstance(found, dict) and found.get("kind") == kind:
            raise UserError(
                f"{self.folder}: exists already and holds another {kind}; choose another folder, "
                "or add --force to replace it (runs that both share are kept)"
            )
        check_target(self.folder, force)
        if not self.folder.exists():
            return
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
            text = json.dumps(row, allow_nan=False)
            self._replace(self.points / f"{task.key}.json", lambda path: path.write_text(text))

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
        self.write(name, lambda path: path.write_text(text, encoding="utf-8"))

    def write(self, name: str, writer: Callable[[Path], object]) -> None:
        """Let `writer` fill a file, which takes its name when it is complete.

        Raises
        ------
        UserError
            If it cannot be written.
        """
        self._replace(self.folder / name, writer)

    def _replace(self, target: Path, writer: Callable[[Path], object]) -> None:
        temporary = target.with_name(f".{target.stem}.{os.getpid()}{target.suffix}")
        try:
            writer(temporary)
            os.replace(temporary, target)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise UserError(f"{target}: cannot be written: {error.strerror or error}") from None

    def timing(self) -> dict[str, Any]:
        """Return what was noted of wall-clock times, empty at first."""
        found = _load(self.folder / TIMING)
        return found if isinstance(found, dict) else {}


def load_row(folder: Path, task: Task) -> Row | None:
    """Return the row of a finished run in the folder of a sweep, or None."""
    row = _load(folder / "points" / f"{task.key}.json")
    return row if isinstance(row, dict) and ("metrics" in row or "error" in row) else None


def _load(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
