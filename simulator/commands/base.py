"""What the commands that run many specifications share: base, executor, progress."""

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from simulator.errors import UserError
from simulator.experiments.executors import Dask, Executor, Local
from simulator.experiments.sweep import Watch
from simulator.experiments.task import Task
from simulator.settings import Nested, combine, merge, read_text, shorthands
from simulator.spec import RunSpec, parse_yaml
from simulator.wall_limit import HELP, check_limit

Words = Annotated[list[str] | None, Parameter(consume_multiple=True, negative="")]
Flag = Annotated[bool, Parameter(negative="")]
Settings = Annotated[Nested | None, Parameter(parse=False)]
"""The dotted options; the command line hands them over."""
Timeout = Annotated[float | None, Parameter(help=HELP)]
"""Seconds that a run may take."""


@Parameter(name="*")
@dataclass(frozen=True)
class Short:
    """Short options for keys of the specification."""

    trace: Path | None = None
    """Request trace to replay (short for --workload.path)."""
    gpu: str | None = None
    """GPU type (short for --cost.gpu)."""
    model: str | None = None
    """Model (short for --cost.model)."""
    request_rate: Annotated[str | None, Parameter(name=["--request-rate", "--rate"])] = None
    """Mean requests per second; time is stretched to it."""
    num_requests: Annotated[str | None, Parameter(name=["--num-requests", "--num-prompts"])] = None
    """Number of requests."""
    goodput: Annotated[list[str] | None, Parameter(consume_multiple=(1, None), negative="")] = None
    """Objectives in ms, such as ttft:500 tpot:50 e2el:5000."""
    seed: str | None = None
    """Root of all random streams."""


@Parameter(name="*")
@dataclass(frozen=True)
class Where:
    """Where the runs are done."""

    jobs: int = 1
    """Worker processes. The results do not depend on it."""
    scheduler: str | None = None
    """Address of a Dask scheduler (tcp://HOST:PORT) that has the runs done."""
    timeout: Timeout = None

    def executor(self) -> Executor:
        """Return the executor that was asked for."""
        if self.jobs < 1:
            raise UserError(f"--jobs {self.jobs}: expected at least 1")
        check_limit(self.timeout)
        if self.scheduler is None:
            return Local(self.jobs, self.timeout)
        if self.jobs != 1:
            raise UserError("--jobs: does not apply with --scheduler; the cluster has its workers")
        if self.timeout is not None:
            raise UserError(
                "--timeout: does not apply with --scheduler; Dask workers run tasks in threads, "
                "where no alarm reaches them"
            )
        return Dask(self.scheduler)


NOTHING, HERE = Short(), Where()
"""What a command gets without such options."""


def read_file(spec: Path | None) -> tuple[dict[str, Any], str]:
    """Return the content of a YAML file, and how messages call it; empty without a file."""
    if spec is None:
        return {}, ""
    return parse_yaml(read_text(spec), str(spec)), str(spec)


def base_of(data: Nested, settings: Nested | None, short: Short) -> Nested:
    """Return the specification that all runs share, before anything varies."""
    base = {**RunSpec().to_dict(), **data}
    options = settings or {}
    more = shorthands(
        trace=short.trace,
        gpu=short.gpu,
        model=short.model,
        model_config=None,
        request_rate=short.request_rate,
        num_requests=short.num_requests,
        goodput=short.goodput or (),
        seed=short.seed,
        workload=merge(base, options)["workload"],
    )
    return merge(base, combine(options, more))


def check_figure(path: Path | None) -> None:
    """Check before a long run that a figure can be written.

    Raises
    ------
    UserError
        If the folder is missing or the ending unknown.
    """
    if path is None:
        return
    if path.suffix not in (".png", ".pdf", ".svg"):
        raise UserError(f"--figure {path}: expected a name that ends in .png, .pdf or .svg")
    if not path.parent.is_dir():
        raise UserError(f"--figure {path}: there is no folder {path.parent}")


class Bar(Watch):
    """Shows a sweep on standard error: an estimate, then a bar with rate and time left.

    Parameters
    ----------
    what : str
        Word before the bar.
    executor : Executor
        Where the runs are done.
    known : dict
        Seconds and size of runs done earlier, as `timing` returns them.
    """

    def __init__(self, what: str, executor: Executor, known: dict[str, Any] | None = None) -> None:
        from tqdm import tqdm

        self._bar = tqdm(desc=what, unit="req", unit_scale=True, disable=None, leave=False)
        self._what = what
        self._executor = executor
        self._known = known or {}
        self._started = time.perf_counter()
        self._seconds = float(self._known.get("run_seconds", 0.0))
        self._size = int(self._known.get("requests", 0))
        self._total = self._finished = 0

    def begin(self, tasks: Sequence[Task], todo: Sequence[Task]) -> None:
        """Say what is left, and how long it will take if runs have been timed before."""
        self._total, self._finished = len(tasks), len(tasks) - len(todo)
        if self._finished:
            self._say(f"{self._finished} of {len(tasks)} runs are done already")
        self._bar.reset(total=sum(task.size for task in tasks))
        self._bar.update(sum(task.size for task in tasks) - sum(task.size for task in todo))
        self._bar.initial = self._bar.n  # the rate is that of the runs done now
        if todo and self._size:
            self._announce(todo, self._seconds / self._size, "runs finished earlier")

    def estimate(self, todo: Sequence[Task], seconds_per_size: float, num_probes: int) -> None:
        """Say how long the others will take if they are like the first."""
        if not self._known.get("requests"):
            runs = "the first run" if num_probes == 1 else f"the first {num_probes} runs"
            self._announce(todo, seconds_per_size, runs)

    def done(self, task: Task, seconds: float) -> None:
        """Count one more."""
        self._finished += 1
        self._seconds += seconds
        self._size += task.size
        self._bar.set_description(f"{self._what} {self._finished}/{self._total} runs", False)
        self._bar.update(task.size)

    def close(self) -> None:
        """Take the bar away and say how long it took."""
        self._bar.close()
        print(f"{self._what}: {time.perf_counter() - self._started:.1f} s", file=sys.stderr)

    def timing(self) -> dict[str, Any]:
        """Return the wall-clock times, for the next estimate."""
        return {
            "run_seconds": round(self._seconds, 3),
            "requests": self._size,
            "duration_s": round(time.perf_counter() - self._started, 3),
        }

    def _announce(self, todo: Sequence[Task], seconds_per_size: float, source: str) -> None:
        number = min(self._executor.num_workers, len(todo))
        seconds = seconds_per_size * sum(task.size for task in todo) / number
        workers = f"{number} worker{'s' * (number > 1)}"
        pace = f"{1 / seconds_per_size:,.0f} requests/s of {source}"
        self._say(f"about {duration(seconds)} for {len(todo)} runs on {workers}, at the {pace}")

    def _say(self, text: str) -> None:
        self._bar.clear()
        print(f"{self._what}: {text}", file=sys.stderr)


def duration(seconds: float) -> str:
    """Return a time in one or two units.

    Examples
    --------
    >>> duration(7.2), duration(200), duration(9000)
    ('7 s', '3 min', '2.5 h')
    """
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"
