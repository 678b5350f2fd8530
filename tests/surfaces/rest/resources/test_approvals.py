"""Calls that wait for a person, over REST: who sees them, who decides, and what a call by REST comes to."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import pytest

from tests.surfaces.rest_world import NOW_MS, RestWorld, error_of, open_rest, secret_of, stdio
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition
from toolgate.audit.events import ApprovalRecorded
from toolgate.gateway.auth.identity import hash_key
from toolgate.model.approvals import MAX_REASON
from toolgate.redaction.shapes import MASK
from toolgate.registry.approvals import EXPIRES_MS

pytestmark = pytest.mark.anyio

APPROVALS: Final = "/admin/api/approvals"
CALL: Final = "/api/v1/mcp/call"
BOB: Final = "tg_bob_" + "b" * 40
SENT: Final = {"name": "files.delete", "arguments": {"path": "/tmp/x", "api_key": "hunter2-canary"}}


@asynccontextmanager
async def governed() -> AsyncIterator[RestWorld]:
    """A server whose every call waits, and a second publisher."""
    files = MemoryServer(tools=[definition("delete")])
    async with open_rest(MemoryNet(files=files, plain=MemoryServer(tools=[definition("read")]))) as world:
        await world.seed(
            server=[stdio("files", approval_policy={"default": "always"})],
            key=[{"key_id": "bob", "role": "publisher", "sha256": hash_key(BOB)}],
        )
        yield world


async def request(world: RestWorld, role: str = "agent", **arguments: Any) -> str:
    """The id of an approval that a call of this role waits for."""
    sent = {**SENT, "arguments": {**SENT["arguments"], **arguments}}  # type: ignore[dict-item]
    response = await world.request("POST", CALL, sent, key=secret_of(role))
    assert error_of(response) == (403, "mcp_approval_required")
    return str(response.json()["error"]["data"]["approval_id"])


def steps(world: RestWorld) -> list[tuple[str, str, str]]:
    world.control.gateway.audit.flush()
    events = [event for _, event in world.sink.events if isinstance(event, ApprovalRecorded)]
    return [(one.state, one.decided_by, one.reason) for one in events]


async def test_a_call_that_waits_is_shown_without_its_secrets() -> None:
    async with governed() as world:
        approval_id = await request(world)
        shown = await world.get(f"{APPROVALS}/{approval_id}", key=secret_of("viewer"))
        listed = await world.get(APPROVALS, key=secret_of("viewer"))

        assert shown == {
            "approval_id": approval_id,
            "state": "pending",
            "principal": "key:agent",
            "task_id": None,
            "session": None,
            "door": "rest",
            "server_id": "files",
            "tool": "delete",
            "arguments": {"path": "/tmp/x", "api_key": MASK},
            "arguments_digest": shown["arguments_digest"],
            "definition": shown["definition"],
            "why": "approval_policy default: always",
            "created_ms": NOW_MS,
            "expires_ms": NOW_MS + EXPIRES_MS,
            "decided_by": None,
            "decided_ms": None,
            "reason": None,
            "used_ms": None,
        }
        assert listed == {"approvals": [shown], "next_cursor": None}


async def test_what_a_publisher_approves_passes_once() -> None:
    async with governed() as world:
        approval_id = await request(world)
        approved = await world.post(f"{APPROVALS}/{approval_id}/approve", key=BOB)
        passes = await world.post(CALL, SENT, key=secret_of("agent"))
        used = await world.get(f"{APPROVALS}/{approval_id}", key=BOB)
        again = await request(world)

        assert (approved["state"], approved["decided_by"], approved["decided_ms"]) == (
            "approved",
            "key:bob",
            NOW_MS,
        )
        assert not passes["is_error"]
        assert (used["state"], used["used_ms"]) == ("used", NOW_MS)
        assert again != approval_id
        assert steps(world) == [
            ("asked", "", ""),
            ("approved", "key:bob", ""),
            ("used", "", ""),
            ("asked", "", ""),
        ]


async def test_a_denial_reaches_the_caller_with_its_reason() -> None:
    async with governed() as world:
        approval_id = await request(world)
        denied = await world.post(f"{APPROVALS}/{approval_id}/deny", {"reason": "not on fridays"}, key=BOB)
        received = await world.request("POST", CALL, SENT, key=secret_of("agent"))

        assert (denied["state"], denied["reason"]) == ("denied", "not on fridays")
        assert error_of(received) == (403, "mcp_approval_denied")
        assert "not on fridays" in received.json()["error"]["message"]
        assert steps(world)[1] == ("denied", "key:bob", "not on fridays")


async def test_no_one_approves_a_call_of_its_own_but_may_take_it_back() -> None:
    async with governed() as world:
        approval_id = await request(world, "publisher")
        mine = secret_of("publisher")
        own = await world.request("POST", f"{APPROVALS}/{approval_id}/approve", {}, key=mine)
        await world.post(f"{APPROVALS}/{approval_id}/deny", {"reason": "a mistake"}, key=mine)

        assert error_of(own) == (403, "forbidden")


async def test_the_local_administrator_decides_on_its_own_calls() -> None:
    """A caller that is on a machine that trusts it could change the policy as well."""
    async with governed() as world:
        response = await world.request("POST", CALL, SENT)
        approval_id = response.json()["error"]["data"]["approval_id"]
        approved = await world.post(f"{APPROVALS}/{approval_id}/approve", {"reason": "mine"})

        assert (approved["principal"], approved["decided_by"]) == ("local", "local")


async def test_a_decision_is_final_and_reasons_are_bounded() -> None:
    async with governed() as world:
        approval_id = await request(world)
        one = f"{APPROVALS}/{approval_id}"
        long = await world.request("POST", f"{one}/deny", {"reason": "x" * (MAX_REASON + 1)}, key=BOB)
        none = await world.request("POST", f"{one}/deny", {}, key=BOB)
        await world.post(f"{one}/approve", {"reason": "fine"}, key=BOB)
        again = [
            error_of(await world.request("POST", f"{one}/{what}", {"reason": "x"}, key=BOB))
            for what in ("approve", "deny")
        ]

        assert [error_of(one) for one in (long, none)] == [(400, "invalid_request")] * 2
        assert again == [(409, "conflict")] * 2


async def test_they_are_listed_by_state_in_pages() -> None:
    async with governed() as world:
        ids = [await request(world, n=n) for n in range(3)]
        await world.post(f"{APPROVALS}/{ids[1]}/approve", key=BOB)
        first = await world.get(f"{APPROVALS}?limit=2", key=BOB)
        rest = await world.get(f"{APPROVALS}?limit=2&cursor={first['next_cursor']}", key=BOB)
        pending = await world.get(f"{APPROVALS}?state=pending", key=BOB)
        wrong = await world.request("GET", f"{APPROVALS}?state=lost", key=BOB)

        assert [one["approval_id"] for one in first["approvals"]] == [ids[2], ids[1]]
        assert ([one["approval_id"] for one in rest["approvals"]], rest["next_cursor"]) == ([ids[0]], None)
        assert [one["approval_id"] for one in pending["approvals"]] == [ids[2], ids[0]]
        assert error_of(wrong) == (400, "invalid_request")


async def test_explain_shows_such_a_tool_as_allowed_and_says_that_it_waits() -> None:
    async with governed() as world:
        await world.seed(server=[stdio("plain")])
        found = (await world.get("/api/v1/mcp/explain", key=secret_of("agent")))["tools"]

        assert {one["server_id"]: (one["allowed"], one["reason"], one["approval"]) for one in found} == {
            "files": (True, None, "approval_policy default: always"),
            "plain": (True, None, None),
        }


async def test_an_unknown_one_is_not_found() -> None:
    async with governed() as world:
        responses = [
            await world.request("GET", f"{APPROVALS}/nothing", key=BOB),
            await world.request("POST", f"{APPROVALS}/nothing/approve", {}, key=BOB),
            await world.request("POST", f"{APPROVALS}/%2e%2e/deny", {"reason": "x"}, key=BOB),
        ]

        assert [error_of(one) for one in responses] == [(404, "not_found")] * 3


@pytest.mark.parametrize(
    ("per_tool", "status"),
    [
        ({"delete_*": "always", "?et": "never"}, 200),
        ({"delete all": "always"}, 400),
        ({"files/delete": "always"}, 400),
        ({"delete": "sometimes"}, 400),
        ({f"a{n}*": "always" for n in range(129)}, 400),
        ({"": "always"}, 400),
    ],
    ids=["patterns", "a space", "a server", "no such word", "too many patterns", "no name"],
)
async def test_a_policy_names_tools_and_patterns(per_tool: dict[str, str], status: int) -> None:
    async with governed() as world:
        body = stdio("files", approval_policy={"per_tool": per_tool})
        response = await world.request("PUT", "/admin/api/mcp/servers/files", body, key=secret_of("admin"))

        assert response.status_code == status
