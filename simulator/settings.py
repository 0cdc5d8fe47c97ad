"""From the command line to a specification: files, dotted options, shorthands, in that order."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
        if not isinstance(place, dict):
            raise UserError(f"{option}: {'.'.join(path)} has a plain value already: {place}")
    place[name] = _value(option, value)


def _value(option: str, text: str) -> Any:
    """Return the value an option stands for: text, or a list, mapping or null in YAML."""
    if text != "null" and not text.startswith(("[", "{")):
        return text
    import yaml

    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise UserError(f"{option}: {text}: expected a list such as [1, 2]") from None


def dotted(option: str) -> list[str]:
    """Return the dotted options that an option without a section may stand for.

    Examples
    --------
    >>> dotted("--max-wait-ms"), dotted("--policy"), dotted("--nothing")
    (['--policy.max-wait-ms'], ['--policy.kind'], [])
    """
    from policies import POLICIES
    from simulator.cost.spec import COSTS
    from simulator.spec import EngineSpec, Measure
    from workloads.spec import WORKLOADS

    word = option.removeprefix("--").partition("=")[0]
    name = word.replace("-", "_")
    if name in ("workload", "policy", "cost"):
        return [f"--{name}.kind"]
    models = {
        "workload": WORKLOADS,
        "policy": POLICIES,
        "engine": (EngineSpec,),
        "cost": COSTS,
        "measure": (Measure,),
    }
    return [
        f"--{section}.{word}"
        for section, kinds in models.items()
        if any(name in kind.model_fields for kind in kinds)
    ]


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> Nested:
    """Return `base` with the keys of `over` put on top, section by section.

    A section whose kind changes starts afresh: the parameters of one policy mean nothing to
    another. A file that stands in for a name (a profile for a GPU, a config.json for a model)
    takes its place, and the other way round.

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
            if key == "cost":
                below = _give_way(below, value)
            merged[key] = dict(value) if changed else merge(below, value)
        else:
            merged[key] = value
    return merged


STAND_INS = {"architecture": ("model",), "profile": ("gpu", "dtype")}
"""Keys of a cost that name a file, and the keys that it answers, the name it replaces first."""


def _give_way(cost: Mapping[str, Any], over: Mapping[str, Any]) -> Nested:
    """Return a cost without what `over` replaces: names by a file, or a file by a name."""
    gone: set[str] = set()
    for file, names in STAND_INS.items():
        if over.get(file) is not None:
            gone.update(names)
        elif names[0] in over:
            gone.add(file)
    return {key: value for key, value in cost.items() if key not in gone}


def combine(options: Mapping[str, Any], more: Mapping[str, Any], path: str = "") -> Nested:
    """Return two sets of options, below the key `path`, as one.

    Raises
    ------
    UserError
        If they give different values to the same key.

    Examples
    --------
    >>> combine({"workload": {"strict": "false"}}, {"workload": {"kind": "trace"}})
    {'workload': {'strict': 'false', 'kind': 'trace'}}
    """
    both = dict(options)
    for key, value in more.items():
        other = both.get(key, value)
        if isinstance(other, Mapping) and isinstance(value, Mapping):
            both[key] = combine(other, value, f"{path}{key}.")
        elif str(other) != str(value):
            raise UserError(f"{path}{key}: given twice, as {other} and as {value}")
        else:
            both[key] = value
    return both


def shorthands(
    *,
    trace: Path | None,
    gpu: str | None,
    model: str | None,
    model_config: Path | None,
    request_rate: str | None,
    num_requests: str | None,
    goodput: Sequence[str],
    seed: str | None,
    workload: object,
) -> Nested:
    """Return the keys of the specification that short options stand for.

    Parameters
    ----------
    trace, gpu, model, model_config, request_rate, num_requests, goodput, seed
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
        ("cost", "architecture", None if model_config is None else str(model_config)),
        ("workload", "num_requests", num_requests),
    ):
        if value is not None:
            settings.setdefault(section, {})[key] = value
    if request_rate is not None:
        rate: Nested = {"request_rate": request_rate}
        synthetic = isinstance(workload, Mapping) and "arrivals" in workload
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
