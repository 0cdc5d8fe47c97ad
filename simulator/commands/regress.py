"""`batchlab regress`: metrics of policies under continuous integration."""

import json as js
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from simulator.commands.base import Flag, Timeout
from simulator.errors import UserError
from simulator.regress.baseline import (
    Acceptance,
    accepted,
    changes,
    check_fit,
    default_path,
    new_baseline,
    read_baseline,
)
from simulator.regress.check import Runner, sample_all, to_dict
from simulator.regress.check import check as run_check
from simulator.regress.report import junit as as_junit
from simulator.regress.report import markdown
from simulator.regress.run import Job, Sample, run_jobs
from simulator.regress.suite import Suite
from simulator.wall_limit import check_limit
from simulator.whole_file import write_whole

app = App(
    name="regress",
    help="Record metrics of a suite of runs, and check later that they have not become worse.",
    help_format="plaintext",
    help_formatter="plain",
)


@app.command
def record(
    suite: Path,
    /,
    *,
    baseline: Path | None = None,
    jobs: int = 1,
    timeout: Timeout = None,
    force: Flag = False,
) -> int:
    """Run a suite and write its baseline.

    For example:

      batchlab regress record suite.yaml

    Parameters
    ----------
    suite
        YAML file with scenarios and metrics.
    baseline
        The file; SUITE.baseline.yaml beside the suite if left out.
    jobs
        Worker processes. The values do not depend on it.
    force
        Replace a baseline and forget its history.
    """
    wanted, path = Suite(suite), baseline or default_path(suite)
    if path.exists() and not force:
        raise UserError(f"{path}: exists already; `batchlab regress accept` takes changes over")
    with _runner(jobs, timeout) as run:
        samples = sample_all(wanted, run)
    found = new_baseline(wanted, samples)
    first = Acceptance(reason="recorded", version=found.code["batchlab"])
    write_whole(path, found.model_copy(update={"history": (first,)}).to_yaml())
    print(f"{len(found.scenarios)} scenarios, {wanted.num_cells} metrics recorded in {path}")
    return 0


@app.command
def check(
    suite: Path,
    /,
    *,
    baseline: Path | None = None,
    scenario: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    jobs: int = 1,
    timeout: Timeout = None,
    strict: Flag = False,
    junit: Path | None = None,
    markdown_file: Annotated[Path | None, Parameter(name="--markdown")] = None,
    json: Flag = False,
) -> int:
    """Run a suite on the seeds of its baseline and judge every metric.

    Verdicts: identical, unchanged, improved, inconclusive, regressed. An inconclusive
    metric gets more seeds, up to the suite's max_seeds. Exit code 1 if a metric
    regressed, 2 if the baseline does not fit the suite, 3 if a run failed.

    For example:

      batchlab regress check suite.yaml
      batchlab regress check suite.yaml --strict --junit regress.xml --jobs 2

    Parameters
    ----------
    suite
        YAML file with scenarios and metrics.
    baseline
        The file; SUITE.baseline.yaml beside the suite if left out.
    scenario
        Run no others than these.
    jobs
        Worker processes. The verdicts do not depend on it.
    strict
        Let what stays inconclusive fail too.
    junit
        Also write the verdicts as JUnit XML.
    markdown_file
        Also write the printed table into this file.
    json
        Print one JSON object instead of the table.
    """
    wanted, path = Suite(suite), baseline or default_path(suite)
    chosen, then = wanted.only(scenario or []), read_baseline(path)
    check_fit(then, wanted, chosen, path)
    with _runner(jobs, timeout) as run:
        outcome = run_check(wanted, then, chosen, run)
    table = markdown(outcome, strict=strict)
    if junit is not None:
        write_whole(junit, as_junit(outcome, strict=strict))
    if markdown_file is not None:
        write_whole(markdown_file, f"{table}\n")
    print(js.dumps(to_dict(outcome, strict=strict), indent=2, allow_nan=False) if json else table)
    return outcome.exit_code(strict=strict)


@app.command
def accept(
    suite: Path,
    /,
    *,
    reason: str,
    baseline: Path | None = None,
    jobs: int = 1,
    timeout: Timeout = None,
) -> int:
    """Run a suite and take its values over into the baseline, with the reason.

    For example:

      batchlab regress accept suite.yaml --reason "chunks are capped at 2048 tokens"

    Parameters
    ----------
    suite
        YAML file with scenarios and metrics.
    reason
        Why the values changed; it is kept in the baseline.
    baseline
        The file; SUITE.baseline.yaml beside the suite if left out.
    jobs
        Worker processes. The values do not depend on it.
    """
    if not reason.strip():
        raise UserError("--reason: expected a sentence that says why the values changed")
    wanted, path = Suite(suite), baseline or default_path(suite)
    old = read_baseline(path)
    with _runner(jobs, timeout) as run:
        new = new_baseline(wanted, sample_all(wanted, run))
    changed = changes(old, new)
    for line in changed:
        print(line)
    if not changed:
        print(f"{path}: nothing changed")
        return 0
    write_whole(path, accepted(old, new, reason.strip(), changed).to_yaml())
    print(f"{len(changed)} changes accepted in {path}")
    return 0


@contextmanager
def _runner(num_workers: int, timeout_s: float | None) -> Iterator[Runner]:
    """Give what runs jobs and shows on a terminal how many are done."""
    from tqdm import tqdm

    if num_workers < 1:
        raise UserError(f"--jobs {num_workers}: expected at least 1")
    check_limit(timeout_s)
    started = time.perf_counter()
    total = 0
    with tqdm(total=0, desc="regress", unit="run", disable=None, leave=False) as bar:

        def run(jobs: Sequence[Job]) -> list[Sample]:
            nonlocal total
            total += len(jobs)
            bar.total = total
            return run_jobs(jobs, num_workers, bar.update, timeout_s)

        yield run
    print(f"Simulated in {time.perf_counter() - started:.1f} s", file=sys.stderr)
