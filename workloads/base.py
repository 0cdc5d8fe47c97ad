"""What the parts of a workload description share: the frozen model, array types, kinds."""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]

RequestRate: TypeAlias = Annotated[float, Field(gt=0)]
PositiveInt: TypeAlias = Annotated[int, Field(ge=1, le=2**53)]


class Spec(BaseModel):
    """Base of everything a person writes: frozen, and unknown keys are errors.

    The text below a field describes it. The validator is built when it is first needed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


def with_kind(guess: Callable[[Mapping[str, Any]], str], number: str = "") -> BeforeValidator:
    """Make a validator that names the kind where a person left it out.

    Parameters
    ----------
    guess : callable
        Takes the keys as written and returns the kind.
    number : str, optional
        Key that a bare number stands for, also as text (a command line has nothing else); none
        if empty.

    Returns
    -------
    pydantic.BeforeValidator
        To stand in front of a union that is told apart by ``kind``.
    """

    def complete(data: object) -> object:
        if number and not isinstance(data, bool) and _is_number(data):
            data = {number: data}
        if isinstance(data, Mapping) and "kind" not in data:
            return {"kind": guess(data), **data}
        return data

    return BeforeValidator(complete)


def _is_number(data: object) -> bool:
    if not isinstance(data, str):
        return isinstance(data, int | float)
    try:
        float(data)
    except ValueError:
        return False
    return True


def finite(name: str, value: object) -> float:
    """Return a value as a float.

    Raises
    ------
    ValueError
        Not a finite number; names the field.
    """
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"expected a finite number as {name}, got {value!r}")
    return number


def positive(name: str, value: object) -> float:
    """Return a value as a float.

    Raises
    ------
    ValueError
        Not a finite number greater than 0; names the field.
    """
    number = finite(name, value)
    if number <= 0:
        raise ValueError(f"expected a number greater than 0 as {name}, got {value!r}")
    return number


def offer_alternatives(
    schema: dict[str, Any], names: Sequence[str], instead_of: Sequence[str]
) -> None:
    """Name in a JSON Schema the keys that may stand for others.

    Parameters
    ----------
    schema : dict
        The schema of a model; changed in place.
    names : sequence of str
        Positive numbers that are accepted as well.
    instead_of : sequence of str
        Fields that may then be left out.
    """
    for name in names:
        about = f"May stand for {' and '.join(instead_of)}."
        schema["properties"][name] = {
            "type": "number",
            "exclusiveMinimum": 0,
            "description": about,
        }
    schema["required"] = [name for name in schema["required"] if name not in instead_of]
