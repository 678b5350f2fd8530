"""The calls of guests by guests that run: numbers, buffers and descriptors as the ABI has them."""

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.node import node, node_file
from tests.scenarios.soak import rounds
from tests.surfaces.wasm import any_order
from tests.surfaces.wasm.any_order import PRINCIPALS, Oracle, Scopes, Step
from tests.surfaces.wasm.guest_world import GuestWorld, open_guest_world
from tests.surfaces.wasm.puppet import Recorded, Script, import_of
from tests.upstream.memory_link import Json, MemoryNet, MemoryServer, definition, record
from tests.upstream.scripted_model import ScriptedModel, scripted_model, text
from tests.upstream.stdio_stage import open_opener
from tests.wasm.wat import compiled, job
from toolgate.model.chat import ChatUpstream
from toolgate.model.servers import ServerBudgets, ServerRecord, StdioLaunch
from toolgate.model.tasks import WorkloadLimits
from toolgate.surfaces.wasm.context import TaskContext
from toolgate.surfaces.wasm.functions import ALL_FUNCTIONS
from toolgate.upstream.connection.contract import RpcResponse
from toolgate.wasm.abi import FdEntry
from toolgate.wasm.run import GuestRun
from toolgate.wasm.slots import Slots

pytestmark = pytest.mark.anyio

EBADF, EACCES, EINVAL, ENOENT, ENOSPC, EMFILE = -9, -13, -22, -2, -28, -24
BAD_FDS = (-1, 0, 2, 999, 1_900, 2**31 - 1, -(2**31))
CONFIG = {"default_server_ids": ["one"], "allowed_server_ids": ["one", "two"], "tool_denylist": ["write"]}


@dataclass
class Stage:
    """A task whose guests run."""

    world: GuestWorld
    slots: Slots[TaskContext]
    model: ScriptedModel
    directory: Path

    async def run(self, script: Script, **limits: int) -> list[Any]:
        """What the calls of `script` returned; the guest ended well, and the host was at no fault."""
        context = self.world.context()
        ending, responses = await script.run(self.slots, context, self.directory, **limits)
        assert (ending.ended_by, ending.exit_code) == ("exit", 0), ending
        assert self.slots.host_faults == 0
        return responses


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    """Two servers with two tools each, of which the task may have one."""
    server = MemoryServer(tools=(definition("read"), definition("write")))
    records = [record(name, allowed_tools=("*",)) for name in ("one", "two", "three")]
    async with open_stage(tmp_path, MemoryNet(one=server, two=server, three=server), *records) as stage:
        yield stage


@asynccontextmanager
async def open_stage(
    directory: Path, net: MemoryNet, *records: ServerRecord, **options: Any
) -> AsyncIterator[Stage]:
    async with AsyncExitStack() as stack:
        world = await stack.enter_async_context(
            open_guest_world(net, *records, **({"config": CONFIG} | options))
        )
        model = await stack.enter_async_context(scripted_model(lambda _: text("done")))
        slots = await stack.enter_async_context(Slots[TaskContext](ALL_FUNCTIONS, max_guests=2))
        upstream = ChatUpstream(upstream_id="main", base_url=model.url, models=("*",))
        world.world.apply(chat_upstreams={"main": upstream})
        yield Stage(world, slots, model, directory)


async def test_descriptors_that_are_for_nothing_or_another_kind_are_bad(stage: Stage) -> None:
    """WAS-4"""
    uses: dict[str, tuple[tuple[Any, ...], ...]] = {
        "mcp": (("mcp_list_tools", 0x1_0000, 0xFFFC), ("mcp_call_tool", "read", "{}", 0x1_0000, 0xFFFC)),
        "epoll": (("spear_epoll_wait", 0x1_0000, 0xFFFC, -1), ("spear_epoll_ctl", 1, 1_000, 1)),
        "chat": (("cchat_ctl", 1, 0, 0xFFFC), ("cchat_send", 0), ("cchat_write_msg", "user", "hi")),
        "response": (("cchat_recv", 0x1_0000, 0xFFFC),),
        "any": (("spear_fd_ctl", 3, 0x1_0000, 0xFFFC),),
    }
    closes = {"mcp": "mcp_close", "epoll": "spear_epoll_close", "chat": "cchat_close"}
    own = {"mcp": 1_000, "epoll": 1_001, "chat": 1_002}
    script = Script()
    script.call("mcp_open", "one")
    script.call("spear_epoll_create")
    script.call("cchat_create")
    for kind, calls in uses.items():
        others = [fd for other, fd in own.items() if kind not in (other, "any")]
        for fd in (*BAD_FDS, *others):
            for name, *args in calls:
                script.call(name, fd, *args)
    for kind, close in closes.items():
        for fd in (*BAD_FDS, *[fd for other, fd in own.items() if other != kind]):
            script.call(close, fd)
    for kind, close in closes.items():
        script.call(close, own[kind])
    for kind, close in closes.items():
        script.call(close, own[kind])
        script.call("spear_fd_ctl", own[kind], 3, 0x1_0000, 0xFFFC)

    responses = await stage.run(script)

    assert responses[:3] == [1_000, 1_001, 1_002]
    assert responses[-9:-6] == [0, 0, 0]
    assert set(responses[3:-9] + responses[-6:]) == {EBADF}


