"""A gateway that follows control: who is notified of a change, what is reconnected, and when it refuses."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from typing import Any

import pytest

from tests.memory_audit import MemorySink
from tests.registry.control_play import MemoryControl
from tests.registry.memory_store import MemoryStore
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition, pool_of
from tests.upstream.virtual_time import VIRTUAL, pass_time
from toolgate.app.node import StalenessGuard
from toolgate.audit.log.writer import AuditLog
from toolgate.errors import NotReady, PolicyStale, ToolgateError, Unauthenticated
from toolgate.gateway.auth.identity import LOCAL_ADMIN, Identities, hash_key
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller
from toolgate.gateway.subscriptions import ListenerUpdate
from toolgate.model.revisions import RecordWrite
from toolgate.model.tools import Snapshot
from toolgate.policy.layers import SessionRequest
from toolgate.policy.scope import ScopeLimits
from toolgate.registry.replication.state import RegistryState
from toolgate.registry.replication.sync import NodeSync
from toolgate.surfaces.mcp.exchange import CallerBinding
from toolgate.telemetry import Metrics

pytestmark = pytest.mark.anyio

SECRET = "tg_" + "s" * 40
TWO_TOOLS = (definition("read"), definition("write"))


@pytest.fixture
def anyio_backend() -> Any:
    return VIRTUAL


class Node:
    """A node without its doors."""

    def __init__(
        self, control: MemoryControl, net: MemoryNet, gateway: Gateway, staleness_s: int | None
    ) -> None:
        self.control = control
        self.net = net
        self.gateway = gateway
        self.identities = Identities(
            admin_key=None, trusts_local=False, clock_s=lambda: 0.0, awaits_keys=True
        )
        self.freshness = StalenessGuard(gateway, max_staleness_s=staleness_s)
        self.sync = NodeSync(
            control, apply=self._apply, on_contact=self.freshness.on_contact, jitter=lambda: 0.5
        )

    def _apply(self, state: RegistryState) -> None:
        self.identities.apply(state.keys)
        self.gateway.apply(state)

    async def write(self, *writes: RecordWrite) -> None:
        await self.control.store.write(writes, actor="ada")
        await pass_time(0.1)

    def pids(self) -> dict[str, int | None]:
        return {server_id: health.pid for server_id, health in self.gateway.servers.health().items()}

    async def tools(self, **asked: Any) -> list[str]:
        return list((await self.gateway.wait_for_view(caller(**asked))).routes)

    def refusal(self) -> type[ToolgateError] | None:
        """What a caller that is bound already meets with."""
        try:
            BOUND.view(self.gateway)
        except ToolgateError as exc:
            return type(exc)
        return None


BOUND = CallerBinding(Caller(LOCAL_ADMIN))


@asynccontextmanager
async def following(control: MemoryControl, *, staleness_s: int | None = None) -> AsyncIterator[Node]:
    net = MemoryNet(fs=MemoryServer(tools=TWO_TOOLS), git=MemoryServer(tools=TWO_TOOLS))

    def changed(server_id: str) -> None:
        gateway.on_tools_changed(server_id)

    async with pool_of(net, on_change=changed) as pool, asyncio.TaskGroup() as tasks:
        gateway = Gateway(
            pool, AuditLog(MemorySink()), metrics=Metrics(), limits=ScopeLimits(), snapshot=Snapshot()
        )
        node = Node(control, net, gateway, staleness_s)
        task = tasks.create_task(node.sync.run())
        await pass_time(0.1)
        yield node
        task.cancel()
        node.freshness.close()


@pytest.fixture
def control() -> MemoryControl:
    return MemoryControl(MemoryStore(lambda: 0))


def caller(**asked: Any) -> Caller:
    return Caller(LOCAL_ADMIN, request=SessionRequest(**asked))


def server(server_id: str, *, command: str = "serve", **more: Any) -> RecordWrite:
    fields = {"transport": "stdio", "stdio": {"command": command}, "allowed_tools": ["*"], **more}
    return RecordWrite(kind="server", id=server_id, body={"server_id": server_id, **fields})


def key(key_id: str = "ada") -> RecordWrite:
    fields = {"sha256": hash_key(SECRET), "role": "agent"}
    return RecordWrite(kind="key", id=key_id, body={"key_id": key_id, **fields})


async def test_a_change_notifies_only_those_whose_list_it_changes(
    control: MemoryControl,
) -> None:
    async with following(control) as node:
        await node.write(server("fs"), server("git"))
        with ExitStack() as stack:
            listen = node.gateway.subscriptions.open
            listeners = {
                name: stack.enter_context(listen(caller(**asked)))
                for name, asked in {
                    "all": {},
                    "fs alone": {"servers": ("fs",)},
                    "git alone": {"servers": ("git",)},
                    "the tool that stays": {"tools": ("fs/read",)},
                }.items()
            }
            for one in listeners.values():
                await one.wait(1)  # to what was just listed
            await node.write(server("fs", allowed_tools=["read"]))
            notified = [name for name, one in listeners.items() if (await one.wait(1)).lists]

    assert notified == ["all", "fs alone"]


async def test_only_a_server_that_is_started_otherwise_is_reconnected(control: MemoryControl) -> None:
    async with following(control) as node:
        await node.write(server("fs"), server("git"))
        await node.tools()
        before = node.pids()
        await node.write(server("fs", allowed_tools=["read"], tags=["x"]))
        narrowed = (node.pids() == before, await node.tools(servers=("fs",)))
        await node.write(server("fs", command="serve-again"))
        await node.tools()
        after = node.pids()

    assert narrowed == (True, ["fs.read"])
    assert after["git"] == before["git"]
    assert after["fs"] != before["fs"]
    assert (len(node.net["fs"].starts_s), len(node.net["git"].starts_s)) == (2, 1)


async def test_a_server_with_another_launch_is_listed_again(control: MemoryControl) -> None:
    async with following(control) as node:
        await node.write(server("fs"))
        before = await node.tools()
        node.net["fs"].tools = (definition("other"),)
        await node.write(server("fs", command="serve-again"))

        assert (before, await node.tools()) == (["fs.read", "fs.write"], ["fs.other"])


async def test_rep_3_before_the_first_word_nothing_is_served_and_no_key_is_called_wrong(
    control: MemoryControl,
) -> None:
    await control.store.write([server("fs"), key()], actor="ada")
    control.go()
    async with following(control) as node:
        early = node.refusal()
        with pytest.raises(NotReady):
            await node.identities.authenticate(f"Bearer {SECRET}")
        with pytest.raises(NotReady):
            node.gateway.scope(caller())
        control.come_back()
        await pass_time(11)

        assert early is NotReady
        assert node.refusal() is None
        assert (await node.identities.authenticate(f"Bearer {SECRET}")).id == "key:ada"
        with pytest.raises(Unauthenticated):
            await node.identities.authenticate("Bearer wrong")


async def test_rep_3_stale_policy_is_refused_where_that_is_set_and_served_at_the_next_word(
    control: MemoryControl,
) -> None:
    async with following(control, staleness_s=30) as node:
        await node.write(server("fs"))
        await pass_time(300)
        quiet = node.refusal()
        control.go()
        await pass_time(24)
        within = node.refusal()
        await pass_time(7)
        past = (node.refusal(), type(node.gateway.suspension))
        control.come_back()
        await pass_time(6)

        assert (quiet, within) == (None, None)
        assert past == (PolicyStale, PolicyStale)
        assert (node.refusal(), node.gateway.suspension) == (None, None)


async def test_rep_3_without_a_limit_a_node_serves_on_for_ever(control: MemoryControl) -> None:
    async with following(control) as node:
        await node.write(server("fs"))
        control.go()
        await pass_time(3 * 3600)

        assert node.refusal() is None
        assert await node.tools() == ["fs.read", "fs.write"]


async def test_a_list_that_is_refused_for_a_while_has_not_changed(control: MemoryControl) -> None:
    async with following(control, staleness_s=30) as node:
        await node.write(server("fs"))
        await node.tools()
        with node.gateway.subscriptions.open(caller()) as listener:
            control.go()
            await pass_time(60)
            node.gateway.on_tools_changed("fs")
            await pass_time(1)

            assert node.refusal() is PolicyStale
            assert await listener.wait(1) == ListenerUpdate()


async def test_rep_5_a_key_revoked_at_control_is_refused_here(control: MemoryControl) -> None:
    async with following(control) as node:
        await node.write(key())
        known = node.identities.known(f"Bearer {SECRET}")
        await node.write(RecordWrite(kind="key", id="ada", body=None))

        assert known is not None
        assert node.identities.known(f"Bearer {SECRET}") is None
