"""`batchlab theory`: simulated means against the formulas of queueing theory."""

import csv
import io
import json as js
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from simulator.errors import UserError
from simulator.theory.compare import COLUMNS, Row, compare_all, select, table_text
from simulator.whole_file import write_whole

Flag = Annotated[bool, Parameter(negative="")]


def theory(
    *,
    only: str | None = None,
    quick: Flag = False,
    seed: int = 0,
    jobs: int = 1,
    json: Flag = False,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
) -> int:
    """Compare the simulator with queueing theory, and print the table.

    Every row is a mean that a formula gives, beside the mean over independent
    simulations with its 99.9 % interval. Exit code 1 if a row lies outside.

    For example:

      batchlab theory --quick
      batchlab theory --jobs 2 -o theory.csv
      batchlab theory --only "M/D/1"
      batchlab theory --only router --seed 7

    Parameters
    ----------
    only
        Part of the case, policy or parameters; * and ? stand for any text.
    quick
        Only the cases that take a second or two.
    seed
        Root of all random streams.
    jobs
        Worker processes. The rows do not depend on it.
    json
        Print JSON instead of the table.
    out
        File for the rows: .csv or .json.
    """
    from tqdm import tqdm

    if seed < 0:
        raise UserError(f"--seed {seed}: expected at least 0")
    if jobs < 1:
        raise UserError(f"--jobs {jobs}: expected at least 1")
    if out is not None:
        _check(out)
    cases = select(only, quick=quick)
    with tqdm(total=len(cases), desc="theory", unit="case", disable=None) as bar:
        rows = compare_all(cases, seed, jobs=jobs, progress=bar.update)
    print(js.dumps(rows, indent=2, ensure_ascii=False) if json else table_text(rows))
    if out is not None:
        _write(out, rows)
        print(f"Rows in {out}", file=sys.stderr)
    return 0 if all(row["inside"] for row in rows) else 1


def _check(out: Path) -> None:
    """Refuse a file that cannot be written, before anything runs."""
    if out.suffix not in (".csv", ".json"):
        raise UserError(f"--out {out}: expected a name that ends in .csv or .json")
    if out.is_dir() or not out.parent.is_dir():
        raise UserError(f"--out {out}: expected a file in a folder that exists")


def _write(out: Path, rows: Sequence[Row]) -> None:
    """Write the rows, all of them or nothing."""
    text = io.StringIO(newline="")
    if out.suffix == ".json":
        js.dump(rows, text, indent=2, ensure_ascii=False)
    else:
        table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows)
    write_whole(out, text.getvalue())