OPENERS = ("mcp_open", "cchat_create", "spear_epoll_create")
OPENS = f"""(module
  {" ".join(import_of(one) for one in ALL_FUNCTIONS if one.name in OPENERS)}
  (import "wasi_snapshot_preview1" "proc_exit" (func $proc_exit (param i32)))
  (memory (export "memory") 1)
  (data (i32.const 0) "one")
  (func $count (param $fd i32) (result i32) (i32.ge_s (local.get $fd) (i32.const 1000)))
  (func $refused (param $fd i32) (result i32) (i32.eq (local.get $fd) (i32.const {EMFILE})))
  (func (export "_start") (local $left i32) (local $opened i32) (local $fd i32)
    (local.set $left (i32.const OPENS))
    (loop $more
      (local.set $fd (call $mcp_open (i32.const 0) (i32.const 3)))
      (if (call $refused (local.get $fd)) (then (local.set $fd (call $cchat_create))))
      (if (call $refused (local.get $fd)) (then (local.set $fd (call $spear_epoll_create))))
      (if (call $count (local.get $fd)) (then (local.set $opened (i32.add (local.get $opened) (i32.const 1))))
        (else (if (i32.eqz (call $refused (local.get $fd))) (then unreachable))))
      (local.set $left (i32.sub (local.get $left) (i32.const 3)))
      (br_if $more (i32.gt_s (local.get $left) (i32.const 0))))
    (call $proc_exit (local.get $opened))))
"""


@pytest.mark.soak
async def test_opening_without_closing_comes_to_an_end_and_all_is_freed(stage: Stage) -> None:
    """WAS-5"""
    opens = rounds(suite=5_000, soak=1_000_000)
    module = compiled(OPENS.replace("OPENS", str(opens)), stage.directory)
    limits = WorkloadLimits(max_fds=100, wall_clock_ms=600_000)
    gc.collect()
    before = _entries()

    ending = await stage.slots.run(GuestRun(job(module, stage.world.context(), limits=limits)))

    assert (ending.ended_by, ending.exit_code) == ("exit", 100), ending
    assert stage.slots.host_faults == 0
    gc.collect()
    assert _entries() == before


def _entries() -> int:
    return sum(isinstance(one, FdEntry) for one in gc.get_objects())


def ask_the_model(script: Script, fd: int) -> None:
    """Have a session send: what the model is offered is what the session has."""
    script.set_param(fd, "model", "m")
    script.call("cchat_write_msg", fd, "user", "go")
    script.call("cchat_send", fd, 0)


def offered(model: ScriptedModel) -> list[list[str]]:
    """The tools of each request that the model got, as `server.tool`."""
    return [
        sorted(name.removeprefix("mcp__").replace("__", ".", 1) for name in hostcall.tool_names)
        for hostcall in model.requests
    ]


async def test_what_the_task_says_is_not_for_a_guest_to_set(stage: Stage) -> None:
    """WAS-6"""
    script = Script()
    script.call("cchat_create")
    script.set_param(1_000, "mcp.server_ids", ["one", "two"])
    script.set_param(1_000, "mcp.task_tool_denylist", [])
    script.set_param(1_000, "mcp.task_tool_allowlist", ["*"])
    script.set_param(1_000, "mcp.tool_allowlist", ["*"])
    ask_the_model(script, 1_000)

    assert await stage.run(script) == [1_000, 0, EACCES, EACCES, 0, 0, 0, 1_001]
    assert offered(stage.model) == [["one.read", "two.read"]]


async def test_servers_outside_the_task_change_nothing(stage: Stage) -> None:
    """WAS-7"""
    script = Script()
    script.call("cchat_create")
    script.set_param(1_000, "mcp.server_ids", ["two"])
    script.set_param(1_000, "mcp.server_ids", ["one", "three"])
    ask_the_model(script, 1_000)
    script.call("mcp_open", "three")
    script.call("mcp_open", "nowhere")

    assert await stage.run(script) == [1_000, 0, EACCES, 0, 0, 1_001, EACCES, EACCES]
    assert offered(stage.model) == [["two.read"]]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("metadata", {"mcp.server_ids": '["three"]'}),
        ("metadata", {"mcp.task_tool_denylist": "[]"}),
        ("toolgate", {"mcp": {"server_ids": ["three"]}}),
        ("toolgate.mcp", {"server_ids": ["three"]}),
    ],
)
async def test_no_other_way_of_saying_it_reaches_a_server(stage: Stage, key: str, value: Any) -> None:
    """WAS-7: what the chat door takes in a request says no more in a parameter than there."""
    script = Script()
    script.call("cchat_create")
    script.set_param(1_000, key, value)
    ask_the_model(script, 1_000)
    script.hostcall("cchat_recv", 1_001)

    assert (await stage.run(script))[-1].json["error"]["code"] in ("mcp_policy_denied", "invalid_chat")
    assert stage.model.requests == []


