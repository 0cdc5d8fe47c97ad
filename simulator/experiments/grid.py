"""The points of a sweep: a base specification and axes along which its keys vary."""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from simulator.errors import UserError
from simulator.explain import nearest
from simulator.settings import Nested, merge
from simulator.spec import RunSpec
from workloads.presets import PRESETS

Values = dict[str, Any]
"""Axis name to the value it has at a point."""


@dataclass(frozen=True, eq=False)
class Point:
    """One specification of a sweep and the axis values that led to it.

    Attributes
    ----------
    values : tuple of (str, value)
        Axis name and value as it stands in tables.
    spec : RunSpec
    given : dict
        The values as they were given.
    """

    values: tuple[tuple[str, Any], ...]
    spec: RunSpec
    given: Values = field(default_factory=dict, repr=False)

    @property
    def title(self) -> str:
        """The values in one line."""
        return "  ".join(f"{name}={show(value)}" for name, value in self.values) or "(base)"


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
    return axis_name(name), values


def axis_name(name: str) -> str:
    """Return the name of an axis as keys are written."""
    return name.strip().replace("-", "_")


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
    pairs = list(together) or [{}]
    return [first | second for first in grid for second in pairs]


def make_points(base: Nested, wanted: Iterable[Values]) -> list[Point]:
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
    names: dict[str, None] = {}
    known: set[str] = set()
    for values in wanted:
        point, keys = _at(base, values)
        names |= dict.fromkeys(values)
        known |= keys
        used |= {name for name, _ in point.values}
        points.setdefault(point.spec.content_hash(), point)
    for name in names:
        if name not in used:
            short = {path.rsplit(".", 1)[-1] for path in known} | _SECTIONS.keys()
            raise UserError(f"axis {name}: no key of that name applies; {nearest(name, short)}")
    return list(points.values())


def _at(base: Nested, values: Values) -> tuple[Point, set[str]]:
    """Return the point where an axis has each of these values, and the keys that exist there."""
    data, applied = base, {}
    for name, value in values.items():  # what chooses a part comes first: it decides the rest
        if _chooses(name):
            data = merge(data, _choice(name, value, data))
            applied[name] = label(value)
    known = paths(RunSpec.from_dict(data, _where(applied)))
    found: dict[str, str] = {}
    for name, value in values.items():
        path = None if _chooses(name) else find_path(name, known)
        if path is not None:
            data = merge(data, _nest(path, value))
            found[name], applied[name] = path, value
    spec = RunSpec.from_dict(data, _where(applied))
    plain = spec.to_dict()
    applied |= {name: label(_dig(plain, path)) for name, path in found.items()}
    given = {name: value for name, value in values.items() if name in applied}
    return Point(tuple((name, applied[name]) for name in given), spec, given), set(known)


def _where(applied: Values) -> str:
    return ", ".join(f"{name}={label(value)}" for name, value in applied.items())


def _dig(data: Any, path: str) -> Any:
    for key in path.split("."):
        data = data.get(key) if isinstance(data, Mapping) else None
    return data


def label(value: Any) -> Any:
    """Return a value as it stands in a table: a number or text; what is nested becomes text.

    Examples
    --------
    >>> label(5.0), label({"kind": "window-pull", "max_wait_ms": 5})
    (5.0, 'window-pull max_wait_ms=5')
    """
    if isinstance(value, Mapping):
        rest = {key: item for key, item in value.items() if key not in ("kind", "name")}
        head = [str(value[key]) for key in ("kind", "name") if key in value]
        return " ".join([*head, *(f"{key}={show(item)}" for key, item in rest.items())])
    if isinstance(value, list | tuple):
        return ",".join(show(item) for item in value)
    return value


def show(value: Any) -> str:
    """Return a value in few characters.

    Examples
    --------
    >>> show(5.0), show("static")
    ('5', 'static')
    """
    value = label(value)
    return f"{value:g}" if isinstance(value, float) else str(value)


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
    return name in _SECTIONS or name.endswith(".kind")


_SECTIONS = {"policy": "policy", "workload": "workload", "cost": "cost", "router": "engine.router"}
"""Axes that choose a whole section, by name or with its parameters, and where it stands."""


def _choice(name: str, value: Any, data: Nested) -> Nested:
    """Return the settings that choose a part of the specification."""
    if name == "workload" and isinstance(value, str):
        return {"workload": _workload(value, data.get("workload"))}
    path = _SECTIONS.get(name, name)
    nested = isinstance(value, Mapping) or name not in _SECTIONS
    return _nest(path, value if nested else {"kind": value})


def _workload(name: str, below: Any) -> Values:
    """Return the workload of that name, a preset or else a trace file, to be put over `below`."""
    if name not in PRESETS and Path(name).is_file():
        return {"kind": "trace", "path": name}
    bare = isinstance(below, Mapping) and "name" in below and "kind" not in below
    return {"name": name} if bare else {"kind": "preset", "name": name}


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
