"""Starts the command line many times from one warm interpreter; each time in a process of its own.

Reads one JSON object a line (`words`, `cwd`, `path`, `env`); answers `code`, `out` and `err`.
A child is a fork: it has its own standard output, standard error and exit code, as a fresh
process would, but does not import everything again.
"""

import json
import os
import sys
import tempfile
import traceback
from typing import IO, Any, NoReturn

import pandas as pd
import pyarrow.parquet as pq

import simulator.calibrate.steps
import simulator.cli
import simulator.commands.capacity
import simulator.commands.compare
import simulator.commands.sweep
import simulator.engine_check
import simulator.profile_gpu
import simulator.result
import simulator.run

WARM = (
    pd,
    pq,
    simulator.calibrate.steps,
    simulator.engine_check,
    simulator.commands.capacity,
    simulator.commands.compare,
    simulator.commands.sweep,
    simulator.profile_gpu,
    simulator.result,
    simulator.run,
)
"""Modules that the commands import when they need them."""


def serve() -> None:
    """Answer until standard input ends."""
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(json.loads(line))) + "\n")
        sys.stdout.flush()


def answer(order: dict[str, Any]) -> dict[str, Any]:
    """Run one command line in a child and return what it left."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            become(order, out, err)
        _, status = os.waitpid(child, 0)
        texts = {"out": read(out), "err": read(err)}
    return {"code": os.waitstatus_to_exitcode(status)} | texts


def become(order: dict[str, Any], out: IO[bytes], err: IO[bytes]) -> NoReturn:
    """Be the command: in the child, with redirected output."""
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    os.chdir(order["cwd"])
    os.environ.update(order["env"])
    sys.path[:0] = order["path"]
    code = 70
    try:
        simulator.cli.main(order["words"])
    except SystemExit as leave:
        code = leave.code if isinstance(leave.code, int) else 0
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def read(file: IO[bytes]) -> str:
    """Return what was written to a file."""
    file.seek(0)
    return file.read().decode()


if __name__ == "__main__":
    serve()
