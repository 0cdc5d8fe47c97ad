"""The command line as a fixture: in a fresh process, or in a fork of a warm one."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.process import PROGRAM, Command, Outcome, environment

SERVER = Path(__file__).with_name("fork_server.py")


@pytest.fixture
def batchlab(tmp_path: Path) -> Command:
    """Start the installed program in an empty folder."""

    def call(*words: object, path: Path | None = None, **env: str) -> Outcome:
        done = subprocess.run(
            [PROGRAM, *map(str, words)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment(path, **env),
            timeout=120,
            check=False,
        )
        return Outcome(done.returncode, done.stdout, done.stderr)

    return call


@pytest.fixture(scope="session")
def fork_server() -> Iterator["subprocess.Popen[str]"]:
    """Start a warm interpreter that forks for every command."""
    command, pipe, env = [sys.executable, SERVER], subprocess.PIPE, environment()
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=env) as server:
        yield server


@pytest.fixture
def quick(fork_server: "subprocess.Popen[str]", tmp_path: Path) -> Command:
    """Start the program in a fork of a warm interpreter: milliseconds instead of a second."""

    def call(*words: object, path: Path | None = None, **env: str) -> Outcome:
        order = {"words": [str(word) for word in words], "cwd": str(tmp_path), "env": env}
        order["path"] = [] if path is None else [str(path)]
        assert fork_server.stdin is not None
        assert fork_server.stdout is not None
        print(json.dumps(order), file=fork_server.stdin, flush=True)
        return Outcome(**json.loads(fork_server.stdout.readline()))

    return call
