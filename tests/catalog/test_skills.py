"""Skills: what is read of a manifest, and the task that has the same scope."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.catalog.skills import MAX_SKILL_TOOLS, Skill, parse_skill
from toolgate.errors import InvalidRecord
from toolgate.model.names import ToolRef

SEED = {
    "id": "quarterly-report",
    "tools": ["excel-tools.create_workbook", "sga_search.web_search", "pdf.extract_text"],
}


@pytest.mark.requirement("004-05")
def test_the_manifest_of_the_seed_is_read() -> None:
    assert parse_skill(SEED) == Skill(
        skill_id="quarterly-report",
        tools=(
            ToolRef("excel-tools", "create_workbook"),
            ToolRef("sga_search", "web_search"),
            ToolRef("pdf", "extract_text"),
        ),
    )


def test_whatever_else_a_skill_says_is_nobodys_business() -> None:
    found = parse_skill(
        {**SEED, "name": " A\nreport\u202e ", "description": "For\tthe board", "steps": [1], "model": None}
    )

    assert found.name == "A report"
    assert parse_skill({**SEED, "name": 7}).name == ""


def test_tools_stand_once_in_their_order_and_may_be_patterns() -> None:
    found = parse_skill({"id": "a", "tools": ["b.x.y", "a/*", "b/x.y", "a.get_?"]})

    assert found.tools == (ToolRef("b", "x.y"), ToolRef("a", "*"), ToolRef("a", "get_?"))
    assert found.servers == ("a", "b")
    assert found.selection == "b.x.y,a.*,a.get_?"


def test_the_task_of_a_skill_names_its_servers_and_tools_and_nothing_else() -> None:
    body = parse_skill({**SEED, "name": "Report"}).task()

    assert body == {
        "task_id": "quarterly-report",
        "display_name": "Report",
        "config": {
            "mcp.enabled": "true",
            "mcp.default_server_ids": '["excel-tools","pdf","sga_search"]',
            "mcp.allowed_server_ids": '["excel-tools","pdf","sga_search"]',
            "mcp.tool_allowlist": (
                '["excel-tools/create_workbook","pdf/extract_text","sga_search/web_search"]'
            ),
        },
    }


@given(st.permutations(SEED["tools"]))
def test_the_order_of_a_manifest_does_not_change_its_task(tools: list[str]) -> None:
    assert parse_skill({**SEED, "tools": tools}).task() == parse_skill(SEED).task()


@pytest.mark.parametrize(
    ("document", "fields"),
    [
        ([], []),
        ({}, ["id", "tools"]),
        ({"id": "a b", "tools": []}, ["id"]),
        ({"id": 7, "tools": []}, ["id"]),
        ({"id": "a", "tools": "git.log"}, ["tools"]),
        ({"id": "a", "tools": ["a.b"] * (MAX_SKILL_TOOLS + 1)}, ["tools"]),
        (
            {"id": "a", "tools": ["log", "Git.log", "git.", "git.a b", 7, "git.ok"]},
            [f"tools[{n}]" for n in range(5)],
        ),
        ({"id": "a", "tools": ["x"] * 20}, [f"tools[{n}]" for n in range(20)]),
    ],
)
def test_all_problems_of_a_manifest_are_reported_at_once(document: Any, fields: list[str]) -> None:
    with pytest.raises(InvalidRecord) as refused:
        parse_skill(document)

    assert [one["field"] for one in (refused.value.data or {}).get("problems", [])] == fields


anything = st.recursive(
    st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
)


@given(anything, anything)
def test_any_manifest_is_parsed_or_rejected(skill_id: Any, tool: Any) -> None:
    with suppress(InvalidRecord):
        assert parse_skill({"id": skill_id, "tools": [tool]}).skill_id == skill_id
