"""The `sweep` section of a file: axes, seeds and limits beside the specification."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from simulator.errors import UserError
from simulator.experiments.grid import Values, axis_name, combine, product, zipped
from simulator.explain import validated

Axes = dict[str, list[Any]]

SECTION = "sweep"
"""Key of the section in a YAML file."""


class SweepSection(BaseModel):
    """What a sweep varies, as it stands in a file."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    grid: Axes = {}
    """Axes of which all combinations are run: name to list of values."""
    zip: Axes = {}
    """Axes of equal length that vary together."""
    points: list[Values] = []
    """Explicit points: each a mapping of names to values."""
    seeds: int = Field(1, ge=1)
    """Replications of every point."""
    max_points: int = Field(1000, ge=1)
    """More points than this have to be confirmed."""


@dataclass
class Plan:
    """All that a sweep varies, from file and command line together."""

    grid: Axes = field(default_factory=dict)
    zip: Axes = field(default_factory=dict)
    points: list[Values] = field(default_factory=list)

    def count(self) -> int:
        """Return the number of combinations, before any of them is made."""
        number = max(1, len(self.points)) * max(1, len(next(iter(self.zip.values()), [])))
        for values in self.grid.values():
            number *= len(values)
        return number

    def combinations(self) -> list[Values]:
        """Return all combinations in the order written."""
        inner = combine(product(list(self.grid.items())), zipped(list(self.zip.items())))
        return [outer | values for outer in (self.points or [{}]) for values in inner]


def split_section(data: Mapping[str, Any], where: str) -> tuple[dict[str, Any], SweepSection]:
    """Separate the `sweep` section of a file from the specification.

    Raises
    ------
    UserError
        If the section is wrong.

    Examples
    --------
    >>> rest, section = split_section({"seed": 1, "sweep": {"grid": {"max_wait_ms": [0, 5]}}}, "")
    >>> rest, section.grid
    ({'seed': 1}, {'max_wait_ms': [0, 5]})
    """
    rest = {key: value for key, value in data.items() if key != SECTION}
    place = f"{where}: {SECTION}" if where else SECTION
    return rest, validated(SweepSection, data.get(SECTION) or {}, place)


def make_plan(
    section: SweepSection,
    grid: Sequence[tuple[str, list[Any]]] = (),
    together: Sequence[tuple[str, list[Any]]] = (),
    points: Sequence[Values] = (),
) -> Plan:
    """Return what varies; an axis of the command line replaces that of the file.

    Raises
    ------
    UserError
        If an axis is given twice or is empty.
    """
    mine = (_axes(grid, "--grid"), _axes(together, "--zip"))
    given = mine[0] | mine[1]
    kept = [
        {name: values for name, values in _named(axes).items() if name not in given}
        for axes in (section.grid, section.zip)
    ]
    plan = Plan(kept[0] | mine[0], kept[1] | mine[1], list(points) or _points(section.points))
    for name in plan.grid:
        if name in plan.zip:
            raise UserError(f"axis {name}: given twice, in the grid and in the zipped lists")
    for name, values in (plan.grid | plan.zip).items():
        if not values:
            raise UserError(f"axis {name}: expected at least one value")
    return plan


def _axes(axes: Sequence[tuple[str, list[Any]]], option: str) -> Axes:
    found: Axes = {}
    for name, values in axes:
        if name in found:
            raise UserError(f"{option}: axis {name} is given twice")
        found[name] = values
    return found


def _named(axes: Axes) -> Axes:
    return {axis_name(name): values for name, values in axes.items()}


def _points(points: Sequence[Values]) -> list[Values]:
    return [{axis_name(name): value for name, value in point.items()} for point in points]
