"""`toolgate catalog`: what it asks for and what it prints."""

import json
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.fake_gateway import FakeGateway

SCHEMA = {"type": "object", "properties": {"filename": {}, "sheets": {}}, "required": ["filename"]}
CATEGORIES = [
    {"id": "data", "name": "data", "packageCount": 1, "toolCount": 12},
    {"id": "~search", "name": "search", "packageCount": 3, "toolCount": 0},
]


def tool(name: str, **members: Any) -> dict[str, Any]:
    return {
        "name": name,
        "fullName": f"excel-tools.{name}",
        "description": "创建新的 Excel 工作簿",
        "inputSchema": SCHEMA,
        "category": "data",
        "tags": [],
        "readOnly": False,
        "source": "manifest",
        "schemaVersion": "v2",
        "digest": "d",
        "tokens": 1_234,
        **members,
    }


def page(**members: Any) -> dict[str, Any]:
    return {"next_cursor": None, **members}


def test_without_a_command_the_categories_are_listed_page_by_page(gateway: FakeGateway, run: Run) -> None:
    gateway.respond("GET /api/catalog", {"categories": CATEGORIES[:1], "next_cursor": "c"})
    gateway.respond("GET /api/catalog?cursor=c", page(categories=CATEGORIES[1:]))

    assert run("catalog").lines == [
        "CATEGORY  PACKAGES  TOOLS",
        "data             1     12",
        "search           3      0",
        "",
        "`toolgate catalog get CATEGORY` lists its packages",
    ]
    assert [json.loads(line) for line in run("catalog", "list", "--json").lines] == CATEGORIES


def test_an_empty_catalog_says_so(gateway: FakeGateway, run: Run) -> None:
    gateway.respond("GET /api/catalog", page(categories=[]))

    assert run("catalog").lines == ["the catalog contains nothing that this key can reach"]


def test_a_category_is_shown_by_its_name_whatever_its_id(gateway: FakeGateway, run: Run) -> None:
    package = {
        "id": "excel-tools",
        "name": "Excel 工具集",
        "description": "Spreadsheets",
        "toolCount": 2,
        "tags": ["excel", "office"],
        "version": "1.2.0",
        "source": "manifest",
    }
    unknown = {
        **package,
        "id": "old",
        "name": "old",
        "description": "",
        "toolCount": 0,
        "tags": [],
        "version": None,
    }
    gateway.respond("GET /api/catalog", page(categories=CATEGORIES))
    gateway.respond("GET /api/catalog/~search", page(packages=[package, unknown]))

    assert run("catalog", "get", "search").lines == [
        "search: 2 packages",
        "",
        "PACKAGE      VERSION  TOOLS  DESCRIPTION",
        "excel-tools  1.2.0        2  Excel 工具集: Spreadsheets  excel, office",
        "old                       ?",
        "",
        "`toolgate catalog get PACKAGE` lists its tools",
    ]


def test_a_package_is_shown_with_what_its_tools_take(gateway: FakeGateway, run: Run) -> None:
    gateway.respond("GET /api/catalog", page(categories=CATEGORIES))
    tools = [tool("create_workbook"), tool("*", description="", inputSchema={}, tokens=0, readOnly=True)]
    gateway.respond("GET /api/catalog/excel-tools/tools", page(tools=tools))

    assert run("catalog", "get", "excel-tools").lines == [
        "excel-tools: 1 tool",
        "",
        "excel-tools.create_workbook  1,234 tokens",
        "  创建新的 Excel 工作簿",
        "  arguments: filename, sheets?",
        "",
        "excel-tools.*  read-only",
        "  the server has not listed its tools so far",
    ]


def test_a_package_that_is_called_like_a_category_can_be_asked_for(gateway: FakeGateway, run: Run) -> None:
    gateway.respond("GET /api/catalog", page(categories=CATEGORIES))
    gateway.respond("GET /api/catalog/data/tools", page(tools=[tool("a")]))

    assert run("catalog", "get", "data", "--package").lines[0] == "data: 1 tool"


def test_search_hands_on_words_and_filters(gateway: FakeGateway, run: Run) -> None:
    found = tool("create_workbook", serverId="excel-tools", serverName="Excel")
    gateway.respond("GET /api/catalog/search", page(tools=[found], total=1_200))
    filters = ("--category", "data", "--tag", "x", "--server", "s", "--read-only", "--limit", "3")
    ran = run("catalog", "search", "new", "工作簿", *filters)

    assert gateway.last.query == {
        "q": "new 工作簿",
        "category": "data",
        "tag": "x",
        "server": "s",
        "readOnly": "true",
        "limit": "3",
    }
    assert ran.lines[-1] == "1 of 1,200 found"
    assert [json.loads(line) for line in run("catalog", "search", "a", "--json").lines] == [found]


