"""The timing file that a measurement appends to, so that it can be stopped and taken up again."""

import csv
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from simulator.errors import UserError
from simulator.profile_gpu.backend import Backend, Sample
from simulator.profile_gpu.grid import Point

COLUMNS = (
    "operator",
    "dtype",
    "out_features",
    "in_features",
    "tokens",
    "q_heads",
    "kv_heads",
    "head_size",
    "past",
    "batch",
    "context",
    "num_gpus",
    "num_bytes",
    "time_us",
    "spread",
    "samples",
    "device",
    "software",
)
"""Columns of the timing schema; those that an operator does not have stay empty."""


class TimingFile:
    """Rows by point, kept on disk while they are taken.

    Parameters
    ----------
    path : pathlib.Path
        CSV file; made if it is not there, otherwise taken up.
    backend : Backend
        What measures; a file of another device or number format is refused.

    Raises
    ------
    UserError
        If the file cannot be read or written, or was measured on something else.
    """

    def __init__(self, path: Path, backend: Backend) -> None:
        self._path = path
        self._backend = backend
        self._rows = self._read()
        self._file: IO[str] | None = None

    def __contains__(self, point: Point) -> bool:
        return point in self._rows

    def __len__(self) -> int:
        return len(self._rows)

    def __enter__(self) -> Self:
        """Open for appending; a row cut off by an interruption has been dropped."""
        self._write(self._rows.values(), "w")
        try:
            self._file = self._path.open("a", encoding="utf-8", newline="")
        except OSError as error:
            raise self._unwritable(error) from error
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close, and sort the rows."""
        if self._file is not None:
            self._file.close()
        ordered = sorted(self._rows)
        self._write([self._rows[point] for point in ordered], "w")

    def append(self, point: Point, sample: Sample) -> None:
        """Write a row at once."""
        assert self._file is not None, "open the file first"
        row = {
            "operator": point.operator,
            "dtype": self._backend.dtype,
            **{name: str(value) for name, value in point.size},
            "time_us": f"{sample.median_us:.4f}",
            "spread": f"{sample.spread:.4f}",
            "samples": str(sample.num_samples),
            "device": self._backend.device,
            "software": self._backend.software,
        }
        self._rows[point] = row
        csv.DictWriter(self._file, COLUMNS, restval="").writerow(row)
        self._file.flush()

    def _read(self) -> dict[Point, Mapping[str, str]]:
        """Read the rows that are there; leave out a last line without end."""
        try:
            text = self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return {}
        except (OSError, ValueError) as error:
            raise UserError(f"{self._path}: cannot read timings: {error}") from error
        lines = text.splitlines()
        if lines and not text.endswith("\n"):
            lines.pop()
        if not lines:
            return {}
        reader = csv.DictReader(lines)
        if tuple(reader.fieldnames or ()) != COLUMNS:
            raise UserError(f"{self._path}: not a timing file of ours: choose another name")
        rows: dict[Point, Mapping[str, str]] = {}
        for number, row in enumerate(reader, start=2):
            self._check_origin(row, number)
            rows[_point_of(row, f"{self._path}: row {number}")] = row
        return rows

    def _check_origin(self, row: Mapping[str, str], number: int) -> None:
        """Refuse to mix timings of several machines in one file."""
        for column, here in (("device", self._backend.device), ("dtype", self._backend.dtype)):
            if row[column] != here:
                raise UserError(
                    f"{self._path}: row {number} was measured with {column} {row[column]}, "
                    f"here it is {here}: choose another name"
                )

    def _write(self, rows: Iterable[Mapping[str, str]], mode: str) -> None:
        """Replace the file as a whole, or not at all."""
        draft = self._path.with_name(self._path.name + ".part")
        try:
            with draft.open(mode, encoding="utf-8", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS, restval="")
                writer.writeheader()
                writer.writerows(rows)
            os.replace(draft, self._path)
        except OSError as error:
            raise self._unwritable(error) from error

    def _unwritable(self, error: OSError) -> UserError:
        return UserError(f"{self._path}: cannot write timings: {error.strerror}")


def _point_of(row: Mapping[str, str], where: str) -> Point:
    """Return the point that a row measured."""
    names = _SIZES.get(row["operator"], ())
    try:
        return Point(row["operator"], tuple((name, int(row[name])) for name in names))
    except (TypeError, ValueError):
        raise UserError(f"{where}: sizes of {row['operator']} are no whole numbers") from None


_SIZES = {
    "linear": ("out_features", "in_features", "tokens"),
    "decode": ("q_heads", "kv_heads", "head_size", "batch", "context"),
    "prefill": ("q_heads", "kv_heads", "head_size", "past", "tokens"),
    "elementwise": ("num_bytes",),
    "all_reduce": ("num_gpus", "num_bytes"),
}
