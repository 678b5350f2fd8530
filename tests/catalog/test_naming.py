"""Names on the doors: one reading each, unique, stable, and reversible through the table alone."""

import re
import string
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.catalog.naming import join_tool_name, make_chat_names, parse_joined_name
from toolgate.model.names import ToolRef

WORDS = st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=8)
JOINED_WORDS = st.lists(st.tuples(st.sampled_from("-_"), WORDS).map("".join), min_size=1, max_size=4)
SERVER_IDS = JOINED_WORDS.map(lambda words: "".join(words)[1:])
TOOL_NAMES = st.text(string.ascii_letters + string.digits + "_.-", min_size=1, max_size=128)
PLAIN_NAMES = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=20)
REFS = st.builds(ToolRef, SERVER_IDS, TOOL_NAMES)
NAMESPACES = st.dictionaries(
    SERVER_IDS, st.sampled_from(["", "a", "a.b", "a.b.c", "mcp.fs", "Ünï code", "n" * 70])
)


@pytest.mark.requirement("004-27")
def test_a_door_name_joins_server_and_tool_with_a_dot() -> None:
    assert join_tool_name(ToolRef("fs", "read.file")) == "fs.read.file"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param("fs.read", ToolRef("fs", "read"), id="plain"),
        pytest.param("fs.read.file", ToolRef("fs", "read.file"), id="the first dot parts"),
        pytest.param("fs..read", ToolRef("fs", ".read"), id="a tool may start with a dot"),
        pytest.param("fs", None, id="no dot"),
        pytest.param("fs.", None, id="no tool"),
        pytest.param(".read", None, id="no server"),
        pytest.param("Fs.read", None, id="not a server id"),
        pytest.param("fs.re ad", None, id="not a tool name"),
        pytest.param("fs.read\n", None, id="trailing newline"),
        pytest.param("fs\n.read", None, id="newline in the server"),
        pytest.param("", None, id="nothing"),
    ],
)
def test_parse_door_name(text: str, expected: ToolRef | None) -> None:
    assert parse_joined_name(text) == expected


@given(REFS)
def test_a_door_name_reads_back_as_its_tool(ref: ToolRef) -> None:
    assert parse_joined_name(join_tool_name(ref)) == ref


@pytest.mark.parametrize(
    ("refs", "namespaces", "expected"),
    [
        pytest.param(
            [ToolRef("git-hub", "get_pr")],
            {},
            {"mcp__git-hub__get_pr": ToolRef("git-hub", "get_pr")},
            id="server and tool",
        ),
        pytest.param(
            [ToolRef("fs", "read")],
            {"fs": "files.local"},
            {"files__local__read": ToolRef("fs", "read")},
            id="a namespace of its own",
        ),
        pytest.param(
            [ToolRef("fs", "read")],
            {"fs": ""},
            {"mcp__fs__read": ToolRef("fs", "read")},
            id="an empty namespace does not count",
        ),
        pytest.param(
            [ToolRef("fs", "read.file")],
            {},
            {"mcp__fs__read_file_82b94efb": ToolRef("fs", "read.file")},
            id="foreign characters",
        ),
        pytest.param(
            [ToolRef("fs", "r" * 57)],
            {},
            {"mcp__fs__" + "r" * 46 + "_ed93fb60": ToolRef("fs", "r" * 57)},
            id="too long",
        ),
        pytest.param(
            [ToolRef("a", "c__d"), ToolRef("b", "d")],
            {"a": "x", "b": "x.c"},
            {
                "x__c__d_589ca552": ToolRef("a", "c__d"),
                "x__c__d_dc1e9b3f": ToolRef("b", "d"),
            },
            id="two tools of one name",
        ),
        pytest.param(
            [ToolRef("fs", "read.file"), ToolRef("fs", "read_file_82b94efb")],
            {},
            {
                "mcp__fs__read_file_82b94efbe": ToolRef("fs", "read.file"),
                "mcp__fs__read_file_82b94efb": ToolRef("fs", "read_file_82b94efb"),
            },
            id="an alias that is the name of another tool",
        ),
        pytest.param([], {}, {}, id="no tools"),
    ],
)
def test_chat_names(refs: list[ToolRef], namespaces: dict[str, str], expected: dict[str, ToolRef]) -> None:
    assert make_chat_names(refs, namespaces) == expected


@pytest.mark.requirement("000-07")
@given(st.lists(REFS, max_size=20), NAMESPACES)
def test_chat_names_are_unique_and_fit_the_chat_api(refs: list[ToolRef], namespaces: dict[str, str]) -> None:
    table = make_chat_names(refs, namespaces)

    assert sorted(table.values()) == sorted(set(refs))
    assert all(re.fullmatch(r"[A-Za-z0-9_-]{1,64}", name) for name in table)


@pytest.mark.requirement("000-07")
@given(st.lists(REFS, max_size=20), NAMESPACES, st.randoms(use_true_random=False))
def test_chat_names_do_not_depend_on_order_or_repetition(
    refs: list[ToolRef], namespaces: dict[str, str], random: Random
) -> None:
    shuffled = refs * 2
    random.shuffle(shuffled)

    assert list(make_chat_names(shuffled, namespaces).items()) == list(
        make_chat_names(refs, namespaces).items()
    )


@given(st.lists(REFS, max_size=20), st.builds(ToolRef, SERVER_IDS, PLAIN_NAMES))
def test_without_namespaces_a_plain_name_does_not_depend_on_the_other_tools(
    refs: list[ToolRef], ref: ToolRef
) -> None:
    assert make_chat_names([*refs, ref], {})[f"mcp__{ref.server_id}__{ref.name}"] == ref


@pytest.mark.parametrize(
    ("ref", "namespace", "expected"),
    [
        pytest.param(ToolRef("fs", "read"), "", "mcp__fs__read", id="as by default"),
        pytest.param(ToolRef("git-hub", "get"), "", "mcp__git_hub__get_d9f26a53", id="a hyphen"),
        pytest.param(ToolRef("git_hub", "get"), "", "mcp__git_hub__get", id="an underscore"),
        pytest.param(ToolRef("fs", "read"), "3d.files", "_3d__files__read_96379919", id="a digit first"),
    ],
)
def test_names_for_parsers_of_identifiers(ref: ToolRef, namespace: str, expected: str) -> None:
    assert make_chat_names([ref], {ref.server_id: namespace}, profile="identifier") == {expected: ref}


@given(st.lists(REFS, max_size=12), NAMESPACES)
def test_names_for_parsers_of_identifiers_are_unique_identifiers(
    refs: list[ToolRef], namespaces: dict[str, str]
) -> None:
    table = make_chat_names(refs, namespaces, profile="identifier")

    assert set(table.values()) == set(refs)
    assert all(re.fullmatch("[A-Za-z_][A-Za-z0-9_]{0,63}", name) for name in table)


@given(st.lists(REFS, max_size=12), REFS)
def test_no_other_tool_renames_an_identifier(refs: list[ToolRef], ref: ToolRef) -> None:
    alone = make_chat_names([ref], {}, profile="identifier")

    assert alone.items() <= make_chat_names([*refs, ref], {}, profile="identifier").items()
