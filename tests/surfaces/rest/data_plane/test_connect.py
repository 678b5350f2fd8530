"""How clients are told about the gateway, over REST."""

from typing import Any

import pytest

from tests.surfaces.rest_world import BASE_URL, error_of, open_rest, secret_of
from toolgate.catalog.clients import CLIENT_PROGRAMS, GatewayEndpoint, describe_selection

pytestmark = pytest.mark.anyio

CONNECT = "/api/v1/mcp/connect"


def by_id(response: Any) -> dict[str, Any]:
    return {one["id"]: one for one in response["clients"]}


async def test_every_client_is_shown_of_the_selected_tools() -> None:
    url = f"{BASE_URL}/api/mcp/t/review?servers=git&tools=git.log,git.*"
    async with open_rest() as world:
        response = await world.get(f"{CONNECT}?task=review&servers=git&tools=git.log,git.*")

        assert (response["url"], response["warnings"]) == (url, [])
        assert response["note"] == describe_selection({"tools": "git.log,git.*"})
        assert [one["id"] for one in response["clients"]] == list(CLIENT_PROGRAMS)
        assert by_id(response)["claude-code"] == {
            "id": "claude-code",
            "title": "Claude Code",
            "file": "~/.claude.json",
            "document": {"mcpServers": {"review": {"type": "http", "url": url}}},
            "command": f"claude mcp add --transport http review '{url}'",
            "after": "start `claude` again and look with `/mcp`",
        }
        assert by_id(response)["generic"]["file"] is None
        assert by_id(response)["windsurf"]["command"] is None


async def test_files_are_named_for_the_platform_of_the_one_who_asks() -> None:
    async with open_rest() as world:
        response = await world.get(f"{CONNECT}?platform=darwin")
        refused = await world.request("GET", f"{CONNECT}?platform=vms")

        assert by_id(response)["vscode"]["file"] == "~/Library/Application Support/Code/User/mcp.json"
        assert error_of(refused) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("query", "key", "door_url", "needs_key"),
    [
        ("", None, None, False),
        ("", "agent", None, True),
        ("", None, "https://tools.example.com", True),
        ("?needs_key=false", "agent", None, False),
        ("?needs_key=true", None, None, True),
    ],
)
async def test_sec_3_a_key_is_named_where_one_is_needed_and_never_shown(
    query: str, key: str | None, door_url: str | None, *, needs_key: bool
) -> None:
    async with open_rest(client_url=lambda: door_url) as world:
        response = await world.request("GET", CONNECT + query, key=key and secret_of(key))

        door = GatewayEndpoint(name="toolgate", url=f"{door_url or BASE_URL}/api/mcp", needs_key=needs_key)
        documents = {one["id"]: one["document"] for one in response.json()["clients"]}
        assert documents == {name: program.document(door) for name, program in CLIENT_PROGRAMS.items()}
        assert secret_of("agent") not in response.text


async def test_a_task_that_cannot_be_one_is_refused() -> None:
    async with open_rest() as world:
        assert error_of(await world.request("GET", f"{CONNECT}?task=../x")) == (400, "invalid_request")
