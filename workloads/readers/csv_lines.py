"""Lines of comma-separated text, and columns found by name."""

import csv
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

from workloads.errors import WorkloadError
from workloads.readers.cells import BadCell


def split(line: str) -> list[str]:
    """Split one line at its commas; quoted cells may hold commas.

    Raises
    ------
    BadCell
        Quotes that make no sense.

    Examples
    --------
    >>> split('1,"a,b"')
    ['1', 'a,b']
    """
    if '"' not in line:
        return line.split(",")
    try:
        return next(csv.reader([line]))
    except csv.Error:
        bad = BadCell("not CSV", "comma-separated values on one line")
        bad.value = line
        raise bad from None


def locate(
    header: Sequence[str], required: Sequence[str], optional: Sequence[str], path: Path, line: int
) -> dict[str, int]:
    """Find columns by their names, in any order and among others.

    Parameters
    ----------
    header : sequence of str
        The names as they stand in the file.
    required, optional : sequence of str
        The names to find.
    path : Path
        The file, for the error.
    line : int
        Line of the header, for the error.

    Returns
    -------
    dict of str to int
        Position of each required column and of the optional ones that are there.

    Raises
    ------
    WorkloadError
        A required column is missing, or one of the names stands twice.
    """
    names = [name.strip() for name in header]
    wanted = [name for name in (*required, *optional) if name in names]
    for name in wanted:
        if names.count(name) > 1:
            raise WorkloadError("expected the column once", path=path, line=line, column=name)
    for name in required:
        if name not in names:
            near = get_close_matches(name, [found for found in names if found not in wanted], 1)
            hint = f"did you mean {near[0]!r}?" if near else f"found {', '.join(names)!r}"
            raise WorkloadError(f"missing; {hint}", path=path, line=line, column=name)
    return {name: names.index(name) for name in wanted}


def resemblance(header: Sequence[str], required: Sequence[str]) -> float:
    """Say how well a header fits the columns of a format.

    Examples
    --------
    >>> resemblance(["time", "tokens"], ["time", "tokens"])
    1.0
    >>> resemblance(["time", "token"], ["time", "tokens"])
    0.75
    """
    names = [name.strip() for name in header]
    exact = sum(name in names for name in required)
    lowered = [name.lower() for name in names]
    close = sum(
        name not in names and bool(get_close_matches(name.lower(), lowered, 1, 0.7))
        for name in required
    )
    return (exact + close / 2) / len(required)