async def test_a_buffer_that_is_too_small_is_reported_what_is_needed_and_left_alone(stage: Stage) -> None:
    """WAS-8"""
    asking: tuple[tuple[Any, ...], ...] = (
        ("mcp_list_tools", 1_000),
        ("mcp_call_tool", 1_000, "read", '{"n": 1}'),
        ("mcp_registry_list",),
        ("mcp_registry_get", "one"),
        ("spear_fd_ctl", 1_000, 3),
        ("cchat_recv", 1_002),
        ("cchat_ctl", 1_002, 2),
    )

    async def tell(rooms: Sequence[Sequence[int]]) -> list[Recorded]:
        script = Script()
        script.call("mcp_open", "one")
        script.call("cchat_create")
        ask_the_model(script, 1_001)
        for (name, *args), sizes in zip(asking, rooms, strict=True):
            for room in sizes:
                script.hostcall(name, *args, room=room)
        return [received for received in await stage.run(script) if isinstance(received, Recorded)]

    needed = [received.length for received in await tell([[0]] * len(asking))]
    received = await tell([(0, 1, length - 1, length) for length in needed])
    short = [one for at, one in enumerate(received) if at % 4 < 3]

    assert [(one.code, one.is_untouched) for one in short] == [(ENOSPC, True)] * len(short)
    assert [one.length for one in short] == [length for length in needed for _ in range(3)]
    assert [one.code for one in received[3::4]] == needed
    assert [bool(one.json) for one in received[3::4]] == [True] * 6 + [False]
    assert len(stage.world.net["one"].calls) == 2


@pytest.mark.parametrize("bad", [b"\xff", b"\xc3\x28", b"a\0b", b"\xed\xa0\x80"])
async def test_bytes_that_are_no_text_are_invalid(stage: Stage, bad: bytes) -> None:
    """WAS-10"""
    script = Script()
    script.call("mcp_open", "one")
    script.call("cchat_create")
    script.call("mcp_open", bad)
    script.hostcall("mcp_registry_get", bad)
    script.hostcall("mcp_call_tool", 1_000, bad, "{}")
    script.hostcall("mcp_call_tool", 1_000, "read", b'{"a":"' + bad + b'"}')
    for data in (b'{"key":"' + bad + b'","value":1}', b'{"key":"model","value":"' + bad + b'"}'):
        script.put(0, data)
        script.put(0xFFFC, len(data).to_bytes(4, "little"))
        script.call("cchat_ctl", 1_001, 1, 0, 0xFFFC)
        script.call("spear_fd_ctl", 1_000, 1, 0, 0xFFFC)

    codes = [one.code if isinstance(one, Recorded) else one for one in await stage.run(script)]

    assert codes == [1_000, 1_001, *[EINVAL] * 8]
    assert stage.world.net["one"].calls == []


@pytest.mark.parametrize("name", ["spear_epoll_wait", "mcp_call_tool"])
async def test_a_guest_that_waits_within_a_call_is_ended_at_its_deadline(stage: Stage, name: str) -> None:
    async def hang(_: Json) -> RpcResponse:
        await asyncio.Event().wait()
        raise AssertionError

    stage.world.net["one"].on_call = {"read": hang}
    script = Script()
    script.call("mcp_open", "one")
    script.call("spear_epoll_create")
    script.put(0xFFFC, (64).to_bytes(4, "little"))
    if name == "spear_epoll_wait":
        script.call("spear_epoll_wait", 1_001, 0x1_0000, 0xFFFC, -1)
    else:
        script.call("mcp_call_tool", 1_000, "read", "{}", 0x1_0000, 0xFFFC)
    context = stage.world.context()

    ending, responses = await script.run(stage.slots, context, stage.directory, wall_clock_ms=1_500)

    assert (ending.ended_by, responses) == ("deadline", [1_000, 1_001])
    assert stage.slots.host_faults == 0
    assert stage.world.net["one"].stopped_by == (["read"] if name == "mcp_call_tool" else [])
    assert [made.code for made in context.calls.kept] == (["cancelled"] if name == "mcp_call_tool" else [])


