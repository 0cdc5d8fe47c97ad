"""What the parts of a workload description share: the frozen model, array types, kinds."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Annotated, Any, TypeAlias, Union

import numpy as np
from numpy.typing import NDArray
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    SerializationInfo,
    TypeAdapter,
    ValidationError,
)
from pydantic_core import CoreSchema, core_schema

FloatArray: TypeAlias = NDArray[np.float64]
IntArray: TypeAlias = NDArray[np.int64]

RequestRate: TypeAlias = Annotated[float, Field(gt=0)]
PositiveInt: TypeAlias = Annotated[int, Field(ge=1, le=2**53)]


class Spec(BaseModel):
    """Base of everything a person writes: frozen, and unknown keys are errors.

    The text below a field describes it. The validator is built when it is first needed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, defer_build=True)


_OPTIONS = (
    *("mode", "include", "exclude", "exclude_unset", "exclude_defaults", "exclude_none"),
    *("by_alias", "round_trip", "context"),
)


class ByKind:
    """Stands in an annotation for ``Field(discriminator="kind")``, but builds only what is met.

    What is accepted, the errors and the JSON Schema are those of pydantic's own union, which
    builds the validators of all classes before it reads anything.

    Parameters
    ----------
    models : sequence of type of BaseModel
        The classes of the union.
    """

    def __init__(self, models: Sequence[type[BaseModel]]) -> None:
        self._models = {str(model.model_fields["kind"].default): model for model in models}

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> CoreSchema:
        write = core_schema.plain_serializer_function_ser_schema(self._write, info_arg=True)
        return core_schema.no_info_plain_validator_function(self._read, serialization=write)

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        return handler(self._union.core_schema)

    def _read(self, data: object) -> object:
        kind = data.get("kind") if isinstance(data, dict) else getattr(data, "kind", None)
        model = self._models.get(kind) if isinstance(kind, str) else None
        if model is not None:
            with suppress(ValidationError):
                return model.model_validate(data)
        return self._union.validate_python(data)  # knows what to say of it

    def _write(self, value: object, info: SerializationInfo) -> object:
        """Return what pydantic's union makes of it: the fields of the class, of none below it."""
        model = self._models.get(getattr(value, "kind", ""))
        if model is None:
            return value
        model.model_rebuild()  # in another process it may never have been read
        options: dict[str, Any] = {name: getattr(info, name) for name in _OPTIONS}
        return model.__pydantic_serializer__.to_python(value, **options)

    @cached_property
    def _union(self) -> TypeAdapter[Any]:
        union: Any = Union[*self._models.values()]
        return TypeAdapter(Annotated[union, Field(discriminator="kind")])


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
