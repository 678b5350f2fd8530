"""A guest narrows a descriptor of `mcp_open`: tools, calls, time and output only ever become fewer."""

import asyncio
import json
from typing import Any

import pytest

from tests.surfaces.wasm.guest_world import PlayedGuest, open_guest_world
from tests.surfaces.wasm.test_mcp_calls import net, one, status
from tests.upstream.memory_link import Json, text_result
from toolgate.errors import InvalidParams, PolicyDenied
from toolgate.policy.layers import MAX_WILDCARDS
from toolgate.surfaces.wasm.descriptors import NARROW, NO_POLICY
from toolgate.surfaces.wasm.functions import ALL_FUNCTIONS
from toolgate.upstream.connection.contract import RpcResponse

pytestmark = pytest.mark.anyio

EAGAIN, EACCES, EINVAL, ENOENT, EIO, ETIMEDOUT = -11, -13, -22, -2, -5, -110


def narrow(guest: PlayedGuest, fd: int, policy: Any) -> int:
    data = policy if isinstance(policy, bytes) else json.dumps(policy).encode()
    guest.write(0, data)
    guest.write_u32(8_000, len(data))
    return guest.call("spear_fd_ctl", fd, NARROW, 0, 8_000)


def tools(guest: PlayedGuest, fd: int) -> list[str]:
    return [tool["name"] for tool in guest.received("mcp_list_tools", fd)["tools"]]


@pytest.mark.requirement("002-097")
async def test_a_descriptor_lists_and_calls_only_what_its_guest_has_left_of_it() -> None:
    def story(guest: PlayedGuest) -> None:
        fd, other = guest.call("mcp_open", "one"), guest.call("mcp_open", "one")
        assert narrow(guest, fd, {"allow": ["r*", "write"]}) == 0
        assert tools(guest, fd) == ["read", "write"]
        assert narrow(guest, fd, {"deny": ["write"]}) == 0
        assert narrow(guest, fd, {"allow": ["read"], "deny": ["list"]}) == 0
        assert tools(guest, fd) == ["read"]
        assert guest.hostcall("mcp_call_tool", fd, "write", "{}")[0] == ENOENT
        assert guest.hostcall("mcp_call_tool", fd, "read", "{}")[0] > 0
        assert tools(guest, other) == ["list", "read", "write"]
        assert status(guest, fd)["policy"] == {"allow": ["read"], "deny": ["list", "write"]}

    async def list_all(_: Json) -> RpcResponse:
        return RpcResponse(result=text_result("all"))

    async with open_guest_world(net(list=list_all), one()) as world:
        await world.play(ALL_FUNCTIONS, story)

        assert [(event.tool, event.outcome) for event in world.world.audited] == [
            ("write", "denied"),
            ("read", "ok"),
        ]


@pytest.mark.requirement("002-097")
async def test_a_descriptor_is_never_widened() -> None:
    def story(guest: PlayedGuest) -> None:
        fd = guest.call("mcp_open", "one")
        assert (
            narrow(guest, fd, {"allow": ["r*"], "max_calls": 2, "timeout_ms": 500, "max_output_bytes": 9})
            == 0
        )
        for wider in (["*"], ["r*", "write"], ["r?"], ["@read_only"], ["one/*"]):
            assert narrow(guest, fd, {"allow": wider}) == EACCES
        assert status(guest, fd)["last_error"]["code"] == "mcp_policy_denied"
        assert narrow(guest, fd, {"max_calls": 5, "timeout_ms": 900, "max_output_bytes": 99}) == 0
        assert status(guest, fd)["policy"] == {
            "allow": ["r*"],
            "max_calls": 2,
            "timeout_ms": 500,
            "max_output_bytes": 9,
        }
        assert narrow(guest, fd, {"allow": []}) == 0
        assert tools(guest, fd) == []

    async with open_guest_world(net(), one()) as world:
        await world.play(ALL_FUNCTIONS, story)


