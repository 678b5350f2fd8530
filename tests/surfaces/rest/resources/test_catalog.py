"""The catalog over REST: the shapes that skill creators know, names that collide, pages, helpful 404s."""

from typing import Any, Final
from urllib.parse import quote

import pytest

from tests.surfaces.rest_world import RestWorld, error_of, open_rest, stdio
from tests.upstream.memory_link import MemoryNet, definition
from toolgate.gateway.auth.identity import hash_key
from toolgate.govern.control import ControlLimits
from toolgate.govern.visibility import CatalogVisibility
from toolgate.surfaces.rest.framework.request import MAX_PAGE_BYTES

pytestmark = pytest.mark.anyio

SCHEMA: Final = {
    "type": "object",
    "properties": {"filename": {"type": "string", "description": "文件名"}, "sheets": {"type": "array"}},
    "required": ["filename"],
}
CREATE: Final = definition("create_workbook", description="创建新的 Excel 工作簿", inputSchema=SCHEMA)
READ: Final = definition(
    "read_cells",
    title="Read cells",
    description="Read cells of a workbook",
    outputSchema={"type": "object"},
    annotations={"readOnlyHint": True},
)
WEB: Final = definition("web_search", description="Search the web for pages")


def net_of(**servers: tuple[bytes, ...]) -> MemoryNet:
    net = MemoryNet()
    for server_id, tools in servers.items():
        net.servers[server_id.replace("_", "-")].tools = tools
    return net


async def furnish(world: RestWorld) -> None:
    await world.seed(
        server=[
            stdio("excel-tools", display_name="Excel 工具集", category="data", tags=["excel", "office"]),
            stdio("sga-search", display_name="SGA搜索", category="search"),
            stdio("plain"),
        ]
    )
    await world.cataloged()


def furnished() -> MemoryNet:
    return net_of(excel_tools=(CREATE, READ), sga_search=(WEB,), plain=(definition("ping"),))


@pytest.mark.requirement("004-01")
async def test_the_categories_have_the_shape_that_skill_creators_know() -> None:
    async with open_rest(furnished()) as world:
        await furnish(world)

        assert await world.get("/api/catalog") == {
            "categories": [
                {"id": "data", "name": "data", "packageCount": 1, "toolCount": 2},
                {"id": "uncategorized", "name": "uncategorized", "packageCount": 1, "toolCount": 1},
                {"id": "~search", "name": "search", "packageCount": 1, "toolCount": 1},
            ],
            "next_cursor": None,
        }


@pytest.mark.requirement("004-02")
async def test_a_category_shows_its_packages() -> None:
    async with open_rest(furnished()) as world:
        await furnish(world)

        shown = await world.get("/api/catalog/data")
        assert shown["packages"][0].pop("tokens") > 0
        assert shown == {
            "packages": [
                {
                    "id": "excel-tools",
                    "name": "Excel 工具集",
                    "description": "",
                    "toolCount": 2,
                    "tags": ["excel", "office"],
                    "version": None,
                    "source": "discovered",
                }
            ],
            "next_cursor": None,
        }


@pytest.mark.requirement("004-03")
async def test_a_package_shows_its_tools_with_their_whole_schemas() -> None:
    async with open_rest(furnished()) as world:
        await furnish(world)
        create, read = (await world.get("/api/catalog/excel-tools/tools"))["tools"]

        assert {
            name: create[name] for name in ("name", "description", "inputSchema", "category", "tags")
        } == {
            "name": "create_workbook",
            "description": "创建新的 Excel 工作簿",
            "inputSchema": SCHEMA,
            "category": "data",
            "tags": ["excel", "office"],
        }
        assert (create["fullName"], create["source"], create["schemaVersion"], create["readOnly"]) == (
            "excel-tools.create_workbook",
            "discovered",
            "legacy",
            False,
        )
        assert not {"title", "outputSchema", "annotations"} & create.keys()
        assert (read["title"], read["outputSchema"], read["annotations"], read["readOnly"]) == (
            "Read cells",
            {"type": "object"},
            {"readOnlyHint": True},
            True,
        )
        (offered,) = [
            offer.tools["read_cells"] for offer in [world.control.gateway.snapshot.servers["excel-tools"]]
        ]
        assert (read["digest"], read["tokens"]) == (offered.digest, offered.tokens)


async def test_a_schema_is_given_back_as_its_server_wrote_it() -> None:
    """jsonb would sort its members, drop what is twice and round its numbers."""
    written = b'{"type": "object",  "x-order": {"b": 1.50, "a": 1}}'
    tool = b'{"name": "odd", "inputSchema": %b}' % written
    async with open_rest(net_of(odd=(tool,))) as world:
        await world.seed(server=[stdio("odd")])
        await world.cataloged()

        assert written in (await world.request("GET", "/api/catalog/odd/tools")).content
        assert written in (await world.request("GET", "/api/catalog/search?q=odd")).content


