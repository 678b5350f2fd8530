"""What is wrong with a body, told at once and field by field. Never what it holds: that may be a secret.

What a schema says of the fields of a model: the text that stands under each.

The source is read when somebody asks for a schema. Pydantic's own `use_attribute_docstrings` reads it
whenever a class is made: with as many models as there are, every start would wait for it.
"""

import ast
import inspect
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import pairwise
from typing import Final, TypedDict

from pydantic import BaseModel, GetJsonSchemaHandler, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from toolgate.errors import InvalidRecord

MAX_SHOWN_PROBLEMS: Final = 10
MAX_PROBLEMS: Final = 1_000
"""Of one body. Whoever sends a million wrong members needs no answer that is larger still."""
UNKNOWN_FIELD: Final = "is not a known field"


class FieldProblem(TypedDict):
    """One thing that is wrong. The field is empty where it is the body as a whole."""

    field: str
    problem: str


def find_problems(exc: ValidationError) -> list[FieldProblem]:
    """What a validation found."""
    return [
        FieldProblem(field=field_path(error["loc"]), problem=_describe_error(error["type"], error["msg"]))
        for error in exc.errors(include_url=False, include_input=False)[:MAX_PROBLEMS]
    ]


def invalid_record(problems: Sequence[FieldProblem]) -> InvalidRecord:
    """The error that names them: the first few in words, more in its data."""
    shown = [_render_problem(one) for one in problems[:MAX_SHOWN_PROBLEMS]]
    if len(problems) > MAX_SHOWN_PROBLEMS:
        shown.append(f"and {len(problems) - MAX_SHOWN_PROBLEMS} more")
    return InvalidRecord("; ".join(shown), data={"problems": list(problems[:MAX_PROBLEMS])})


def field_path(loc: tuple[int | str, ...]) -> str:
    """`stdio.args[2]`. The parts are a stranger's words, so they are cut and made printable."""
    path = ""
    for part in loc:
        if part == "[key]":
            continue
        path += f"[{part}]" if isinstance(part, int) else f".{printable(part[:80])}"
    return path.removeprefix(".")


def printable(text: str) -> str:
    """A stranger's words, fit for one line."""
    return "".join(char if char.isprintable() else "?" for char in text)


def _render_problem(problem: FieldProblem) -> str:
    return f"`{problem['field']}`: {problem['problem']}" if problem["field"] else problem["problem"]


def _describe_error(error_type: str, message: str) -> str:
    match error_type:
        case "missing":
            return "is missing"
        case "extra_forbidden":
            return UNKNOWN_FIELD
        case _:
            return printable(message[:1].lower() + message[1:])


class FieldDescriptions:
    """For a model: its schema has the texts under its fields as their descriptions."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> JsonSchemaValue:
        assert issubclass(cls, BaseModel)
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in _collect_field_texts(cls).items():
            properties[cls.model_fields[name].alias or name].setdefault("description", text)
        return schema


def _collect_field_texts(model: type[BaseModel]) -> Mapping[str, str]:
    """Of its own fields and of those it inherits; one that is declared anew has no older text."""
    texts: dict[str, str] = {}
    for one in reversed(model.__mro__[: model.__mro__.index(BaseModel)]):
        declared = inspect.get_annotations(one)
        texts = {name: text for name, text in texts.items() if name not in declared}
        texts |= _read_module_texts(one.__module__).get(one.__name__, {})
    return texts


@cache
def _read_module_texts(name: str) -> Mapping[str, Mapping[str, str]]:
    """Class → field → the text under it. A model made by a call stands nowhere, and has none."""
    source = ast.parse(inspect.getsource(sys.modules[name]))
    return {one.name: _read_class_texts(one) for one in source.body if isinstance(one, ast.ClassDef)}


def _read_class_texts(found: ast.ClassDef) -> Mapping[str, str]:
    return {
        field.target.id: inspect.cleandoc(text.value.value)
        for field, text in pairwise(found.body)
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
        if isinstance(text.value.value, str)
    }
