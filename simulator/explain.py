"""Validation errors in one line: where, which value, what was expected, what was meant."""

import difflib
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticCustomError

from simulator.errors import UserError

Location = Sequence[int | str]
Model = TypeVar("Model", bound=BaseModel)


def explain(error: ValidationError, where: str, model: type[BaseModel] | None = None) -> str:
    """Return the first problem of a validation in one line, and how many more there are.

    Parameters
    ----------
    error : pydantic.ValidationError
    where : str
        File or section the data came from; empty for none.
    model : type of BaseModel, optional
        Root of the data, to suggest the nearest names for an unknown one.
    """
    problems = error.errors(include_url=False)
    first = problems[0]
    tags = _kinds(model)
    parts = [str(part) for part in first["loc"] if part not in tags and "[" not in str(part)]
    message = _message(dict(first), model)
    if first["type"] == "nested":
        parts.append(first["ctx"]["key"])
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    place = ": ".join(filter(None, (where, ".".join(filter(None, parts)))))
    return " ".join(f"{place}: {message}{more}".split())


def validated(model: type[Model], data: object, where: str) -> Model:
    """Return a validated model.

    Raises
    ------
    UserError
        One line: where, which value, what was expected.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        raise UserError(explain(error, where, model)) from None


def nested(error: ValidationError, model: type[BaseModel]) -> PydanticCustomError:
    """Wrap the error of a part so that `explain` names the whole path."""
    problems = error.errors(include_url=False)
    first = problems[0]
    tags = _kinds(model)
    key = ".".join(str(part) for part in first["loc"] if part not in tags and "[" not in str(part))
    context = {"key": key, "text": _message(dict(first), model)}
    return PydanticCustomError("nested", "{text}", context)


def nearest(name: str, names: Iterable[str]) -> str:
    """Return "nearest: a, b", or all names where none is near.

    Examples
    --------
    >>> nearest("max_wait", ["max_wait_ms", "kind"])
    'nearest: max_wait_ms'
    """
    names = sorted(names)
    near = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    return f"nearest: {', '.join(near)}" if near else f"known: {', '.join(names)}"


def _message(problem: dict[str, Any], model: type[BaseModel] | None) -> str:
    message = str(problem["msg"])
    match problem["type"]:
        case "extra_forbidden":
            fields = _fields(model, problem["loc"][:-1])
            hint = f"; {nearest(str(problem['loc'][-1]), fields)}" if fields else ""
            kind = _kind(model) if model is not None and len(problem["loc"]) == 1 else None
            return f"no such parameter{f' of {kind}' if kind else ''}{hint}"
        case "missing":
            return "missing"
        case "value_error":
            return message.removeprefix("Value error, ")
        case "nested":
            return message
        case "union_tag_invalid":
            context = problem["ctx"]
            known = [tag.strip("'") for tag in context["expected_tags"].split(", ")]
            return f"unknown kind {context['tag']!r}; {nearest(context['tag'], known)}"
    value = problem["input"]
    shown = repr(value) if len(repr(value)) <= 60 else f"{type(value).__name__}"
    return f"{shown}: {message[0].lower()}{message[1:]}".replace(": input should", ": should")


def _fields(model: type[BaseModel] | None, location: Location) -> list[str]:
    """Return the field names of the model that a location points to."""
    candidates = [model] if model is not None else []
    for part in location:
        tagged = [c for c in candidates if _kind(c) == part]
        if tagged:
            candidates = tagged
            continue
        fields = [c.model_fields[str(part)] for c in candidates if str(part) in c.model_fields]
        candidates = [m for info in fields for m in _models(info.annotation)]
    return sorted({name for candidate in candidates for name in candidate.model_fields})


def _models(annotation: object) -> list[type[BaseModel]]:
    """Return all models that an annotation mentions."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models(part)]


def _kind(model: type[BaseModel]) -> object:
    return model.model_fields["kind"].default if "kind" in model.model_fields else None


def _kinds(model: type[BaseModel] | None, depth: int = 4) -> set[object]:
    """Return the tags of all unions below a model: parts of a location that no person wrote."""
    if model is None or depth == 0:
        return set()
    found = {_kind(model)} - {None}
    for info in model.model_fields.values():
        for part in _models(info.annotation):
            found |= _kinds(part, depth - 1)
    return found
