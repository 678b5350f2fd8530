"""Tools whose names are not tool names: listed and called under an alias, governed by either name."""

import pytest

from tests.surfaces.mcp.mcp_world import open_mcp_world, task
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition, record
from toolgate.catalog.naming import make_alias

pytestmark = pytest.mark.anyio

NATIVE = ("list files", "repos/list", "搜索文件", "delete file")
ALIASES = {native: f"odd.{make_alias(native)}" for native in NATIVE}


def world() -> MemoryNet:
    return MemoryNet(odd=MemoryServer(tools=[definition(name) for name in (*NATIVE, "plain")]))


async def test_a_tool_with_any_name_is_listed_and_called_under_its_alias() -> None:
    async with open_mcp_world(world(), record("odd", allowed_tools=("*",))) as opened:
        session = await opened.session("/api/mcp")
        listed = await session.tools()
        own_path = await (await opened.session("/api/mcp/s/odd")).tools()
        for alias in ALIASES.values():
            await session.call(alias)
            await opened.modern("/api/mcp", "tools/call", {"name": alias, "arguments": {}})
        found = await opened.modern(
            "/api/mcp/find", "tools/call", {"name": "search_tools", "arguments": {"query": "搜索文件"}}
        )
        by_native = await session.call("odd.list files")

        assert listed == sorted([*ALIASES.values(), "odd.plain"])
        assert own_path == sorted(name.removeprefix("odd.") for name in listed)
        assert [one.params["name"] for one in opened.net["odd"].calls] == [
            native for native in NATIVE for _ in range(2)
        ]
        assert found.json["result"]["structuredContent"]["tools"][0]["name"] == ALIASES["搜索文件"]
        assert by_native.code == -32602


@pytest.mark.parametrize(
    ("allowed", "denied", "left"),
    [
        pytest.param(("*",), ["delete*"], ("list files", "repos/list", "搜索文件"), id="deny a beginning"),
        pytest.param(("*",), ["*file"], ("list files", "repos/list", "搜索文件"), id="deny a native end"),
        pytest.param(("*",), ["odd/搜*"], ("list files", "repos/list", "delete file"), id="another script"),
        pytest.param(("list?files",), [], ("list files",), id="allow by the native name"),
        pytest.param(("搜索文件",), [], ("搜索文件",), id="allow exactly"),
        pytest.param((make_alias("repos/list"),), [], ("repos/list",), id="allow by the alias"),
        pytest.param(("prompt:*",), [], (), id="another kind"),
    ],
)
async def test_patterns_speak_of_native_names_and_of_aliases(
    allowed: tuple[str, ...], denied: list[str], left: tuple[str, ...]
) -> None:
    ops = task("ops", default_server_ids=["odd"], tool_denylist=denied)
    async with open_mcp_world(world(), record("odd", allowed_tools=allowed), tasks=(ops,)) as opened:
        listed = await (await opened.session("/api/mcp/t/ops")).tools()

        assert [name for name in listed if name != "odd.plain"] == sorted(ALIASES[one] for one in left)


async def test_a_selection_in_the_url_may_name_either() -> None:
    async with open_mcp_world(world(), record("odd", allowed_tools=("*",))) as opened:
        natively = await (await opened.session("/api/mcp?tools=odd.%E6%90%9C*")).tools()
        by_alias = await (await opened.session(f"/api/mcp?tools={ALIASES['list files']}")).tools()

        assert (natively, by_alias) == ([ALIASES["搜索文件"]], [ALIASES["list files"]])
