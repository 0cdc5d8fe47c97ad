"""Theory against simulation, case by case."""

from collections.abc import Callable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import Any

from simulator.errors import UserError
from simulator.explain import nearest
from simulator.theory.case import Case, estimate_case
from simulator.theory.cases_batch import BATCHES
from simulator.theory.cases_servers import SERVERS
from simulator.theory.cases_single import SINGLE_SERVER
from simulator.theory.replications import Estimate

CASES: tuple[Case, ...] = (*SINGLE_SERVER, *BATCHES, *SERVERS)
"""All cases; the tests and `batchlab theory` go through the same table."""

COLUMNS = (
    "case",
    "policy",
    "parameters",
    "quantity",
    "theory",
    "simulated",
    "half_width",
    "deviation_percent",
    "replications",
    "requests",
    "looks",
    "inside",
)
"""Columns of a row. Times are in seconds."""

HEADS = (
    "case",
    "policy",
    "parameters",
    "value",
    "theory",
    "simulated",
    "+/-",
    "dev. %",
    "runs",
    "inside",
)
"""The same for people."""

RULE = (
    "Rule: theory lies in the 99.9 % t interval over replications, whose half-width is at most\n"
    "1 % of theory. A value outside is looked at once more, with as many other replications; it\n"
    "fails if it is outside again. Without the second look, one such table in {tables:.0f} would\n"
    "fail by chance."
)

Row = dict[str, Any]


def select(pattern: str | None, *, quick: bool = False) -> list[Case]:
    """Return the cases whose name holds a pattern.

    Parameters
    ----------
    pattern : str, optional
        Part of a name, in any case; ``*`` and ``?`` as in file names. None: all.
    quick : bool
        Only those that the default tests run.

    Raises
    ------
    UserError
        If there is none; the nearest families are in the message.

    Examples
    --------
    >>> {case.family for case in select("m/d/1")}
    {'M/D/1'}
    """
    text = f"*{pattern or ''}*".lower().replace("[", "[[]")
    found = [case for case in CASES if fnmatchcase(case.name.lower(), text)]
    found = [case for case in found if case.is_quick or not quick]
    if not found:
        families = dict.fromkeys(case.family for case in CASES)
        raise UserError(
            f"--only {pattern!r}: no case of that name; {nearest(str(pattern), families)}"
        )
    return found


def compare(case: Case, seed: int = 0) -> list[Row]:
    """Return a row for each value of a case.

    Values outside their interval are looked at once more, with other replications.

    Parameters
    ----------
    case : Case
        What is simulated.
    seed : int
        Root of all random streams.
    """
    found = estimate_case(case, seed)
    again: dict[str, Estimate] = {}
    if not all(value.agrees for value in found.values()):
        again = estimate_case(case, seed, again=True)
    rows = []
    for name, first in found.items():
        is_second = not first.agrees
        rows.append(_row(case, name, again[name] if is_second else first, 1 + is_second))
    return rows


def _row(case: Case, name: str, found: Estimate, looks: int) -> Row:
    parameters = ", ".join(f"{key} {value}" for key, value in case.parameters.items())
    values = (
        case.family,
        case.policy,
        parameters,
        name,
        found.theory,
        found.value,
        found.half_width,
        100 * (found.value / found.theory - 1),
        found.num_replications,
        found.num_requests,
        looks,
        found.agrees,
    )
    return dict(zip(COLUMNS, values, strict=True))


def compare_all(
    cases: Sequence[Case],
    seed: int = 0,
    *,
    jobs: int = 1,
    progress: Callable[[int], object] = lambda done: None,
) -> list[Row]:
    """Return the rows of several cases, in their order.

    Parameters
    ----------
    cases : sequence of Case
        Of `CASES`.
    seed : int
        Root of all random streams.
    jobs : int
        Worker processes; the rows do not depend on it.
    progress : callable
        Told how many cases have been done since the last call.
    """
    numbers = [CASES.index(case) for case in cases]
    # The longest first, so that no worker is left alone with one at the end.
    numbers.sort(key=lambda number: -CASES[number].num_requests)
    rows: dict[int, list[Row]] = {}
    for number, found in _execute(numbers, seed, jobs):
        rows[number] = found
        progress(1)
    return [row for case in cases for row in rows[CASES.index(case)]]


def _execute(numbers: Sequence[int], seed: int, jobs: int) -> Iterator[tuple[int, list[Row]]]:
    if jobs == 1 or len(numbers) < 2:
        for number in numbers:
            yield _numbered(number, seed)
        return
    from joblib import Parallel, delayed

    pool = Parallel(n_jobs=jobs, return_as="generator_unordered", batch_size=1)
    yield from pool(delayed(_numbered)(number, seed) for number in numbers)


def _numbered(number: int, seed: int) -> tuple[int, list[Row]]:
    """Compare a case by its number: cases hold functions, which cannot be sent to a worker."""
    return number, compare(CASES[number], seed)


def table_text(rows: Sequence[Row]) -> str:
    """Return the rows as a table for people, with the rule below it."""
    from tabulate import tabulate

    last: tuple[str, ...] = ()
    lines = []
    for row in rows:
        heads = (row["case"], row["policy"], row["parameters"])
        lines.append(
            (
                *(heads if heads != last else ("", "", "")),
                row["quantity"],
                f"{row['theory']:.6g}",
                f"{row['simulated']:.6g}",
                f"{row['half_width']:.2g}",
                f"{row['deviation_percent']:+.2f}",
                row["replications"],
                ("yes" if row["inside"] else "NO") + (" (2nd look)" if row["looks"] > 1 else ""),
            )
        )
        last = heads
    table = tabulate(lines, HEADS, disable_numparse=True)
    chance = 1 - 0.999 ** len(rows)
    return f"{table}\n\n{RULE.format(tables=1 / chance)}"
