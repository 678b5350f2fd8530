"""A guest that tries to widen its scope, in any order of calls, has what `policy.compose` says."""

import asyncio
import json
from random import Random
from typing import Any

import pytest
from sqlalchemy.util import greenlet_spawn

from tests.scenarios.soak import rounds
from tests.surfaces.wasm.any_order import PRINCIPALS, Oracle, Scopes, Step, net, random_steps, records, tasks
from tests.surfaces.wasm.guest_world import GuestWorld, PlayedGuest, open_guest_world
from toolgate.gateway.scope.caller import Caller
from toolgate.model.tasks import WorkloadLimits
from toolgate.policy.layers import parse_session_params
from toolgate.surfaces.wasm.chat_session import GuestChat
from toolgate.surfaces.wasm.functions import ALL_FUNCTIONS
from toolgate.wasm.abi import HostcallFault

pytestmark = pytest.mark.anyio

LIMITS = WorkloadLimits()


class Played:
    """A played guest that takes the steps."""

    def __init__(self, guest: PlayedGuest) -> None:
        self.guest = guest

    def __call__(self, step: Step, fd: int) -> tuple[int, list[str]]:
        guest, name = self.guest, step.name
        match name:
            case "cchat_create":
                code = guest.call(name)
            case "mcp_open":
                code = guest.call(name, step.text)
            case "mcp_close" | "cchat_close":
                code = guest.call(name, fd)
            case "set_param":
                code = guest.set_param(fd, step.text, step.value)
            case "mcp_call_tool":
                code = min(guest.hostcall(name, fd, step.text, "{}")[0], 0)
            case "offered":
                return self._offered(fd)
            case _:
                args = {"mcp_list_tools": (fd,), "mcp_registry_get": (step.text,)}.get(name, ())
                return self._names(name, *args)
        return code, []

    def _names(self, name: str, *args: Any) -> tuple[int, list[str]]:
        code, data = self.guest.hostcall(name, *args)
        if code < 0:
            return code, []
        received = json.loads(data)
        if name == "mcp_list_tools":
            return 0, [tool["name"] for tool in received["tools"]]
        return 0, [server["server_id"] for server in received.get("servers", [received])]

    def _offered(self, fd: int) -> tuple[int, list[str]]:
        """The tools that a model would be offered in this session."""
        try:
            params = self.guest.fds.get(fd, GuestChat).params
        except HostcallFault as fault:
            return -fault.errno, []
        caller = self.guest.context.caller
        request = parse_session_params(params.mcp)
        view = self.guest.context.gateway.view(Caller(caller.principal, caller.task_id, request))
        return 0, list(view.tools)


async def follow(world: GuestWorld, oracle: Oracle, steps: list[Step]) -> None:
    """Play `steps`; after each, what the guest was told is what the oracle says."""
    world.task_id = oracle.config.task_id
    guest = PlayedGuest(world.context(principal=oracle.principal), ALL_FUNCTIONS, LIMITS)
    play = Played(guest)

    def story() -> None:
        for number, step in enumerate(steps):
            fd = oracle.fd_of(step)
            sent_text = play(step, fd)
            assert sent_text == oracle.expect(step), (oracle.config, oracle.principal, steps[: number + 1])

    await greenlet_spawn(story)
    await asyncio.sleep(0)  # what is audited after an answer


@pytest.mark.soak
async def test_no_order_of_calls_widens_a_scope() -> None:
    """WAS-6, WAS-7: random sequences of every call that names a server, a tool or a parameter."""
    seed = rounds(suite=7, soak=Random().randrange(2**32))
    chance = Random(seed)
    async with open_guest_world(net(), *records(), tasks=tasks()) as world:
        servers, sink = world.net.servers, world.world.sink
        scopes: Scopes = {}
        for _ in range(rounds(suite=3_000, soak=100_000)):
            config = world.world.gateway.snapshot.tasks[chance.choice(tasks()).task_id]
            oracle = Oracle(world.world.gateway.snapshot, chance.choice(PRINCIPALS), config, scopes)
            await follow(world, oracle, random_steps(chance))
            called = [(name, seen.params["name"]) for name, one in servers.items() for seen in one.calls]
            assert sorted(called) == sorted(oracle.called), seed
            assert all(oracle.may_ever(*one) for one in called), seed
            for one in servers.values():
                one.calls.clear()
            sink.events.clear()