@pytest.mark.requirement("002-097")
async def test_a_descriptors_budget_of_calls_time_and_output_ends_with_the_number_of_each() -> None:
    async def hangs(_: Json) -> RpcResponse:
        await asyncio.Event().wait()
        raise AssertionError

    def story(guest: PlayedGuest) -> None:
        calls = guest.call("mcp_open", "one")
        assert narrow(guest, calls, {"max_calls": 1}) == 0
        assert guest.hostcall("mcp_call_tool", calls, "read", "{}")[0] > 0
        assert guest.hostcall("mcp_call_tool", calls, "read", '{"a": 1}')[0] == EAGAIN
        assert status(guest, calls)["last_error"]["code"] == "tool_call_limit"
        time = guest.call("mcp_open", "one")
        assert narrow(guest, time, {"timeout_ms": 100}) == 0
        assert guest.hostcall("mcp_call_tool", time, "hangs", "{}")[0] == ETIMEDOUT
        output = guest.call("mcp_open", "one")
        assert narrow(guest, output, {"max_output_bytes": 10}) == 0
        assert guest.hostcall("mcp_call_tool", output, "read", "{}")[0] == EIO
        assert status(guest, output)["last_error"]["code"] == "mcp_output_too_large"

    async with open_guest_world(net(hangs=hangs), one()) as world:
        await world.play(ALL_FUNCTIONS, story)

        assert len(world.net["one"].calls) == 3


async def test_what_is_no_policy_or_of_another_kind_of_descriptor_is_invalid() -> None:
    wrong: list[Any] = [
        b"",
        b"{",
        b"[]",
        b"{}\0",
        {"allow": "read"},
        {"allow": None},
        {"allow": ["a b\n"]},
        {"max_calls": -1},
        {"max_calls": 2**31},
        {"allowed": []},
        {"allow": ["x"] * 2_000},
    ]

    def story(guest: PlayedGuest) -> None:
        fd, epoll = guest.call("mcp_open", "one"), guest.call("spear_epoll_create")
        assert [narrow(guest, fd, one) for one in wrong] == [EINVAL] * len(wrong)
        assert narrow(guest, epoll, {"allow": []}) == EINVAL
        assert "policy" not in status(guest, fd)

    async with open_guest_world(net(), one()) as world:
        await world.play(ALL_FUNCTIONS, story)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("*only", "fs/@read_only", id="an effect that is spelled like a name"),
        pytest.param("?read_*", "fs/@read_only", id="the same, by another pattern"),
        pytest.param("prompt:f*", "prompt:fs/secret", id="a prompt of the server"),
        pytest.param("read*", "r*", id="a wider pattern"),
        pytest.param("read", "@read_only", id="an effect for a name"),
    ],
)
def test_a_list_that_would_let_more_through_is_refused(before: str, after: str) -> None:
    policy = NO_POLICY.narrow(json.dumps({"allow": [before]}).encode(), server_id="fs")

    with pytest.raises(PolicyDenied):
        policy.narrow(json.dumps({"allow": [after]}).encode(), server_id="fs")


@pytest.mark.parametrize(
    ("before", "after"), [("*", "read"), ("read*", "fs/read_all"), ("fs/@read_only", "fs/@read_only")]
)
def test_a_list_within_the_one_before_it_takes_its_place(before: str, after: str) -> None:
    policy = NO_POLICY.narrow(json.dumps({"allow": [before]}).encode(), server_id="fs")

    assert policy.narrow(json.dumps({"allow": [after]}).encode(), server_id="fs").allow == (after,)


def test_denials_add_up_to_no_more_than_one_list_may_hold() -> None:
    policy = NO_POLICY
    for number in range(MAX_WILDCARDS):
        policy = policy.narrow(json.dumps({"deny": [f"a{number}*"]}).encode(), server_id="fs")

    assert len(policy.deny) == MAX_WILDCARDS
    with pytest.raises(InvalidParams, match="entries with wildcards"):
        policy.narrow(b'{"deny":["b*"]}', server_id="fs")
