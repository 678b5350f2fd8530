"""Two callers with the official servers: each switches integrations on and off for itself, and no other."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest

from tests.eventually import eventually, eventually_equal
from tests.scenarios import reference
from tests.scenarios.clients import McpClient, ModernClient
from tests.scenarios.gateway import Gateway, Site, running

pytestmark = pytest.mark.xdist_group("scenario-integrations")

MINE = "/api/v1/me/integrations"
LIST_CHANGED = "notifications/tools/list_changed"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    site = Site(tmp_path_factory.mktemp("integrations"))
    for server in (reference.filesystem(site), reference.everything(site)):
        site.place(server)
    with running(site) as found:
        for server_id in ("filesystem", "everything"):
            eventually(lambda server_id=server_id: found.health(server_id)["tools"])  # type: ignore[misc]
        yield found


@contextmanager
def calling_as(gateway: Gateway, key_id: str, **fields: Any) -> Iterator[httpx2.Client]:
    made = gateway.http.post("/admin/api/keys", json={"key_id": key_id, "role": "agent", **fields})
    headers = {"authorization": f"Bearer {made.raise_for_status().json()['secret']}"}
    with httpx2.Client(base_url=gateway.url, timeout=60, headers=headers) as http:
        yield http


def switch(http: httpx2.Client, server_id: str, state: str) -> dict[str, Any]:
    found: dict[str, Any] = http.put(f"{MINE}/{server_id}", json={"state": state}).raise_for_status().json()
    return found


def switched(http: httpx2.Client, client: ModernClient, server_id: str, state: str) -> dict[str, Any]:
    """What is answered, once an open stream of the same caller was told of the change."""
    with client.changes() as changes:
        next(changes)  # the acknowledgement
        found = switch(http, server_id, state)
        assert next(method for method in changes if method == LIST_CHANGED)
    return found


def held(client: McpClient) -> dict[str, int]:
    """How many tools, prompts, resources and templates the client sees."""
    methods = {
        "tools/list": "tools",
        "prompts/list": "prompts",
        "resources/list": "resources",
        "resources/templates/list": "resourceTemplates",
    }
    return {member: len(client.request(method)["result"][member]) for method, member in methods.items()}


@pytest.mark.requirement("002-020")
def test_a_caller_switches_on_reading_then_all_then_off_and_the_other_caller_notices_nothing(
    gateway: Gateway,
) -> None:
    with calling_as(gateway, "ada", integrations="off") as ada, calling_as(gateway, "bob") as bob:
        her, his = (ModernClient(http, f"{gateway.url}/api/mcp") for http in (ada, bob))
        his_tools, nothing = his.tools(), her.tools()
        path = str(gateway.site.root / "files" / "new.txt")
        denied = her.call("filesystem.write_file", path=path, content="x")
        unknown = her.call("filesystem.no_such_tool", path=path, content="x")

        reading = switched(ada, her, "filesystem", "read_only")
        read = her.text("filesystem.read_text_file", path="read.me")
        still_denied = her.call("filesystem.write_file", path=path, content="x")
        switched(ada, her, "filesystem", "on")
        written = her.call("filesystem.write_file", path=path, content="x")

        switched(ada, her, "everything", "read_only")
        with_everything = held(her)
        switched(ada, her, "everything", "off")
        without = held(her)

        assert nothing == []
        assert [one["error"]["message"] for one in (denied, unknown, still_denied)] == [
            "Unknown tool: filesystem.write_file",
            "Unknown tool: filesystem.no_such_tool",
            "Unknown tool: filesystem.write_file",
        ]
        assert (reading["state"], reading["tools"]) == ("read_only", len(her.tools()))
        assert 0 < reading["read_only_tools"] < reading["tools"]
        assert (read, written["result"].get("isError", False)) == ("Welcome.\n", False)
        assert with_everything["prompts"] > 0
        assert with_everything["resources"] > 0
        assert without == {"tools": reading["tools"], "prompts": 0, "resources": 0, "resourceTemplates": 0}
        assert his.tools() == his_tools
    eventually_equal(lambda: reasons(gateway, "key:ada"), {"integration_off", "integration_read_only"})
    assert reasons(gateway, "key:bob") == set()
    assert [(one["operation"], one["record_id"]) for one in events(gateway, "admin", "key:ada")] == [
        ("read_only", "filesystem"),
        ("on", "filesystem"),
        ("read_only", "everything"),
        ("off", "everything"),
    ]


def events(gateway: Gateway, kind: str, principal: str) -> list[dict[str, Any]]:
    found = map(json.loads, gateway.audit.splitlines())
    return [one for one in found if one["type"] == kind and one.get("principal") == principal]


def reasons(gateway: Gateway, principal: str) -> set[str]:
    """Why the caller's own layer left something out of what it was offered."""
    found = {reason for one in events(gateway, "scope", principal) for reason in one.get("reasons", ())}
    return {reason for reason in found if reason.startswith("integration")}
