"""All that the reference servers can do, through the gateway, for clients of both eras.

The oracle is the server itself: a client that is connected to it directly walks the same way. The server that
has one of everything is of the handshake era, and the one for git of today's: with clients of both, these are
the four ways in which eras can meet.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from mcp import Client, MCPError, StdioServerParameters
from mcp.client import Transport
from mcp.client.sse import sse_client
from mcp.types import ListRootsResult

from tests.eventually import eventually_equal
from tests.scenarios import reference
from tests.scenarios.gateway import ROOT, Gateway, Json, Site, run, running
from tests.scenarios.stage_sse import LEGACY_PYTHON, check_legacy_python
from tests.scenarios.tour import FEATURES, Visitor, by_name, plain, tour

pytestmark = [
    pytest.mark.xdist_group("scenario-reference"),
    pytest.mark.filterwarnings(
        "ignore::mcp.MCPDeprecationWarning"
    ),  # the handshake era is what is tried here
]

MODES = {"legacy": "legacy", "modern": "2026-07-28"}
CALLS: dict[str, list[tuple[str, Json]]] = {
    "filesystem": [("read_text_file", {"path": "read.me"}), ("read_text_file", {"path": "/etc/passwd"})],
    "git": [("git_branch", {"repo_path": ".", "branch_type": "local"}), ("git_log", {"repo_path": "/"})],
    "memory": [("search_nodes", {"query": "Ada"}), ("search_nodes", {"query": 5})],
}
"""What other servers are asked: something they do, and something they refuse."""


def visit(server: str | StdioServerParameters | Transport, mode: str) -> Json:
    """The tour of the official client."""

    async def walk() -> Json:
        visitor = Visitor()
        async with Client(
            server,
            mode=mode,
            elicitation_callback=visitor.elicit,
            sampling_callback=visitor.sample,
            logging_callback=visitor.log,
            log_level="debug",
            message_handler=visitor.hear,
        ) as client:
            return await tour(client, visitor, by_listening=mode != "legacy")

    return asyncio.run(walk())


def visit_with_older_sdk(url: str) -> Json:
    """The tour of the client before it, in its own environment."""
    ran = run([str(LEGACY_PYTHON), "-m", "tests.scenarios.old_sdk_client", url], {"PYTHONPATH": str(ROOT)})
    assert ran.code == 0, ran.err
    seen: Json = ran.json
    return seen


VISITS: dict[str, Callable[[str], Json]] = {
    "legacy": lambda url: visit(url, MODES["legacy"]),
    "modern": lambda url: visit(url, MODES["modern"]),
    "older": visit_with_older_sdk,
    "sse": lambda url: visit(sse_client(url), MODES["legacy"]),
}
"""Each has a server of its own: it is told to begin something, and told again it would end it."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    check_legacy_python()
    site = Site(tmp_path_factory.mktemp("reference"))
    own = {**reference.everything(site, "own"), "sharing": "per_session"}
    filesystem = reference.filesystem(site)
    reader = {**filesystem, "server_id": "reader", "allowed_tools": ["@read_only"]}
    others = [own, filesystem, reader, reference.git(site), reference.memory(site)]
    site.place(*(reference.everything(site, server_id) for server_id in VISITS), *others)
    eras = {**dict.fromkeys([*VISITS, "own", "filesystem", "reader", "memory"], "legacy"), "git": "modern"}
    with running(site) as gateway:
        eventually_equal(lambda: {name: gateway.health(name)["era"] for name in eras}, eras, 120)
        yield gateway


@pytest.fixture(scope="module")
def direct(gateway: Gateway) -> Json:
    """What is seen without a gateway."""
    return visit(launch_of(gateway, "legacy"), MODES["legacy"])


@pytest.fixture(scope="module")
def visited(gateway: Gateway) -> Callable[[str], Json]:
    """What a client sees through the gateway."""
    return cache(lambda client: VISITS[client](f"{gateway.url}/api/mcp/s/{client}"))


def launch_of(gateway: Gateway, server_id: str) -> StdioServerParameters:
    return StdioServerParameters(**gateway.get(f"/admin/api/mcp/servers/{server_id}")["stdio"])