def write_down(script: Script, step: Step, fd: int) -> None:
    """One step of any order, as calls of a puppet."""
    name = step.name
    match name:
        case "set_param":
            script.set_param(fd, step.text, step.value)
        case "mcp_open":
            script.call(name, step.text)
        case "mcp_close" | "cchat_close":
            script.call(name, fd)
        case "cchat_create":
            script.call(name)
        case "mcp_call_tool":
            script.hostcall(name, fd, step.text, "{}", room=256)
        case _:
            args = {"mcp_list_tools": (fd,), "mcp_registry_get": (step.text,)}.get(name, ())
            script.hostcall(name, *args, room=2_048)


def read_back(step: Step, response: Any) -> tuple[int, list[str]]:
    if not isinstance(response, Recorded):
        return response, []
    if response.code < 0 or step.name == "mcp_call_tool":
        return min(response.code, 0), []
    received = response.json
    if step.name == "mcp_list_tools":
        return 0, [tool["name"] for tool in received["tools"]]
    return 0, [server["server_id"] for server in received.get("servers", [received])]


@pytest.mark.soak
async def test_no_order_of_calls_of_a_running_guest_widens_its_scope(tmp_path: Path) -> None:
    """WAS-6, WAS-7: and what a model is offered in a session is what the session has."""
    seed = rounds(suite=11, soak=Random().randrange(2**32))
    chance = Random(seed)
    scopes: Scopes = {}
    async with open_stage(tmp_path, any_order.net(), *any_order.records(), tasks=any_order.tasks()) as stage:
        snapshot = stage.world.world.gateway.snapshot
        for _ in range(rounds(suite=200, soak=2_000)):
            config = snapshot.tasks[chance.choice(any_order.tasks()).task_id]
            oracle = Oracle(snapshot, chance.choice(PRINCIPALS), config, scopes)
            await _follow(stage, oracle, any_order.random_steps(chance), seed)


async def _follow(stage: Stage, oracle: Oracle, steps: list[Step], seed: int) -> None:
    script, expected, sessions = Script(), [], []
    for step in steps:
        if step.name == "offered":
            continue
        write_down(script, step, oracle.fd_of(step))
        expected.append((step, oracle.expect(step)))
    for fd in oracle.sessions:
        sessions.append(oracle.offered(fd))
        ask_the_model(script, fd)
    stage.world.task_id = oracle.config.task_id
    context = stage.world.context(principal=oracle.principal)
    stage.model.requests.clear()

    _, responses = await script.run(stage.slots, context, stage.directory)

    received = [read_back(step, response) for (step, _), response in zip(expected, responses, strict=False)]
    assert received == [sent_text for _, sent_text in expected], (
        seed,
        oracle.config,
        oracle.principal,
        steps,
    )
    assert offered(stage.model) == sessions, (seed, oracle.config, oracle.principal, steps)
    assert stage.slots.host_faults == 0


async def test_a_guest_reads_a_file_through_the_reference_server(tmp_path: Path) -> None:
    """`server-filesystem`, as its authors wrote it."""
    directory = tmp_path / "files"
    directory.mkdir()
    (directory / "read.me").write_text("Welcome.\n", "utf-8")
    script_file = node_file("@modelcontextprotocol/server-filesystem/dist/index.js")
    launch = StdioLaunch(command=node(), args=(script_file, str(directory)), cwd=str(directory))
    files = ServerRecord(
        server_id="one",
        transport="stdio",
        stdio=launch,
        allowed_tools=("read_*", "list_*"),
        budgets=ServerBudgets(tool_timeout_ms=20_000, max_concurrency=2, max_tool_output_bytes=65_536),
    )
    script = Script()
    script.call("mcp_open", "one")
    script.hostcall("mcp_list_tools", 1_000)
    script.hostcall("mcp_call_tool", 1_000, "read_text_file", '{"path": "read.me"}', room=8)
    script.hostcall("mcp_call_tool", 1_000, "read_text_file", '{"path": "read.me"}')
    script.hostcall("mcp_call_tool", 1_000, "write_file", '{"path": "read.me", "content": ""}')
    script.hostcall("mcp_call_tool", 1_000, "read_text_file", '{"path": "/etc/passwd"}')
    net = MemoryNet()
    async with open_opener() as opener:
        net.open = opener  # type: ignore[method-assign,assignment]
        async with open_stage(tmp_path, net, files) as stage:
            opened, listed, short, read, denied, outside = await stage.run(script)

    assert opened == 1_000
    assert {"read_text_file", "list_directory"} <= {tool["name"] for tool in listed.json["tools"]}
    assert "write_file" not in json.dumps(listed.json["tools"])
    assert (short.code, short.is_untouched) == (ENOSPC, True)
    assert read.json["content"] == [{"type": "text", "text": "Welcome.\n"}]
    assert denied.code == ENOENT
    assert outside.json["isError"] is True