@pytest.mark.parametrize("tools", [[], [tool("read")]], ids=["nothing", "some"])
def test_a_search_while_tools_are_indexed_says_so(
    gateway: FakeGateway, run: Run, tools: list[dict[str, Any]]
) -> None:
    gateway.respond("GET /api/catalog/search", page(tools=tools, total=len(tools), indexed=False))

    assert "still indexes tools: search again" in " ".join(run("catalog", "search", "a").out.split())


def test_a_search_that_finds_nothing_says_what_to_try(gateway: FakeGateway, run: Run) -> None:
    gateway.respond("GET /api/catalog/search", page(tools=[], total=0))

    assert "try other words" in run("catalog", "search", "zzz").lines[0]


def test_what_servers_write_moves_nothing_on_the_terminal(gateway: FakeGateway, run: Run) -> None:
    evil = "\x1b[2J[bold]\u202egnirts\nTOKENS"
    schema = {"properties": {evil: {}}, "required": "no list"}
    gateway.respond(
        "GET /api/catalog/search", page(tools=[tool("a", description=evil, inputSchema=schema)], total=1)
    )
    ran = run("catalog", "search", "a")

    assert "\x1b" not in ran.out
    assert "\u202e" not in ran.out
    assert r"  \x1b[2J[bold]\u202egnirts TOKENS" in ran.lines


def test_every_screen_fits_80_columns(gateway: FakeGateway, run: Run) -> None:
    long = tool("a", description="word " * 60, fullName="p." + "n" * 60)
    gateway.respond("GET /api/catalog/search", page(tools=[long], total=1))

    assert max(map(len, run("catalog", "search", "a").lines)) <= 80


def test_backfill_goes_on_until_all_is_done(gateway: FakeGateway, run: Run) -> None:
    batch = {"done": 20, "total": 30, "changed": 5, "failed": {}, "next_cursor": "c"}
    last = {"done": 30, "total": 30, "changed": 2, "failed": {}, "next_cursor": None}
    gateway.respond("POST /admin/api/catalog/backfill", batch)
    gateway.respond("POST /admin/api/catalog/backfill?cursor=c", last)

    assert run("catalog", "backfill").lines == ["30 packages checked, 7 updated"]
    assert json.loads(run("catalog", "backfill", "--json").out) == {
        "done": 30,
        "total": 30,
        "changed": 7,
        "failed": {},
    }


def test_backfill_ends_with_1_when_something_could_not_be_made(gateway: FakeGateway, run: Run) -> None:
    response = {"done": 2, "total": 2, "changed": 1, "failed": {"old": "no archive"}, "next_cursor": None}
    gateway.respond("POST /admin/api/catalog/backfill", response)
    ran = run("catalog", "backfill")

    assert ran.code == 1
    assert "old  no archive" in ran.lines


ROWS = {"rows": 9, "manifest": 3, "discovered": 4, "summary": 2, "legacy": 0}
OLD = {"rows": 2, "manifest": 0, "discovered": 0, "summary": 2, "legacy": 0, "with_schema": 0}


@pytest.mark.parametrize(
    ("members", "shown_lines"),
    [
        (
            {"summary_fallback": None, "fallback_ended": False},
            "the summary fallback stays; without it 1 package would lose rows",
        ),
        (
            {"summary_fallback": 80.0, "fallback_ended": False},
            "the summary fallback ends at 80 %: 1 package would lose rows",
        ),
        (
            {"summary_fallback": 75.5, "fallback_ended": True},
            "the summary fallback is off from 75.5 %: rows of 1 package are hidden",
        ),
    ],
)
def test_the_quality_says_what_becomes_of_the_fallback(
    gateway: FakeGateway, run: Run, members: dict[str, Any], shown_lines: str
) -> None:
    hidden, hidden_rows = (2, "2 hidden") if members["fallback_ended"] else (0, "")
    package = {"id": "old", "name": "Old", "hidden": hidden, **OLD, "with_description": 1}
    total = {**ROWS, "with_schema": 7, "with_description": 8}
    response = {"total": total, "full_percent": 77.7, "dependent": 1, "packages": [package], **members}
    gateway.respond("GET /api/v1/catalog/quality", page(**response))

    assert run("catalog", "quality").lines == [
        "77.7 % of 9 rows have full definitions, 7 a schema, 8 a description",
        "",
        shown_lines,
        "",
        "PACKAGE  MANIFEST  DISCOVERED  SUMMARY  LEGACY  SCHEMAS  DESCRIBED",
        f"old             0           0        2       0        0          1  {hidden_rows}".rstrip(),
        "all             3           4        2       0        7          8",
    ]
