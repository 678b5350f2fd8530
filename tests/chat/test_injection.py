"""MCP tools as functions that a model is offered."""

import json
from typing import Any

import pytest

from toolgate.catalog.definitions import check_definition
from toolgate.chat.injection import InjectedTools, encode_function, inject_tools
from toolgate.model.tools import ToolDefinition

READ = {
    "name": "read",
    "description": "Reads a file.",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
}


def defined(**members: Any) -> ToolDefinition:
    definition = check_definition("fs", json.dumps({**READ, **members}).encode())
    assert isinstance(definition, ToolDefinition)
    return definition


@pytest.mark.requirement("001-02")
def test_a_tool_is_offered_as_a_function_that_is_not_strict() -> None:
    offered = inject_tools({"mcp__fs__read": ("fs.read", defined())}, ())

    assert [json.loads(one) for one in offered.tools] == [
        {
            "type": "function",
            "function": {
                "name": "mcp__fs__read",
                "description": "Reads a file.",
                "parameters": READ["inputSchema"],
                "strict": False,
            },
        }
    ]


@pytest.mark.requirement("001-01")
def test_both_spellings_of_a_tool_mean_it() -> None:
    offered = inject_tools({"mcp__fs__read": ("fs.read", defined())}, ("mine",))

    assert offered.names == {"mcp__fs__read": "fs.read", "mcp.fs.read": "fs.read"}
    assert offered.declared == {"mcp__fs__read": "mcp__fs__read", "mcp.fs.read": "mcp__fs__read"}
    assert offered.shadowed == ()


def test_the_callers_own_function_wins_over_a_tool_of_its_name() -> None:
    """CHT-8"""
    tools = {"mcp__fs__read": ("fs.read", defined()), "mcp__fs__stat": ("fs.stat", defined(name="stat"))}
    offered = inject_tools(tools, ["mcp__fs__read"])

    assert [json.loads(one)["function"]["name"] for one in offered.tools] == ["mcp__fs__stat"]
    assert set(offered.names.values()) == {"fs.stat"}
    assert offered.shadowed == ("mcp__fs__read",)


def test_a_function_with_a_dotted_name_wins_over_that_spelling() -> None:
    """CHT-8"""
    offered = inject_tools({"mcp__fs__read": ("fs.read", defined())}, ["mcp.fs.read"])

    assert offered.names == {"mcp__fs__read": "fs.read"}


def test_nothing_to_offer() -> None:
    assert inject_tools({}, ["mine"]) == InjectedTools()


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        pytest.param({"title": "Read"}, "Reads a file.", id="a description"),
        pytest.param({"description": "", "title": "Read"}, "Read", id="a title"),
        pytest.param({"description": "", "annotations": {"title": "Reading"}}, "Reading", id="another title"),
        pytest.param({"description": ""}, "", id="nothing"),
        pytest.param({"description": "long " * 1_000}, "long " * 1_000, id="a long one is whole"),
    ],
)
def test_how_a_function_is_described(members: dict[str, Any], expected: str) -> None:
    function = json.loads(encode_function("f", defined(**members)))["function"]

    assert function.get("description", "") == expected


def test_a_function_that_no_one_describes_has_no_description() -> None:
    offered = inject_tools({"f": ("fs.read", defined(description=""))}, ())

    assert list(json.loads(offered.tools[0])["function"]) == ["name", "parameters", "strict"]


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        pytest.param(None, {"type": "object", "properties": {}}, id="none"),
        pytest.param({"type": "object"}, {"type": "object", "properties": {}}, id="no properties"),
        pytest.param(
            {"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "required": []},
            {"type": "object", "properties": {}, "required": []},
            id="`$schema` goes, an empty `required` stays",
        ),
        pytest.param(
            {
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/A"}},
                "$defs": {"A": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
                "additionalProperties": False,
                "x-vendor": 1,
            },
            {
                "type": "object",
                "properties": {"a": {"$ref": "#/$defs/A"}},
                "$defs": {"A": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
                "additionalProperties": False,
                "x-vendor": 1,
            },
            id="all else stays",
        ),
    ],
)
def test_parameters(schema: Any, expected: Any) -> None:
    function = json.loads(encode_function("f", defined(inputSchema=schema)))["function"]

    assert function["parameters"] == expected
