"""The command `batchlab regress` in this process, so that faults can be planted in the code."""

from pathlib import Path
from typing import NamedTuple

import pytest

from simulator.cli import main

SUITE = Path(__file__).with_name("suite.yaml")


class Outcome(NamedTuple):
    """Exit code, standard output and standard error."""

    code: int
    out: str
    err: str


class Gate:
    """Calls `batchlab regress`."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, *words: object) -> Outcome:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as leave:
            main(["regress", *map(str, words)])
        assert isinstance(leave.value.code, int)
        return Outcome(leave.value.code, *self._capsys.readouterr())
