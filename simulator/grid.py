"""The points of a sweep: a base specification and axes along which its keys vary."""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from simulator.errors import UserError
from simulator.explain import nearest
from simulator.settings import Nested, merge
from simulator.spec import RunSpec

Values = dict[str, Any]
"""Axis name to the value it has at a point."""


@dataclass(frozen=True)
class Point:
    """One specification of a sweep and the axis values that led to it."""

    values: tuple[tuple[str, Any], ...]
    spec: RunSpec


def parse_axis(text: str) -> tuple[str, list[str]]:
    """Return name and values of an axis written as ``name=v1,v2,...``.

    Raises
    ------
    UserError
        If there is no name or no value.

    Examples
    --------
    >>> parse_axis("max_wait_ms=0,5,10")
    ('max_wait_ms', ['0', '5', '10'])
    """
    name, equals, rest = text.partition("=")
    values = [value.strip() for value in rest.split(",")]
    if not equals or not name.strip():
        raise UserError(f"--grid {text}: expected NAME=VALUE,VALUE,...")
    if not all(values):
        raise UserError(f"--grid {text}: axis {name} has an empty value")
    return name.strip().replace("-", "_"), values


def product(axes: Sequence[tuple[str, Sequence[Any]]]) -> Iterator[Values]:
    """Yield all combinations, the last axis varying fastest.

    Examples
    --------
    >>> list(product([("a", [1, 2]), ("b", [3])]))
    [{'a': 1, 'b': 3}, {'a': 2, 'b': 3}]
    """
    names = [name for name, _ in axes]
    for values in itertools.product(*(values for _, values in axes)):
        yield dict(zip(names, values, strict=True))


def zipped(axes: Sequence[tuple[str, Sequence[Any]]]) -> list[Values]:
    """Return the points of axes that vary together.

    Raises
    ------
    UserError
        If they differ in length.
    """
    lengths = {name: len(values) for name, values in axes}
    if len(set(lengths.values())) > 1:
        shown = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise UserError(f"--zip: the lists differ in length: {shown}")
    return [
        dict(zip(lengths, values, strict=True))
        for values in zip(*(values for _, values in axes), strict=True)
    ]


def combine(grid: Iterable[Values], together: Iterable[Values]) -> list[Values]:
    """Return every combination of grid points and zipped points."""
    return [first | second for first in grid for second in (list(together) or [{}])]


def make_points(base: Nested, wanted: Sequence[Values]) -> list[Point]:
    """Return the points of a sweep, each specification once, in the order written.

    An axis that means nothing at a point (a wait time under a policy without one) is left out
    there, so that points which differ in it alone become one.

    Raises
    ------
    UserError
        If an axis means nothing anywhere, or a value is wrong.
    """
    points: dict[str, Point] = {}
    used: set[str] = set()
    for values in wanted:
        spec, applied = _at(base, values)
        used |= applied.keys()
        points.setdefault(spec.content_hash(), Point(tuple(applied.items()), spec))
    for name in {name: None for values in wanted for name in values}:
        if name not in used:
            known = {path.rsplit(".", 1)[-1] for path in paths(RunSpec.from_dict(base))}
            raise UserError(f"axis {name}: no key of that name applies; {nearest(name, known)}")
    return list(points.values())


def _at(base: Nested, values: Values) -> tuple[RunSpec, Values]:
    """Return the specification at a point, and the values that apply there."""
    names = sorted(values, key=lambda name: not _chooses(name))  # kinds first: they decide the rest
    data, applied = base, {}
    for name in names:
        if _chooses(name):
            data = merge(data, _nest(_KIND_PATHS.get(name, name), values[name]))
            applied[name] = values[name]
    known = paths(RunSpec.from_dict(data))
    for name in names:
        path = None if _chooses(name) else find_path(name, known)
        if path is not None:
            data = merge(data, _nest(path, values[name]))
            applied[name] = values[name]
    where = ", ".join(f"{name}={value}" for name, value in applied.items())
    return RunSpec.from_dict(data, where), {n: applied[n] for n in values if n in applied}


def find_path(name: str, known: Iterable[str]) -> str | None:
    """Return the key that a full path or an unambiguous last name stands for, or None.

    Raises
    ------
    UserError
        If several keys have that name.

    Examples
    --------
    >>> find_path("max_wait_ms", ["policy.max_wait_ms", "seed"])
    'policy.max_wait_ms'
    """
    found = [path for path in known if path == name or path.endswith(f".{name}")]
    if len(found) > 1 and name not in found:
        raise UserError(f"axis {name}: could be {' or '.join(found)}; write the full name")
    return name if name in found else (found[0] if found else None)


def paths(model: BaseModel, prefix: str = "") -> list[str]:
    """Return the dotted names of all keys of a specification."""
    found: list[str] = []
    for name in type(model).model_fields:
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            found += paths(value, f"{prefix}{name}.")
        else:
            found.append(f"{prefix}{name}")
    if not prefix and "measure.goodput" in found:
        found += [f"measure.goodput.{name}" for name in ("ttft_ms", "tpot_ms", "e2el_ms")]
    return found


def _chooses(name: str) -> bool:
    return name in _KIND_PATHS or name.endswith(".kind")


_KIND_PATHS = {
    "policy": "policy.kind",
    "workload": "workload.name",
    "router": "engine.router.kind",
}
"""Short names of axes that choose a part of the specification."""


def _nest(path: str, value: Any) -> Nested:
    for part in reversed(path.split(".")):
        value = {part: value}
    assert isinstance(value, dict)
    return value


def read_points(text: str, where: str) -> list[Values]:
    """Return explicit points from JSON: a list of objects.

    Raises
    ------
    UserError
        If it is something else.
    """
    try:
        data = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{where}, line {error.lineno}: not valid JSON: {error.msg}") from None
    if not isinstance(data, list) or not all(isinstance(row, Mapping) for row in data) or not data:
        raise UserError(f"{where}: expected a list of objects, one for each point")
    return [dict(row) for row in data]
