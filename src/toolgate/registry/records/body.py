"""The base of all bodies, their JSON schemas, and how validation problems are reported.

A problem names the field and never its content, which may be a secret. The docstrings of fields are their
descriptions. They are read from the source when a schema is requested: Pydantic's own
`use_attribute_docstrings` reads the source whenever a class is made, which slows down every start.
"""

import ast
import inspect
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cache
from itertools import pairwise
from types import MappingProxyType
from typing import Any, ClassVar, Final, TypedDict, TypeVar, cast

from pydantic import BaseModel, ConfigDict, GetJsonSchemaHandler, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from toolgate.errors import InvalidRecord

MAX_SHOWN_PROBLEMS: Final = 10  # as many as people read; the rest is in the data of the error
MAX_PROBLEMS: Final = 1_000  # for each body: a million invalid members must not make a larger response
UNKNOWN_FIELD: Final = "is not a known field"
_WITHOUT_TEXTS: Final = frozenset({"builtins", "msgspec", "pydantic", "typing"})
"""The packages of base classes whose fields are not described."""


class FieldProblem(TypedDict):
    """One validation problem. `field` is empty if it concerns the whole body."""

    field: str
    problem: str


def find_problems(exc: ValidationError) -> list[FieldProblem]:
    known = {"missing": "is missing", "extra_forbidden": UNKNOWN_FIELD}
    return [
        FieldProblem(
            field=field_path(error["loc"]),
            problem=known.get(error["type"], printable(error["msg"][:1].lower() + error["msg"][1:])),
        )
        for error in exc.errors(include_url=False, include_input=False)[:MAX_PROBLEMS]
    ]


def invalid_record(problems: Sequence[FieldProblem]) -> InvalidRecord:
    """Return the error with all problems: the first few in its message, more in its data."""
    shown = [
        f"`{one['field']}`: {one['problem']}" if one["field"] else one["problem"]
        for one in problems[:MAX_SHOWN_PROBLEMS]
    ]
    if len(problems) > MAX_SHOWN_PROBLEMS:
        shown.append(f"and {len(problems) - MAX_SHOWN_PROBLEMS} more")
    return InvalidRecord("; ".join(shown), data={"problems": list(problems[:MAX_PROBLEMS])})


def field_path(loc: tuple[int | str, ...]) -> str:
    """Render a path like `stdio.args[2]`. Its parts are untrusted, so they are cut and made printable."""
    path = ""
    for part in loc:
        if part == "[key]":
            continue
        path += f"[{part}]" if isinstance(part, int) else f".{printable(part[:80])}"
    return path.removeprefix(".")


def printable(text: str) -> str:
    """Replace unprintable characters, so that untrusted text fits on one line."""
    return "".join(char if char.isprintable() else "?" for char in text)


class FieldDescriptions:
    """A model whose schema uses the docstrings under its fields as descriptions."""

    __slots__ = ()

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> JsonSchemaValue:
        assert issubclass(cls, BaseModel)
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in read_field_texts(cls).items():
            properties[cls.model_fields[name].alias or name].setdefault("description", text)
        return schema


def read_field_texts(shape: type) -> Mapping[str, str]:
    """The docstrings of own and inherited fields. A redeclared field does not inherit one."""
    texts: dict[str, str] = {}
    for one in reversed(shape.__mro__):
        if one.__module__.partition(".")[0] in _WITHOUT_TEXTS:
            continue
        declared = inspect.get_annotations(one)
        texts = {name: text for name, text in texts.items() if name not in declared}
        texts |= _read_module_texts(one.__module__).get(one.__name__, {})
    return texts


@cache
def _read_module_texts(name: str) -> Mapping[str, Mapping[str, str]]:
    """Return class → field → docstring. A model made by a function call has no source and no docstrings."""
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


class StrictBody(FieldDescriptions, BaseModel):
    """The base of bodies: coerces nothing, rejects unknown fields and never echoes input."""

    # Built on first use: a start does not wait for the validators of all bodies.
    model_config = ConfigDict(
        defer_build=True, frozen=True, extra="forbid", strict=True, hide_input_in_errors=True
    )
    value_type: ClassVar[type]

    def __init_subclass__(cls, *, makes: type | None = None, **options: Any) -> None:
        """`makes`: the type of `value()`."""
        super().__init_subclass__(**options)
        if makes is not None:
            cls.value_type = makes

    def value(self) -> Any:
        """Convert the body to a value of the model."""
        return make_value(self, self.value_type)


V = TypeVar("V")


def make_value(body: StrictBody, model: type[V], **others: object) -> V:
    """Convert `body` to a value of `model`: the fields that both have, frozen, and `others`."""
    names = _field_names(cast("type", model)) & type(body).model_fields.keys() - others.keys()
    return model(**{name: _freeze(getattr(body, name)) for name in names}, **others)


@cache
def _field_names(model: type) -> frozenset[str]:
    return frozenset(field.name for field in fields(model))


def _freeze(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_freeze, value))
    if isinstance(value, dict):
        return MappingProxyType({key: _freeze(one) for key, one in value.items()})
    return value.value() if isinstance(value, StrictBody) else value
