"""What the text below a field says: read from the source where help or a JSON Schema asks for it.

pydantic can read these texts, too (``use_attribute_docstrings``), but does so for every class that
is loaded, which takes longer than a short run.
"""

import ast
import inspect
import sys
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import core_schema


def descriptions(model: type[BaseModel]) -> dict[str, str]:
    """Return the texts below the fields of a class, by field; inherited ones included.

    Parameters
    ----------
    model : type of BaseModel
        At the top of a module that has a file.

    Examples
    --------
    >>> from simulator.spec import Goodput
    >>> descriptions(Goodput)["e2el_ms"]
    'Longest time to the last token, ms.'
    """
    found: dict[str, str] = {}
    for cls in reversed(model.__mro__):
        own = _texts_of(cls)
        for name in inspect.get_annotations(cls):
            found.pop(name, None)  # a field that is defined anew is described anew
            if name in own and name in model.model_fields:
                found[name] = own[name]
    return found


class DescribedSchema(GenerateJsonSchema):
    """Writes a JSON Schema in which every field has its description."""

    def model_schema(self, schema: core_schema.ModelSchema) -> dict[str, Any]:
        """Return the JSON Schema of a class."""
        made = super().model_schema(schema)
        for name, text in descriptions(schema["cls"]).items():
            made["properties"][name].setdefault("description", text)
        return made


def _texts_of(cls: type) -> dict[str, str]:
    path = getattr(sys.modules.get(cls.__module__), "__file__", None)
    return {} if path is None else _texts_in(path).get(cls.__qualname__, {})


@cache
def _texts_in(path: str) -> dict[str, dict[str, str]]:
    """Return the texts below the fields of each class at the top of a module."""
    try:
        tree = ast.parse(Path(path).read_text("utf-8"))
    except OSError:  # a program without its sources
        return {}
    return {
        node.name: {
            field.target.id: inspect.cleandoc(text.value.value)
            for field, text in pairwise(node.body)
            if isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        }
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }
