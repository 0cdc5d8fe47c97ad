"""From the command line to a specification: files, dotted options, shorthands, in that order."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from simulator.errors import UserError

Nested = dict[str, Any]

SECTIONS = ("workload", "policy", "engine", "cost", "measure", "seed")
"""Top-level keys of a run specification."""


def split_options(arguments: Sequence[str]) -> tuple[list[str], Nested]:
    """Separate the dotted options from the rest of a command line.

    Parameters
    ----------
    arguments : sequence of str
        Such as ``["run", "--policy.kind", "static", "--seed", "1"]``.

    Returns
    -------
    rest : list of str
        What is left.
    settings : dict
        The dotted options, nested; dashes in names become underscores.

    Raises
    ------
    UserError
        If an option has no value or its section is unknown.

    Examples
    --------
    >>> split_options(["run", "--policy.max-wait-ms", "5", "--policy.kind=window-pull"])
    (['run'], {'policy': {'max_wait_ms': '5', 'kind': 'window-pull'}})
    """
    rest: list[str] = []
    settings: Nested = {}
    waiting = list(reversed(arguments))
    while waiting:
        argument = waiting.pop()
        if argument == "--":
            rest += [argument, *reversed(waiting)]
            break
        option, equals, value = argument.partition("=")
        if not option.startswith("--") or "." not in option:
            rest.append(argument)
            continue
        if not equals:
            if not waiting:
                raise UserError(f"{option}: expected a value")
            value = waiting.pop()
        _put(settings, option, value)
    return rest, settings


def _put(settings: Nested, option: str, value: str) -> None:
    *path, name = option.removeprefix("--").replace("-", "_").split(".")
    if path[0] not in SECTIONS:
        raise UserError(f"{option}: unknown section; known: {', '.join(SECTIONS)}")
    place = settings
    for part in path:
        place = place.setdefault(part, {})
    place[name] = _value(option, value)


def _value(option: str, text: str) -> Any:
    """Return the value an option stands for: text, or a list, mapping or null in YAML."""
    if text != "null" and not text.startswith(("[", "{")):
        return text
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise UserError(f"{option}: {text}: expected a list such as [1, 2]") from None


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Nested:
    """Return `base` with the keys of `over` put on top, section by section.

    A section whose kind changes starts afresh: the parameters of one policy mean nothing to
    another.

    Parameters
    ----------
    base, over : mapping
        Nested settings.

    Examples
    --------
    >>> merge({"policy": {"kind": "static", "max_batch_size": 4}}, {"policy": {"kind": "none"}})
    {'policy': {'kind': 'none'}}
    >>> merge({"policy": {"kind": "static"}}, {"policy": {"max_batch_size": 4}})
    {'policy': {'kind': 'static', 'max_batch_size': 4}}
    """
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        if isinstance(below, str) and isinstance(value, Mapping):
            below = {"kind": below}  # `policy: static` in a file
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            changed = "kind" in value and value["kind"] != below.get("kind")
            merged[key] = dict(value) if changed else merge(below, value)
        else:
            merged[key] = value
    return merged


def shorthands(
    *,
    trace: Path | None,
    gpu: str | None,
    model: str | None,
    request_rate: str | None,
    num_requests: str | None,
    goodput: Sequence[str],
    seed: str | None,
    workload: Mapping[str, Any],
) -> Nested:
    """Return the keys of the specification that short options stand for.

    Parameters
    ----------
    trace, gpu, model, request_rate, num_requests, goodput, seed
        As given on the command line; None or empty where left out.
    workload : mapping
        The workload section so far; it decides which rate is meant.
    """
    settings: Nested = {}
    if trace is not None:
        settings["workload"] = {"kind": "trace", "path": str(trace)}
        workload = settings["workload"]
    for section, key, value in (
        ("cost", "gpu", gpu),
        ("cost", "model", model),
        ("workload", "num_requests", num_requests),
    ):
        if value is not None:
            settings.setdefault(section, {})[key] = value
    if request_rate is not None:
        rate: Nested = {"request_rate": request_rate}
        synthetic = "arrivals" in workload
        settings.setdefault("workload", {}).update({"arrivals": rate} if synthetic else rate)
    if goodput:
        settings["measure"] = {"goodput": parse_goodput(goodput)}
    if seed is not None:
        settings["seed"] = seed
    return settings


def parse_goodput(words: Sequence[str]) -> dict[str, str]:
    """Return the objectives in words such as ``ttft:500 tpot:50`` (milliseconds).

    Raises
    ------
    UserError
        If a word is not ``name:milliseconds``.

    Examples
    --------
    >>> parse_goodput(["ttft:500", "tpot:50"])
    {'ttft_ms': '500', 'tpot_ms': '50'}
    """
    objectives: dict[str, str] = {}
    for word in " ".join(words).split():
        name, colon, value = word.partition(":")
        if not colon or name not in ("ttft", "tpot", "e2el"):
            raise UserError(f"--goodput {word}: expected ttft:MS, tpot:MS or e2el:MS")
        objectives[f"{name}_ms"] = value
    return objectives


def read_text(path: Path) -> str:
    """Return the text of a file.

    Raises
    ------
    UserError
        If it cannot be read as UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 text (byte {error.start})") from None
