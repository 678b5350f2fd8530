"""What a schema says of the fields of a model: the text that stands under each.

The source is read when somebody asks for a schema. Pydantic's own `use_attribute_docstrings` reads it
whenever a class is made: with as many models as there are, every start would wait for it.
"""

import ast
import inspect
import sys
from collections.abc import Mapping
from functools import cache
from itertools import pairwise

from pydantic import BaseModel, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema


class Documented:
    """For a model: its schema has the texts under its fields as their descriptions."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> JsonSchemaValue:
        assert issubclass(cls, BaseModel)
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in _field_texts(cls).items():
            properties[cls.model_fields[name].alias or name].setdefault("description", text)
        return schema


def _field_texts(model: type[BaseModel]) -> Mapping[str, str]:
    """Of its own fields and of those it inherits; one that is declared anew has no older text."""
    texts: dict[str, str] = {}
    for one in reversed(model.__mro__[: model.__mro__.index(BaseModel)]):
        declared = inspect.get_annotations(one)
        texts = {name: text for name, text in texts.items() if name not in declared}
        texts |= _texts_of_module(one.__module__).get(one.__name__, {})
    return texts


@cache
def _texts_of_module(name: str) -> Mapping[str, Mapping[str, str]]:
    """Class → field → the text under it. A model made by a call stands nowhere, and has none."""
    source = ast.parse(inspect.getsource(sys.modules[name]))
    return {one.name: _texts_of_class(one) for one in source.body if isinstance(one, ast.ClassDef)}


def _texts_of_class(found: ast.ClassDef) -> Mapping[str, str]:
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in pairwise(found.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if isinstance(text.value.value, str)
    }