async def test_a_search_right_after_a_start_answers_with_what_is_indexed_and_says_so() -> None:
    async with open_rest(furnished(), limits=ControlLimits(search_wait_s=0.01)) as world:
        await furnish(world)
        ready = await world.get("/api/catalog/search?q=excel")
        keeper = world.control.catalog
        keeper.indexed.clear()  # as before all that the table had is indexed
        early = await world.get("/api/catalog/search?q=excel")

    assert (ready["indexed"], early["indexed"]) == (True, False)
    assert early["tools"] == ready["tools"]


@pytest.mark.requirement("004-04")
async def test_search_finds_by_words_of_either_language_and_says_where_the_tool_is() -> None:
    async with open_rest(furnished()) as world:
        await furnish(world)
        found = await world.get("/api/catalog/search?q=excel")
        (tool,) = (await world.get(f"/api/catalog/search?q={quote('工作簿')}&limit=1"))["tools"]

        assert found["total"] == len(found["tools"]) == 2
        assert {name: tool[name] for name in ("name", "serverId", "serverName", "category")} == {
            "name": "create_workbook",
            "serverId": "excel-tools",
            "serverName": "Excel 工具集",
            "category": "data",
        }
        assert tool["inputSchema"] == SCHEMA
        assert (await world.get("/api/catalog/search?q=zzzz"))["tools"] == []


@pytest.mark.requirement("004-04")
@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param(
            "",
            ["excel-tools.create_workbook", "excel-tools.read_cells", "plain.ping", "sga-search.web_search"],
            id="nothing said: all, by name",
        ),
        pytest.param(
            "?category=data", ["excel-tools.create_workbook", "excel-tools.read_cells"], id="a category"
        ),
        pytest.param("?category=search", ["sga-search.web_search"], id="the category search"),
        pytest.param("?category=uncategorized", ["plain.ping"], id="no category"),
        pytest.param("?tag=office&readOnly=true", ["excel-tools.read_cells"], id="a tag, read-only"),
        pytest.param("?readOnly=false&server=plain", ["plain.ping"], id="a server"),
        pytest.param("?q=read+workbook&readOnly=true", ["excel-tools.read_cells"], id="words, read-only"),
        pytest.param("?q=%20&server=no-such", [], id="a server that is not there"),
    ],
)
async def test_search_is_narrowed_by_what_is_asked_for(query: str, expected: list[str]) -> None:
    async with open_rest(furnished()) as world:
        await furnish(world)

        found = await world.get(f"/api/catalog/search{query}")
        assert ([tool["fullName"] for tool in found["tools"]], found["total"]) == (expected, len(expected))


@pytest.mark.parametrize("path", ["", "/data", "/big/tools", "/search", "/search?q=tool"])
async def test_pages_together_are_the_whole(path: str) -> None:
    tools = tuple(definition(f"tool_{n}") for n in range(5))
    async with open_rest(net_of(big=tools, small=tools[:1], other=tools[:1])) as world:
        await world.seed(
            server=[
                stdio("big", category="data"),
                stdio("small", category="data"),
                stdio("other", category="数据"),
            ]
        )
        await world.cataloged()
        url = f"/api/catalog{path}" + ("&" if "?" in path else "?")
        whole = await world.get(f"{url}limit=100")
        (member,) = {"categories", "packages", "tools"} & whole.keys()
        pages: list[Any] = []
        cursor: str | None = ""
        while cursor is not None:
            page = await world.get(f"{url}limit=1" + (f"&cursor={cursor}" if cursor else ""))
            assert len(page[member]) == 1
            assert page.get("total") == whole.get("total")
            pages += page[member]
            cursor = page["next_cursor"]

        assert pages == whole[member]
        assert len(pages) > 1


async def test_a_page_does_not_grow_beyond_what_one_answer_may_be() -> None:
    schema = {"type": "object", "description": "d" * 200_000}
    tools = tuple(definition(f"tool_{n}", inputSchema=schema) for n in range(25))
    async with open_rest(net_of(big=tools)) as world:
        await world.seed(server=[stdio("big")])
        await world.cataloged()
        page = await world.get("/api/catalog/big/tools")

        assert len(page["tools"]) == MAX_PAGE_BYTES // 200_000
        assert page["next_cursor"] is not None


# Names that could be misread


async def test_a_category_and_a_package_of_the_same_name_do_not_collide() -> None:
    async with open_rest(net_of(data=(WEB,), excel=(CREATE,))) as world:
        await world.seed(server=[stdio("data", category="web"), stdio("excel", category="data")])
        await world.cataloged()

        assert [one["id"] for one in (await world.get("/api/catalog/data"))["packages"]] == ["excel"]
        assert [one["name"] for one in (await world.get("/api/catalog/data/tools"))["tools"]] == [
            "web_search"
        ]


