"""Words of a command line as the arguments of a tool, by its input schema."""

from typing import Any

import pytest

from toolgate.cli.command import UsageError
from toolgate.cli.tool_arguments import build_arguments, format_type, parse_signature

NODE = {"$ref": "#/$defs/Node"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "description": "What to\nwrite."},
        "count": {"type": "integer"},
        "share": {"type": "number"},
        "deep": {"type": "boolean", "default": False},
        "sort": {"enum": ["asc", "desc"]},
        "level": {"type": "integer", "enum": [1, 2]},
        "until": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        "tags": {"type": "array", "items": {"type": "string"}},
        "sizes": {"anyOf": [{"type": "array", "items": {"type": "integer"}}, {"type": "null"}]},
        "filter": {"type": "object"},
        "order": {"$ref": "#/$defs/Order"},
        "id": {"type": ["integer", "string"]},
        "many": {"oneOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
        "unit": {"anyOf": [{"const": "km"}, {"const": "mi"}, {"type": "null"}]},
        "whole": {"allOf": [{"$ref": "#/$defs/Order"}]},
        "free": {},
        "node": NODE,
    },
    "$defs": {"Order": {"type": "string", "enum": ["new", "old"]}, "Node": {"anyOf": [NODE, NODE]}},
}


def build(schema: dict[str, Any], *words: str, **given: Any) -> dict[str, Any]:
    texts: dict[str, list[str]] = {}
    for word in words:
        name, _, text = word.partition("=")
        texts.setdefault(name, []).append(text)
    return build_arguments("git.log", parse_signature(schema), texts, given)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(["text=5"], {"text": "5"}, id="text stays text"),
        pytest.param(["text= a=b "], {"text": " a=b "}, id="with its spaces and signs"),
        pytest.param(["text="], {"text": ""}, id="empty text"),
        pytest.param(["text=null"], {"text": "null"}, id="text that may not be null"),
        pytest.param(["count=-5"], {"count": -5}, id="integer"),
        pytest.param([f"count=1{'0' * 30}"], {"count": 10**30}, id="a long integer, exactly"),
        pytest.param(["share=0.5"], {"share": 0.5}, id="number"),
        pytest.param(["share=2"], {"share": 2}, id="number without a fraction"),
        pytest.param(["deep=true"], {"deep": True}, id="true"),
        pytest.param(["deep=false"], {"deep": False}, id="false"),
        pytest.param(["sort=asc"], {"sort": "asc"}, id="enum"),
        pytest.param(["level=2"], {"level": 2}, id="enum of integers"),
        pytest.param(["until=null"], {"until": None}, id="null"),
        pytest.param(["until=now"], {"until": "now"}, id="text or null"),
        pytest.param(["tags=a"], {"tags": ["a"]}, id="one element"),
        pytest.param(["tags=a", "tags=[b"], {"tags": ["a", "[b"]}, id="elements, one a word"),
        pytest.param(['tags=["a", "b"]'], {"tags": ["a", "b"]}, id="array as JSON"),
        pytest.param(["sizes=1", "sizes=2"], {"sizes": [1, 2]}, id="elements have a type, too"),
        pytest.param(["sizes=null"], {"sizes": None}, id="array or null"),
        pytest.param(['filter={"a": [1]}'], {"filter": {"a": [1]}}, id="object"),
        pytest.param(["order=new"], {"order": "new"}, id="reference"),
        pytest.param(["whole=new"], {"whole": "new"}, id="allOf"),
        pytest.param(["unit=km"], {"unit": "km"}, id="alternatives of one value"),
        pytest.param(["unit=null"], {"unit": None}, id="or null"),
        pytest.param(["id=7"], {"id": 7}, id="a number before text"),
        pytest.param(["id=7a"], {"id": "7a"}, id="or text"),
        pytest.param(["many=a"], {"many": "a"}, id="text before one element"),
        pytest.param(["many=a", "many=b"], {"many": ["a", "b"]}, id="or elements"),
        pytest.param(["free=3"], {"free": 3}, id="any type: JSON"),
        pytest.param(["free=[1"], {"free": "[1"}, id="or text"),
        pytest.param(["node=x"], {"node": "x"}, id="a schema that refers to itself"),
    ],
)
def test_a_value_has_the_type_that_the_schema_says(words: list[str], expected: dict[str, Any]) -> None:
    assert build(SCHEMA, *words) == expected


