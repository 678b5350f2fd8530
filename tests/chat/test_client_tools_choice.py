"""`tool_choice`: read once, and asked with only until it is satisfied."""

import json
from typing import Any

import pytest

from toolgate.chat.client_tools import ToolChoice, parse_choice
from toolgate.errors import InvalidChat


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


def flat(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name}


def allowed(mode: str, *tools: Any) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": list(tools)}}


def choose(sent: Any) -> ToolChoice:
    return parse_choice(json.dumps(sent).encode())


NAMED = [function("f"), flat("f"), {"type": "custom", "custom": {"name": "f"}}]
SUBSET = {"type": "allowed_tools", "mode": "required", "tools": [flat("f"), {"type": "web_search"}], "x": 1}


@pytest.mark.parametrize(
    ("sent", "kind", "names", "mode"),
    [
        pytest.param(None, "absent", (), "auto", id="null"),
        pytest.param("none", "none", (), "auto", id="none"),
        pytest.param("auto", "auto", (), "auto", id="auto"),
        pytest.param("required", "required", (), "required", id="required"),
        pytest.param("any", "required", (), "required", id="as Mistral says it"),
        pytest.param(NAMED[0], "named", ("f",), "required", id="a function"),
        pytest.param(NAMED[1], "named", ("f",), "required", id="a function, in responses"),
        pytest.param(NAMED[2], "named", ("f",), "required", id="a custom tool"),
        pytest.param(
            {"type": "mcp", "server_label": "s", "name": "t"}, "named", ("t",), "required", id="an MCP tool"
        ),
        pytest.param({"type": "web_search"}, "named", (), "required", id="a tool without a name"),
        pytest.param(allowed("auto", *NAMED), "allowed", ("f", "f", "f"), "auto", id="a subset"),
        pytest.param(allowed("required", function("g")), "allowed", ("g",), "required", id="one of a subset"),
        pytest.param(SUBSET, "allowed", ("f",), "required", id="a subset, in responses"),
        pytest.param({"type": "allowed_tools", "tools": []}, "allowed", (), "auto", id="a subset of nothing"),
    ],
)
def test_a_choice_is_read(sent: Any, kind: Any, names: tuple[str, ...], mode: Any) -> None:
    raw = json.dumps(sent).encode()

    assert parse_choice(raw) == ToolChoice(raw=raw, kind=kind, names=names, mode=mode)


def test_no_choice_is_absent() -> None:
    assert parse_choice(None) == ToolChoice()


@pytest.mark.parametrize(
    "raw",
    [
        b'"sometimes"',
        b"true",
        b"1",
        b"[]",
        b"{}}",
        b"\xff",
        b'{"a":' + b"[" * 100_000,
        b'{"type":"function"}',
        b'{"type":"function","function":{"name":""}}',
        b'{"type":"custom","custom":{"name":1}}',
        b'{"type":"allowed_tools","allowed_tools":{"mode":"none","tools":[]}}',
        b'{"type":"allowed_tools","allowed_tools":{"mode":[],"tools":[]}}',
        b'{"type":"allowed_tools","allowed_tools":{"mode":"auto"}}',
        b'{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":["f"]}}',
        b'{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[{"type":"function"}]}}',
    ],
)
def test_what_is_no_choice_is_refused_by_name(raw: bytes) -> None:
    with pytest.raises(InvalidChat) as refused:
        parse_choice(raw)

    assert refused.value.data == {"param": "tool_choice"}


@pytest.mark.parametrize("sent", [None, "none", "auto", allowed("auto", function("f"))])
def test_a_choice_that_demands_nothing_stays(sent: Any) -> None:
    choice = choose(sent)

    assert choice.after_first_call() == choice.raw


@pytest.mark.parametrize("sent", ["required", "any", *NAMED, {"type": "web_search"}])
def test_a_demand_is_made_once(sent: Any) -> None:
    assert choose(sent).after_first_call() == b'"auto"'


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param(allowed("required", function("f")), allowed("auto", function("f")), id="chat"),
        pytest.param(SUBSET, SUBSET | {"mode": "auto"}, id="responses"),
    ],
)
def test_a_subset_outlives_the_demand(sent: Any, expected: Any) -> None:
    after = choose(sent).after_first_call()

    assert json.loads(after or b"") == expected


def test_an_absent_choice_stays_absent() -> None:
    assert ToolChoice().after_first_call() is None


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        pytest.param(function("mcp.fs.read"), function("mcp__fs__read"), id="a function"),
        pytest.param(flat("mcp.fs.read"), flat("mcp__fs__read"), id="a function, in responses"),
        pytest.param(
            allowed("required", function("mcp.fs.read"), function("mine"), {"type": "web_search"}),
            allowed("required", function("mcp__fs__read"), function("mine"), {"type": "web_search"}),
            id="a subset",
        ),
    ],
)
def test_tools_are_sent_by_the_names_the_model_knows(sent: Any, expected: Any) -> None:
    renamed = choose(sent).rename({"mcp.fs.read": "mcp__fs__read"})

    assert json.loads(renamed.raw or b"") == expected
    assert renamed == parse_choice(renamed.raw)


@pytest.mark.parametrize("choice", [ToolChoice(), choose("required"), choose(function("mine"))])
def test_a_choice_that_has_no_other_name_is_untouched(choice: ToolChoice) -> None:
    assert choice.rename({"mcp.fs.read": "mcp__fs__read", "mine": "mine"}) is choice
