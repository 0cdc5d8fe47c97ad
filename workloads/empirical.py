"""Lengths drawn from a table of values, given in place or in a file."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Literal, Self, TypeVar

import numpy as np
from pydantic import ConfigDict, Field, model_validator

from workloads.base import FloatArray, IntArray, PositiveInt, Spec
from workloads.errors import WorkloadError
from workloads.readers.cells import BadCell, decimal, whole_number
from workloads.readers.csv_lines import locate, split
from workloads.readers.text import TextFile

_TOLERANCE = 1e-6

Number = TypeVar("Number", int, float)


class EmpiricalLength(Spec):
    """Lengths from a table: the values, each with its probability.

    Given as `values` (with `probs`, or equally likely), or as a `path` to a CSV file, plain
    or gzip, with a column ``tokens`` and, if not all rows are equally likely, a column
    ``probability``. The file is read when lengths are first drawn. A ``histogram``
    ``{length: probability}`` may stand for `values` and `probs`.

    Raises
    ------
    pydantic.ValidationError
        Both or neither of `values` and `path`, probabilities that do not match or add up to 1.

    Examples
    --------
    >>> EmpiricalLength(values=(10, 20), probs=(0.75, 0.25)).mean
    12.5
    """

    model_config = ConfigDict(
        json_schema_extra=lambda schema: schema["properties"].update(
            histogram={
                "type": "object",
                "additionalProperties": {"type": "number"},
                "description": "May stand for values and probs: probability by length.",
            }
        )
    )

    kind: Literal["empirical"] = "empirical"
    values: tuple[PositiveInt, ...] | None = None
    """Lengths in tokens, 1 or more."""
    probs: tuple[Annotated[float, Field(ge=0, le=1)], ...] | None = None
    """Probability of each value; they add up to 1. Equal ones if left out."""
    path: Path | None = None
    """CSV file that holds the table."""

    @model_validator(mode="before")
    @classmethod
    def _from_histogram(cls, data: object) -> object:
        if not isinstance(data, Mapping) or "histogram" not in data:
            return data
        table = data["histogram"]
        if {"values", "probs", "path"} & set(data) or not isinstance(table, Mapping) or not table:
            raise ValueError("expected a histogram of probabilities by length, and nothing else")
        rest = {key: value for key, value in data.items() if key != "histogram"}
        return rest | {"values": tuple(table), "probs": tuple(table.values())}

    @model_validator(mode="after")
    def _one_table(self) -> Self:
        if (self.values is None) == (self.path is None):
            raise ValueError("expected exactly one of values and path")
        if self.values is not None and not self.values:
            raise ValueError("expected at least one number in values")
        if self.probs is None:
            return self
        if len(self.probs) != len(self.values or ()):
            raise ValueError("expected as many probs as values")
        total = sum(self.probs)
        if abs(total - 1.0) > _TOLERANCE:
            raise ValueError(f"expected probs that add up to 1, got {total:.9g}")
        return self

    def sample(self, n: int, rng: np.random.Generator) -> IntArray:
        """Return `n` independent lengths.

        Raises
        ------
        WorkloadError
            The file cannot be used.
        """
        values, probs = self._table()
        return rng.choice(values, size=n, p=probs)

    @property
    def mean(self) -> float:
        """Mean of the table in tokens."""
        values, probs = self._table()
        return float(values @ probs)

    def _table(self) -> tuple[IntArray, FloatArray]:
        if self.path is not None:
            return _read_table(self.path)
        values = np.array(self.values, dtype=np.int64)
        probs = np.ones(values.size) if self.probs is None else np.array(self.probs)
        return values, probs / probs.sum()


def _read_table(path: Path) -> tuple[IntArray, FloatArray]:
    lines = TextFile(path).lines()
    line, header = next(lines, (1, ""))
    columns = locate(split(header), ["tokens"], ["probability"], path, line)
    values: list[int] = []
    probs: list[float] = []
    for line, text in lines:
        cells = split(text)
        values.append(_cell(cells, columns, "tokens", whole_number, path, line))
        if "probability" in columns:
            probs.append(_cell(cells, columns, "probability", decimal, path, line))
    return _weights(path, values, probs)


def _cell(
    cells: list[str],
    columns: dict[str, int],
    name: str,
    read: Callable[[str], Number],
    path: Path,
    line: int,
) -> Number:
    at = columns[name]
    text = cells[at] if at < len(cells) else ""
    try:
        return read(text)
    except BadCell as bad:
        expected = f"expected {bad.expected}"
        raise WorkloadError(expected, path=path, line=line, column=name, value=text) from None


def _weights(path: Path, values: list[int], probs: list[float]) -> tuple[IntArray, FloatArray]:
    if not values:
        raise WorkloadError("no rows", path=path)
    weights = np.array(probs) if probs else np.full(len(values), 1.0 / len(values))
    if weights.min() < 0 or abs(weights.sum() - 1.0) > _TOLERANCE:
        total = float(weights.sum())
        raise WorkloadError(
            "expected numbers of at least 0 that add up to 1",
            path=path,
            column="probability",
            value=total,
        )
    return np.array(values, dtype=np.int64), weights / weights.sum()