@pytest.mark.parametrize(
    ("words", "message", "hint"),
    [
        pytest.param(["count=five"], "invalid value of `count`: `five`", "of type integer", id="integer"),
        pytest.param(["count=1.5"], "invalid value of `count`", "of type integer", id="fraction"),
        pytest.param([f"count={'9' * 401}"], "invalid value of `count`", "integer", id="401 digits"),
        pytest.param(["share=NaN"], "invalid value of `share`: `NaN`", "number", id="NaN"),
        pytest.param(["share=1e400"], "invalid value of `share`", "number", id="infinity"),
        pytest.param(["deep=yes"], "invalid value of `deep`: `yes`", "boolean", id="boolean"),
        pytest.param(["sort=up"], "invalid value of `sort`: `up`", "must be one of asc, desc", id="enum"),
        pytest.param(["level=3"], "invalid value of `level`: `3`", "one of 1, 2", id="enum of integers"),
        pytest.param(["unit=ly"], "invalid value of `unit`: `ly`", "one of km, mi", id="const"),
        pytest.param(["sizes=1", "sizes=a"], "invalid value of `sizes`: `a`", "integer", id="element"),
        pytest.param(["tags=[1"], "invalid value of `tags`: `[1`", "as JSON", id="cut array"),
        pytest.param(["filter=a"], "invalid value of `filter`: `a`", "NAME=@FILE", id="object"),
        pytest.param(["filter={"], "invalid value of `filter`: `{`", "as JSON", id="cut object"),
        pytest.param(["count=1", "count=2"], "`count` is given 2 times", "give it once", id="twice"),
        pytest.param(
            ["text=\x1b[31m\ud800", "txet=1"], "no argument `txet`", "did you mean `text`?", id="slip"
        ),
        pytest.param(["zzz=1"], "`git.log` has no argument `zzz`", "it takes `text`, `count`", id="unknown"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_what_does(
    words: list[str], message: str, hint: str
) -> None:
    with pytest.raises(UsageError) as refusal:
        build(SCHEMA, *words)

    assert message in str(refusal.value)
    assert hint in refusal.value.hint


def test_missing_arguments_are_listed_with_type_and_description() -> None:
    schema = {**SCHEMA, "required": ["text", "sort", "path"]}

    with pytest.raises(UsageError) as refusal:
        build(schema, "count=1")

    assert str(refusal.value) == (
        "`git.log` needs `text` (string, What to write.); `sort` (one of asc, desc); `path` (any)"
    )
    assert "toolgate call git.log --describe" in refusal.value.hint


def test_words_add_to_what_a_file_gives_and_win_over_it() -> None:
    assert build(SCHEMA, "count=2", count=1, other=[1]) == {"count": 2, "other": [1]}


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"type": "object"}, id="nothing is named"),
        pytest.param({"properties": {"a": {}}, "additionalProperties": True}, id="others are welcome"),
        pytest.param({"properties": {"a": {}}, "additionalProperties": {"type": "string"}}, id="of a type"),
        pytest.param({"properties": {"a": {}}, "patternProperties": {"^b": {}}}, id="of a pattern"),
        pytest.param({"properties": "none"}, id="not a schema"),
    ],
)
def test_arguments_that_are_not_named_are_sent_where_the_schema_is_open(schema: dict[str, Any]) -> None:
    assert build(schema, "b=1") == {"b": 1}


@pytest.mark.parametrize(
    "schema",
    [
        pytest.param({"properties": {}, "additionalProperties": False}, id="closed"),
        pytest.param({"properties": {"a": {}}}, id="named, and nothing is said of others"),
    ],
)
def test_arguments_that_are_not_named_are_refused_otherwise(schema: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="has no argument `b`"):
        build(schema, "b=1")


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("text", "string"),
        ("until", "string or null"),
        ("sizes", "array of integer or null"),
        ("sort", "one of asc, desc"),
        ("id", "integer or string"),
        ("free", "any"),
    ],
)
def test_types_have_the_names_of_json(name: str, expected: str) -> None:
    signature = parse_signature(SCHEMA)

    assert format_type(signature.parameters[name], SCHEMA) == expected


def test_required_arguments_come_first_and_defaults_are_known() -> None:
    signature = parse_signature({**SCHEMA, "required": ["deep"]})

    assert next(iter(signature.parameters)) == "deep"
    assert signature.parameters["deep"].default is False