@pytest.mark.parametrize(
    "name", ["search", "~search", "a/b", "a~1b", "数据 分析", ".", "..", "tools", "50%", "a?b#c"]
)
async def test_every_category_is_reached_by_its_id(name: str) -> None:
    async with open_rest(net_of(one=(WEB,), two=(CREATE,))) as world:
        await world.seed(server=[stdio("one", category=name), stdio("two", category="other")])
        await world.cataloged()
        (shown,) = [one for one in (await world.get("/api/catalog"))["categories"] if one["name"] == name]

        response = await world.get(f"/api/catalog/{quote(shown['id'], safe='')}")
        assert [one["id"] for one in response["packages"]] == ["one"]
        found = await world.get(f"/api/catalog/search?category={quote(name, safe='')}")
        assert [tool["serverId"] for tool in found["tools"]] == ["one"]


async def test_a_package_called_search_is_reached_like_any_other() -> None:
    async with open_rest(net_of(search=(WEB,))) as world:
        await world.seed(server=[stdio("search")])
        await world.cataloged()

        assert len((await world.get("/api/catalog/search/tools"))["tools"]) == 1


async def test_who_writes_uncategorized_means_no_category() -> None:
    async with open_rest(net_of(one=(WEB,), two=(CREATE,))) as world:
        await world.seed(server=[stdio("one", category="uncategorized"), stdio("two")])
        await world.cataloged()

        (category,) = (await world.get("/api/catalog"))["categories"]
        assert category == {"id": "uncategorized", "name": "uncategorized", "packageCount": 2, "toolCount": 2}


# What is not there


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/dta", "did you mean `data`?"),
        ("/excel-tools", "`excel-tools` is a package: get `/api/catalog/excel-tools/tools`"),
        ("/excel-tool/tools", "did you mean `excel-tools`?"),
        ("/data/tools", "`data` is a category: get `/api/catalog/data`"),
        ("/%E4%B8%AD%E6%96%87", "list the categories that you can see"),
        ("/No%20such/tools", "list the packages that you can see"),
    ],
)
async def test_a_404_says_what_to_do_next(path: str, hint: str) -> None:
    async with open_rest(furnished()) as world:
        await furnish(world)
        response = await world.request("GET", f"/api/catalog{path}")

        assert error_of(response) == (404, "not_found")
        assert response.json()["error"]["hint"] == hint


async def test_an_empty_catalog_is_empty() -> None:
    async with open_rest() as world:
        assert (await world.get("/api/catalog"))["categories"] == []
        assert (await world.get("/api/catalog/search?q=x"))["total"] == 0
        response = await world.request("GET", "/api/catalog/x/tools")
        assert response.json()["error"]["hint"] == "the catalog has nothing that you can see"


@pytest.mark.parametrize(
    "query",
    [
        "q=" + "x" * 1025,
        "readOnly=yes",
        "limit=0",
        "limit=1001",
        "cursor=nonsense",
        "q=a&q=b",
        "Q=a",
        "q=%00",
    ],
)
async def test_what_cannot_be_meant_is_refused(query: str) -> None:
    async with open_rest() as world:
        response = await world.request("GET", f"/api/catalog/search?{query}")
        assert error_of(response) == (400, "invalid_request")


async def test_a_package_of_which_nothing_is_known_is_there_without_a_tool() -> None:
    async def fails(_members: Any) -> Any:
        raise OSError("not today")

    net = net_of(old=())
    net.servers["old"].on_list = fails
    async with open_rest(net) as world:
        await world.seed(server=[stdio("old", category="data", display_name="Old package")])
        await world.cataloged()

        (category,) = (await world.get("/api/catalog"))["categories"]
        (package,) = (await world.get("/api/catalog/data"))["packages"]
        (tool,) = (await world.get("/api/catalog/old/tools"))["tools"]
        assert (category["packageCount"], category["toolCount"], package["toolCount"]) == (1, 0, 0)
        assert (tool["name"], tool["fullName"], tool["source"]) == ("*", "old.*", "legacy")
        assert [one["fullName"] for one in (await world.get("/api/catalog/search?q=old"))["tools"]] == [
            "old.*"
        ]


async def test_more_reaches_than_are_remembered_are_answered_all_the_same() -> None:
    visibility = CatalogVisibility(max_kept=1)
    async with open_rest(furnished(), trusts_local=False, visibility=visibility) as world:
        await furnish(world)
        secrets = {one: f"tg_{one}_{'x' * 40}" for one in ("plain", "excel-tools")}
        await world.seed(
            key=[
                {"key_id": one, "sha256": hash_key(secret), "role": "agent", "ceiling": {"servers": [one]}}
                for one, secret in secrets.items()
            ]
        )
        for one, secret in [*secrets.items()] * 2:
            found = await world.get("/api/catalog/search", key=secret)
            assert {tool["serverId"] for tool in found["tools"]} == {one}
