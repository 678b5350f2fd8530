"""Roots of schemas that models' servers refuse, and what becomes of them."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.chat.injection import normalize_parameters

REFUSED = ("anyOf", "oneOf", "allOf", "enum", "const", "not", "$ref", "unevaluatedProperties")
TEXT = {"type": "string"}
NUMBER = {"type": "number"}


def lifted(schema: dict[str, Any]) -> dict[str, Any]:
    raws = {name: msgspec.Raw(json.dumps(value).encode()) for name, value in schema.items()}
    return {name: json.loads(bytes(raw)) for name, raw in normalize_parameters(raws).items()}


def asks(*names: str, **properties: Any) -> dict[str, Any]:
    return {"properties": properties, "required": list(names)}


@pytest.mark.parametrize(
    ("schema", "properties", "required"),
    [
        pytest.param(
            {**asks("a", a=TEXT), "anyOf": [asks("b", b=TEXT), asks("c", c=NUMBER)]},
            {"a": TEXT, "b": TEXT, "c": NUMBER},
            ["a"],
            id="alternatives: all they speak of, and what the root demands",
        ),
        pytest.param(
            {"oneOf": [asks("kind", "b", kind={"const": 1}, b=TEXT), asks("kind", kind={"const": 2})]},
            {"kind": {"anyOf": [{"const": 1}, {"const": 2}]}, "b": TEXT},
            ["kind"],
            id="alternatives that differ: either; what all demand is demanded",
        ),
        pytest.param(
            {"oneOf": [asks(a=TEXT), asks(a=TEXT)]}, {"a": TEXT}, [], id="alternatives that say the same"
        ),
        pytest.param(
            {"allOf": [asks("a", a=TEXT), {"anyOf": [asks("b", b=TEXT)]}]},
            {"a": TEXT, "b": TEXT},
            ["a", "b"],
            id="parts: all that any demands",
        ),
        pytest.param(
            {
                "oneOf": [{"$ref": "#/$defs/A"}, {"$ref": "#/$defs/a~1b~0"}],
                "$defs": {"A": asks(a=TEXT), "a/b~": asks(b=TEXT)},
            },
            {"a": TEXT, "b": TEXT},
            [],
            id="alternatives by reference",
        ),
        pytest.param(
            {
                "$ref": "#/definitions/X",
                "definitions": {"X": {**asks("a", a=TEXT), "allOf": [{"$ref": "#/definitions/X"}]}},
            },
            {"a": TEXT},
            ["a"],
            id="a root by reference, in circles",
        ),
        pytest.param(
            {"$ref": "#/$defs/gone/deeper", "$defs": {"gone": 3}}, {}, [], id="a reference to nothing"
        ),
        pytest.param({"$ref": "urn:x", "anyOf": [True, {"properties": 3, "required": 4}]}, {}, [], id="junk"),
        pytest.param(
            {"anyOf": {}, "allOf": 3, "$ref": 3, **asks("a", a=TEXT)}, {"a": TEXT}, ["a"], id="more junk"
        ),
        pytest.param({**asks("a", a=TEXT), "not": {"required": ["b"]}}, {"a": TEXT}, ["a"], id="not"),
        pytest.param({**asks(a=TEXT), "enum": [{"a": "x"}]}, {"a": TEXT}, [], id="enum"),
        pytest.param({**asks(a=TEXT), "const": {"a": "x"}}, {"a": TEXT}, [], id="const"),
    ],
)
def test_what_is_reported_of_single_arguments_is_lifted(
    schema: dict[str, Any], properties: Any, required: list[str]
) -> None:
    root = lifted({"type": "object", **schema})

    assert (root["type"], root["properties"], root["required"]) == ("object", properties, required)
    assert not root.keys() & set(REFUSED)
    assert root.get("$defs") == schema.get("$defs")


def test_what_is_left_unsent_is_in_the_description_word_for_word() -> None:
    either = [asks("a"), asks("b")]
    root = lifted(
        {"type": "object", "description": "Either.", "oneOf": either, "unevaluatedProperties": False}
    )

    sent_text, note = root["description"].split("\n\n")
    assert sent_text == "Either."
    assert note.startswith("The arguments as a whole must also fit this JSON Schema: ")
    assert json.loads(note.partition("Schema: ")[2]) == {"oneOf": either, "unevaluatedProperties": False}


def test_a_reference_into_what_has_to_go_leads_nowhere_afterwards() -> None:
    schema = {
        "type": "object",
        "anyOf": [asks(a=TEXT)],
        "properties": {"b": {"$ref": "#/anyOf/0/properties/a"}},
    }
    root = lifted(schema)

    assert root.keys() == {"type", "properties", "description"}
    assert root["properties"] == {}
    assert json.loads(root["description"].partition("Schema: ")[2]) == schema


def test_references_are_followed_only_so_far() -> None:
    chain = {f"d{at}": {"$ref": f"#/$defs/d{at + 1}", **asks(**{f"p{at}": TEXT})} for at in range(5_000)}
    root = lifted({"type": "object", "$ref": "#/$defs/d0", "$defs": chain})

    assert "p10" in root["properties"]
    assert len(root["properties"]) < 100


def test_many_alternatives_take_no_longer_than_they_are_long() -> None:
    """Compared with each other one by one, these would take minutes."""
    branches = [asks("kind", kind={"const": number}) for number in range(5_000)]
    root = lifted({"type": "object", "oneOf": branches})

    assert len(root["properties"]["kind"]["anyOf"]) == 5_000


SCHEMAS = st.recursive(
    st.sampled_from([{}, True, TEXT, {"$ref": "#/$defs/A"}, {"$ref": "#/$defs/B"}, asks("a", a=TEXT)]),
    lambda inner: st.fixed_dictionaries(
        {},
        optional={
            "anyOf": st.lists(inner, max_size=3),
            "allOf": st.lists(inner, max_size=3),
            "oneOf": st.lists(inner, max_size=3),
            "properties": st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
            "required": st.lists(st.sampled_from("abc"), max_size=2),
            "not": inner,
        },
    ),
    max_leaves=12,
)


@given(SCHEMAS, SCHEMAS, SCHEMAS)
def test_every_root_becomes_one_that_is_taken(root: Any, first: Any, second: Any) -> None:
    schema = {**(root if isinstance(root, dict) else {}), "$defs": {"A": first, "B": second}}
    taken = lifted(schema)

    assert taken["type"] == "object"
    assert isinstance(taken["properties"], dict)
    assert not taken.keys() & set(REFUSED)
    assert taken["$defs"] == schema["$defs"]
    assert set(schema.get("properties", ())) <= set(taken["properties"])
