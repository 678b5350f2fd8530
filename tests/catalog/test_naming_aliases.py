"""Tools whose own name is not a tool name: a stable alias, never another tool's, and never a disguise."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.catalog.checks import QuarantinedDefinition
from toolgate.catalog.definitions import check_definition, check_tools
from toolgate.catalog.naming import MAX_NATIVE_NAME, make_alias
from toolgate.model.names import MAX_TOOL_NAME, is_tool_name
from toolgate.model.tools import ToolDefinition


def tool(name: str, **members: object) -> bytes:
    return msgspec.json.encode({"name": name, "inputSchema": {"type": "object"}, **members})


@pytest.mark.parametrize(
    ("native", "alias"),
    [
        pytest.param("list files", "list_files_ea3cdaac", id="space"),
        pytest.param("repos/list", "repos_list_", id="slash"),
        pytest.param("données: lire", "donnees_lire_", id="accents"),
        pytest.param("搜索文件", "tool_", id="another script"),
        pytest.param("список", "tool_", id="Cyrillic throughout"),
        pytest.param("r" * 129, "r" * 119 + "_", id="too long"),
        pytest.param("prompt:x", "prompt_x_", id="what would be of another kind"),
    ],
)
def test_a_name_that_is_not_a_tool_name_gets_a_readable_alias_with_a_hash(native: str, alias: str) -> None:
    found = check_definition("fs", tool(native))

    assert isinstance(found, ToolDefinition)
    assert found.ref.name.startswith(alias)
    assert is_tool_name(found.ref.name)
    assert found.native_name == native
    assert msgspec.json.decode(found.raw)["title"] == native


@given(st.lists(st.text(max_size=MAX_NATIVE_NAME + 1), max_size=8))
def test_every_alias_is_a_tool_name_and_no_two_tools_share_one(names: list[str]) -> None:
    tools, _ = check_tools("fs", [tool(name) for name in names if name.isprintable()])
    natives = [one.native_name or one.ref.name for one in tools.values()]

    assert all(is_tool_name(name) for name in tools)
    assert len({name.casefold() for name in tools}) == len(tools)
    assert len(set(natives)) == len(natives)


def test_an_alias_does_not_depend_on_other_tools() -> None:
    lists = [["list files"], ["list files", "other"], ["other", "more files", "list files"]]
    found = [check_tools("fs", [tool(name) for name in names])[0] for names in lists]

    aliases = {name for tools in found for name, one in tools.items() if one.native_name == "list files"}
    assert len(aliases) == 1


def test_a_definition_is_the_same_when_it_is_read_again() -> None:
    """A node hands on what it has read, and control reads it again."""
    first = check_definition("fs", tool("list files"))
    assert isinstance(first, ToolDefinition)

    assert check_definition("fs", first.raw) == first


def test_a_plain_name_wins_over_an_alias_at_any_place() -> None:
    alias = make_alias("list files")
    tools, quarantined = check_tools("fs", [tool("list files"), tool(alias), tool("list files")])

    assert tools[alias].native_name == ""
    [longer] = tools.keys() - {alias}
    assert (tools[longer].native_name, len(longer)) == ("list files", len(alias) + 1)
    assert list(quarantined) == [f"{longer}#3"]
    assert len(longer) <= MAX_TOOL_NAME


@pytest.mark.parametrize(
    "other",
    [
        pytest.param("re\N{CYRILLIC SMALL LETTER A}d file", id="a letter of another script"),
        pytest.param("READ file", id="case"),
        pytest.param("\N{FULLWIDTH LATIN SMALL LETTER R}ead file", id="width"),
    ],
)
def test_sco_6_a_name_that_looks_like_another_of_its_server_is_quarantined(other: str) -> None:
    tools, quarantined = check_tools("fs", [tool("read file"), tool(other)])

    assert [one.native_name for one in tools.values()] == ["read file"]
    assert list(quarantined.values()) == [f"its name looks like `{make_alias('read file')}`"]


def test_sco_6_what_looks_like_a_plain_name_of_its_server_throughout_is_quarantined() -> None:
    cyrillic = "\N{CYRILLIC SMALL LETTER ES}\N{CYRILLIC SMALL LETTER O}\N{CYRILLIC SMALL LETTER ER}"
    alone, _ = check_tools("fs", [tool(cyrillic)])
    tools, quarantined = check_tools("fs", [tool(cyrillic), tool("cop")])

    assert [one.native_name for one in alone.values()] == [cyrillic]
    assert list(tools) == ["cop"]
    assert list(quarantined) == [make_alias(cyrillic)]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        pytest.param("re\N{CYRILLIC SMALL LETTER A}d_file", "re\\u0430d_file", id="Cyrillic"),
        pytest.param("\N{FULLWIDTH LATIN SMALL LETTER R}ead_file", "\\uff52ead_file", id="fullwidth"),
    ],
)
def test_sco_6_a_name_that_looks_like_a_plain_one_is_quarantined_and_shown_escaped(
    name: str, shown: str
) -> None:
    expected = QuarantinedDefinition(shown, "its name looks like `read_file` but has other letters")

    assert check_definition("fs", tool(name)) == expected
