"""The one error that a person who wrote a workload or a trace file has to read."""

import math
from os import PathLike
from typing import Final

_LONGEST_VALUE: Final = 80
_NOTHING: Final = object()


class WorkloadError(ValueError):
    """A workload or trace that cannot be used, told in one line.

    Parameters
    ----------
    problem : str
        What was expected, or what is wrong. Line breaks become spaces.
    path : path-like, optional
        The file.
    line : int, optional
        Line number in the file, counted from 1.
    column : str, optional
        Name of the column or field.
    value : object, optional
        What stood there; shown by its `repr`, cut after 80 characters.

    Examples
    --------
    >>> print(WorkloadError("expected a whole number", path="a.csv", line=3, value="x"))
    a.csv, line 3: got 'x', expected a whole number
    """

    def __init__(
        self,
        problem: str,
        *,
        path: str | PathLike[str] | None = None,
        line: int | None = None,
        column: str | None = None,
        value: object = _NOTHING,
    ) -> None:
        places = (
            None if path is None else str(path),
            None if line is None else f"line {line}",
            None if column is None else f"column {column}",
        )
        where = ", ".join(place for place in places if place is not None)
        told = problem if value is _NOTHING else f"got {_short(value)}, {problem}"
        super().__init__(" ".join((f"{where}: {told}" if where else told).split()))


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def check_rate(request_rate: float) -> None:
    """Refuse a rate that is not a finite number of requests per second above 0.

    Raises
    ------
    WorkloadError
        Names the field.
    """
    if not 0 < request_rate < math.inf:
        raise WorkloadError("expected a request_rate greater than 0", value=request_rate)


def check_num_requests(num_requests: int) -> None:
    """Refuse a number of requests below 1.

    Raises
    ------
    WorkloadError
        Names the field.
    """
    if num_requests < 1:
        raise WorkloadError("expected a num_requests of at least 1", value=num_requests)