@pytest.mark.parametrize("feature", FEATURES)
@pytest.mark.parametrize("client", VISITS)
def test_a_client_sees_of_a_server_what_it_sees_without_the_gateway(
    direct: Json, visited: Callable[[str], Json], client: str, feature: str
) -> None:
    assert visited(client)[feature] == direct[feature]


async def roots_notified(gateway: Gateway, mode: str, uri: str) -> str:
    """What a server says of the client's roots that has a connection for each session."""

    async def respond(context: object) -> ListRootsResult:
        return ListRootsResult.model_validate({"roots": [{"uri": uri, "name": "One"}]})

    async with Client(f"{gateway.url}/api/mcp/s/own", mode=mode, list_roots_callback=respond) as client:
        return str(plain(await client.call_tool("get-roots-list"))["content"][0]["text"])


def test_a_server_learns_the_roots_of_the_client_it_serves(gateway: Gateway) -> None:
    async def ask_both() -> tuple[str, str]:
        notified = (roots_notified(gateway, "legacy", uri) for uri in ("file:///here", "file:///away"))
        here, away = await asyncio.gather(*notified)
        return here, away

    here, away = asyncio.run(ask_both())

    assert "1. One\n   URI: file:///here\n" in here
    assert "1. One\n   URI: file:///away\n" in away


def test_a_server_that_asks_for_roots_in_a_call_gets_those_of_a_client_without_a_session(
    gateway: Gateway,
) -> None:
    notified = asyncio.run(roots_notified(gateway, MODES["modern"], "file:///there"))

    assert "1. One\n   URI: file:///there\n" in notified


@pytest.mark.parametrize("server_id", CALLS)
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_a_server_lists_and_answers_to_either_era_as_it_does_itself(
    gateway: Gateway, mode: str, server_id: str
) -> None:
    async def look(server: str | StdioServerParameters, mode: str) -> tuple[Json, list[Json]]:
        async with Client(server, mode=mode) as client:
            results = [plain(await client.call_tool(*call)) for call in CALLS[server_id]]
            return by_name(await client.list_tools(), "tools"), results

    tools, results = asyncio.run(look(f"{gateway.url}/api/mcp/s/{server_id}", mode))

    assert (tools, results) == asyncio.run(look(launch_of(gateway, server_id), "auto"))
    assert tools.keys() >= {name for name, _ in CALLS[server_id]}
    assert [result["isError"] for result in results] == [False, True]


@pytest.mark.requirement("002-021")
def test_a_server_that_allows_what_only_reads_lists_and_answers_that_and_nothing_else(
    gateway: Gateway,
) -> None:
    path = str(Path(launch_of(gateway, "reader").cwd or "") / "written")

    async def refusal(client: Client, tool: str) -> tuple[int, str]:
        with pytest.raises(MCPError) as caught:
            await client.call_tool(tool, {"path": path, "content": "x"})
        return caught.value.error.code, caught.value.error.message.replace(tool, "…")

    async def look() -> None:
        async with Client(launch_of(gateway, "reader"), mode="legacy") as direct:
            every = (await direct.list_tools()).tools
        async with Client(f"{gateway.url}/api/mcp/s/reader", mode=MODES["modern"]) as client:
            listed = {tool.name for tool in (await client.list_tools()).tools}
            read = plain(await client.call_tool("read_text_file", {"path": "read.me"}))

            assert listed == {one.name for one in every if one.annotations and one.annotations.read_only_hint}
            assert {"read_text_file", "list_directory"} <= listed < {one.name for one in every}
            assert read["content"][0]["text"] == "Welcome.\n"
            assert await refusal(client, "write_file") == await refusal(client, "no_such_tool")

    asyncio.run(look())
    shown = gateway.cli("explain", "reader.write_file", "--json").json["tools"]

    assert not Path(path).exists()
    assert [one["rule"] for one in shown] == [
        "allowed_tools (`@read_only`: the definition says `readOnlyHint: false`)"
    ]
