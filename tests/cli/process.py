"""What the tests of the command line share: how a process is started, and what it left."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

PROGRAM = Path(sys.executable).with_name("batchlab")

FAST = ("--cost.kind", "fixed", "--cost.step-ms", "10", "--num-requests", "40")
"""A run of the default workload that needs no GPU tables and takes no time."""


@dataclass(frozen=True)
class Outcome:
    """Exit code, standard output and standard error of a process."""

    code: int
    out: str
    err: str

    def message(self) -> str:
        """Return the error message, which has to be all there is."""
        assert self.out == ""
        assert self.err.startswith("batchlab: error: "), self.err
        assert self.err.count("\n") == 1, self.err
        return self.err.removeprefix("batchlab: error: ").rstrip()


class Command(Protocol):
    """Calls `batchlab`; `path` is a folder to import from."""

    def __call__(self, *words: object, path: Path | None = None, **env: str) -> Outcome: ...


def environment(path: Path | None = None, **more: str) -> dict[str, str]:
    """Return the environment without what could change the output, and with what is given."""
    drop = ("COLUMNS", "NO_COLOR", "PYTHONPATH", "PYTHONHASHSEED")
    kept = {key: value for key, value in os.environ.items() if key not in drop}
    return kept | ({} if path is None else {"PYTHONPATH": str(path)}) | more
