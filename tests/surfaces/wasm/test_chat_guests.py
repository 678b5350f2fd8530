"""Chats of real guests: WebAssembly in the slots of a node, whose functions are called back by its table."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.surfaces.openai.chat_world import error_in, results
from tests.surfaces.wasm.chat_stage import ChatStage, chat_stage, content_of
from tests.upstream.memory_link import Json, MemoryNet, text_result
from tests.upstream.scripted_model import Ask, calls, hang, text
from tests.wasm.wat import compiled, job
from toolgate.model.invocations import InvocationResult
from toolgate.model.tasks import WorkloadLimits
from toolgate.surfaces.wasm.context import TaskContext
from toolgate.surfaces.wasm.functions import ALL_FUNCTIONS
from toolgate.upstream.connection.contract import RpcResponse
from toolgate.wasm.run import GuestRun
from toolgate.wasm.slots import Slots

pytestmark = pytest.mark.anyio

ECHO = "mcp__one__echo"
ARENA = 131_072

PRELUDE = """
  (import "spear" "cchat_create" (func $create (result i32)))
  (import "spear" "cchat_write_msg" (func $write_msg (param i32 i32 i32 i32 i32) (result i32)))
  (import "spear" "cchat_write_fn" (func $write_fn (param i32 i32 i32 i32) (result i32)))
  (import "spear" "cchat_ctl" (func $cchat_ctl (param i32 i32 i32 i32) (result i32)))
  (import "spear" "cchat_send" (func $send (param i32 i32) (result i32)))
  (import "spear" "cchat_recv" (func $recv (param i32 i32 i32) (result i32)))
  (import "spear" "cchat_close" (func $close (param i32) (result i32)))
  (import "spear" "log" (func $log (param i32 i32 i32) (result i32)))
  (import "spear" "sleep_ms" (func $sleep (param i32)))
  (import "spear" "mcp_open" (func $mcp_open (param i32 i32) (result i32)))
  (memory (export "memory") 4)
  (table (export "__indirect_function_table") 8 funcref)
  (elem (i32.const 1) $echo $nest $trap $spin $doze)
  (func $is (param $found i32) (param $expected i32)
    (if (i32.ne (local.get $found) (local.get $expected)) (then unreachable)))
  (func $set (param $fd i32) (param $at i32) (param $length i32) (result i32)
    (i32.store (i32.const 8) (local.get $length))
    (call $cchat_ctl (local.get $fd) (i32.const 1) (local.get $at) (i32.const 8)))
  ;; A too small buffer first: the answer stays, and its length is told.
  (func $show (param $answer i32)
    (i32.store (i32.const 8) (i32.const 5))
    (call $is (call $recv (local.get $answer) (i32.const 65536) (i32.const 8)) (i32.const -28))
    (call $is (call $recv (local.get $answer) (i32.const 65536) (i32.const 8)) (i32.load (i32.const 8)))
    (drop (call $log (i32.const 2) (i32.const 65536) (i32.load (i32.const 8)))))
  (func $echo (param $at i32) (param $length i32) (param $out i32) (param $out_length i32) (result i32)
    (if (i32.gt_u (local.get $length) (i32.load (local.get $out_length))) (then
      (i32.store (local.get $out_length) (local.get $length))
      (return (i32.const -28))))
    (memory.copy (local.get $out) (local.get $at) (local.get $length))
    (i32.store (local.get $out_length) (local.get $length))
    (i32.const 0))
  (func $trap (param i32 i32 i32 i32) (result i32) unreachable)
  (func $spin (param i32 i32 i32 i32) (result i32) (loop $again (br $again)) (i32.const 0))
  (func $doze (param i32 i32 i32 i32) (result i32) (call $sleep (i32.const 3600000)) (i32.const 0))
"""


class Program:
    """A guest as text: what it does in `_start`, and in the function that chats when it is called."""

    def __init__(self) -> None:
        self._data = ""
        self._free = 1_024

    def text(self, text: str) -> str:
        """Pointer and length of a text in its memory."""
        data = text.encode()
        escaped = "".join(f"\\{byte:02x}" for byte in data)
        self._data += f'(data (i32.const {self._free}) "{escaped}")\n'
        at, self._free = self._free, self._free + len(data)
        return f"(i32.const {at}) (i32.const {len(data)})"

    def session(self, **params: Any) -> str:
        """A new session in `$fd`, with an arena and these parameters."""
        given = {"model": "m", "tool_arena_ptr": ARENA, "tool_arena_len": 4_096} | params
        return "(local.set $fd (call $create))" + "".join(self.set(*one) for one in given.items())

    def set(self, key: str, value: Any, expected: int = 0) -> str:
        param = self.text(json.dumps({"key": key, "value": value}))
        return f"(call $is (call $set (local.get $fd) {param}) (i32.const {expected}))"

    def say(self, content: str) -> str:
        user = self.text("user")
        return f"(call $is (call $write_msg (local.get $fd) {user} {self.text(content)}) (i32.const 0))"

    def tool(self, name: str, index: int) -> str:
        declared = self.text(json.dumps({"type": "function", "function": {"name": name}}))
        return f"(call $is (call $write_fn (local.get $fd) (i32.const {index}) {declared}) (i32.const 0))"

    def prompt(self) -> str:
        """Send, show the answer, and close it."""
        return """(local.set $answer (call $send (local.get $fd) (i32.const 2)))
            (call $show (local.get $answer))
            (call $is (call $close (local.get $answer)) (i32.const 0))"""

    def wat(self, *start: str, nested: tuple[str, ...] = ()) -> str:
        body = "(local $fd i32) (local $answer i32)"
        return f"""(module {PRELUDE} {self._data}
            (func $nest (param i32 i32 i32 i32) (result i32) {body} {" ".join(nested)}
              (call $echo (local.get 0) (local.get 1) (local.get 2) (local.get 3)))
            (func (export "_start") {body} {" ".join(start)}))"""


class Guests:
    """Runs programs in slots."""

    def __init__(self, stage: ChatStage, slots: Slots[TaskContext], directory: Path) -> None:
        self._stage = stage
        self._slots = slots
        self._directory = directory

    def begin(
        self, wat: str, **limits: int
    ) -> tuple[GuestRun[TaskContext], "asyncio.Task[InvocationResult]"]:
        run = GuestRun(
            job(compiled(wat, self._directory), self._stage.world.context(), limits=WorkloadLimits(**limits))
        )
        return run, asyncio.create_task(self._slots.run(run))

    async def responses(self, wat: str) -> list[Any]:
        """What a guest that ends well has shown."""
        run, running = self.begin(wat)
        ending = await running
        assert (ending.ended_by, ending.exit_code, ending.message) == ("exit", 0, "")
        return [json.loads(line.text) for line in run.output.take()]

    async def ending(self, wat: str, **limits: int) -> InvocationResult:
        return await self.begin(wat, **limits)[1]


@asynccontextmanager
async def guests(stage: ChatStage, directory: Path, *, max_guests: int = 1) -> AsyncIterator[Guests]:
    """Runs guests; not one call of theirs was the host's fault."""
    async with asyncio.timeout(60), Slots(ALL_FUNCTIONS, max_guests=max_guests) as slots:
        yield Guests(stage, slots, directory)
        assert slots.host_faults == 0


@pytest.mark.requirement("002-027", "002-029")
async def test_a_guest_chats_with_functions_of_its_own_and_tools_of_servers(tmp_path: Path) -> None:
    """WAS-8: its first buffer is always too small. It sends twice, and a reply has calls of both kinds."""
    program = Program()
    wat = program.wat(
        program.session(),
        program.tool("mirror", 1),
        program.say("first"),
        program.prompt(),
        program.say("second"),
        program.prompt(),
    )
    both = calls(("mirror", '{"a": 7}', "g"), (ECHO, '{"b": 35}', "m"))
    async with (
        chat_stage(both, text("mirrored"), text("once more")) as stage,
        guests(stage, tmp_path) as run,
    ):
        responses = await run.responses(wat)
        asks = stage.model.requests

    assert [content_of(one) for one in responses] == ["mirrored", "once more"]
    assert asks[0].tool_names == ["mirror", ECHO]
    assert results(asks[1]) == {"g": '{"a": 7}', "m": '{"b":35}'}
    assert [one["role"] for one in asks[2].messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "assistant",
        "user",
    ]


async def test_a_function_of_a_guest_chats_itself(tmp_path: Path) -> None:
    """And sleeps, and opens a server: it may do what a guest may."""
    program = Program()
    inner = (
        "(call $sleep (i32.const 1))",
        f"(if (i32.lt_s (call $mcp_open {program.text('one')}) (i32.const 0)) (then unreachable))",
        program.session(tool_arena_ptr=ARENA + 8_192),
        program.tool("mirror", 1),
        program.say("nested"),
        program.prompt(),
    )
    outer = (program.session(), program.tool("ask_another", 2), program.say("go"), program.prompt())
    script = (
        calls(("ask_another", '{"x": 1}', "o")),
        calls(("mirror", "{}", "i")),
        text("inside"),
        text("outside"),
    )
    async with chat_stage(*script) as stage, guests(stage, tmp_path) as run:
        responses = await run.responses(program.wat(*outer, nested=inner))

        assert [content_of(one) for one in responses] == ["inside", "outside"]
        assert results(stage.model.requests[3]) == {"o": '{"x": 1}'}


async def test_guests_that_chat_at_once_hear_each_their_own(tmp_path: Path) -> None:
    def script(prompt: Ask) -> Any:
        sent_text = prompt.messages[-1]
        return (
            text(sent_text["content"])
            if sent_text["role"] == "tool"
            else calls(("mirror", sent_text["content"]))
        )

    def telling(number: int) -> str:
        program = Program()
        sent_text = program.say(json.dumps({"guest": number}))
        return program.wat(program.session(), program.tool("mirror", 1), sent_text, program.prompt())

    async with chat_stage(script) as stage, guests(stage, tmp_path, max_guests=8) as run:
        received = await asyncio.gather(*(run.responses(telling(number)) for number in range(8)))

    assert [json.loads(content_of(one)) for (one,) in received] == [{"guest": number} for number in range(8)]


async def test_a_guest_does_not_chat_deeper_and_deeper(tmp_path: Path) -> None:
    """Each chat within a function of another holds a stack of the host's: past some depth there is no
    room."""
    program = Program()
    deeper = (
        program.session(tool_arena_ptr=ARENA + 8_192),
        program.tool("deeper", 2),
        program.say("deeper"),
        "(local.set $answer (call $send (local.get $fd) (i32.const 2)))",
        "(if (i32.lt_s (local.get $answer) (i32.const 0)) (then",
        "  (call $is (local.get $answer) (i32.const -11)) (return (local.get $answer))))",
    )
    outer = (program.session(), program.tool("deeper", 2), program.say("go"), program.prompt())

    def script(prompt: Ask) -> Any:
        return text("up") if prompt.messages[-1]["role"] == "tool" else calls(("deeper", "{}", "d"))

    async with chat_stage(script) as stage, guests(stage, tmp_path) as run:
        (response,) = await run.responses(program.wat(*outer, nested=deeper))

        failures = [
            prompt for prompt in stage.model.requests if "tool rc: -11" in json.dumps(prompt.messages)
        ]
        assert content_of(response) == "up"
        assert len(failures) == 1


async def test_a_guest_cannot_widen_its_scope(tmp_path: Path) -> None:
    """WAS-6, WAS-7, by a real guest."""
    program = Program()
    wat = program.wat(
        program.session(),
        program.set("mcp.task_tool_allowlist", ["*"], -13),
        program.set("mcp.server_ids", ["one", "two"], -13),
        program.set("mcp.server_ids", "one", -22),
        program.set("", 1, -5),
        program.say("go"),
        program.prompt(),
    )
    async with (
        chat_stage(calls(("mcp__two__echo", "{}", "c")), text("no")) as stage,
        guests(stage, tmp_path) as run,
    ):
        await run.responses(wat)

        assert stage.model.requests[0].tool_names == [ECHO]
        assert error_in(stage.model.requests[1], "c")["code"] == "unknown_tool"


def asking(*tools: tuple[str, int]) -> str:
    program = Program()
    declared = [program.tool(*one) for one in tools]
    return program.wat(program.session(), *declared, program.say("go"), program.prompt())


async def test_a_function_that_traps_ends_the_run(tmp_path: Path) -> None:
    """WAS-11: the next one runs as if it had not been."""
    async with (
        chat_stage(calls(("trap", "{}"), (ECHO, "{}")), text("well")) as stage,
        guests(stage, tmp_path) as run,
    ):
        ending = await run.ending(asking(("trap", 3)))
        responses = await run.responses(asking())

        assert (ending.state, ending.ended_by) == ("failed", "trap")
        assert [content_of(one) for one in responses] == ["well"]


async def test_a_run_that_is_killed_leaves_nothing_at_the_model(tmp_path: Path) -> None:
    async with chat_stage(hang()) as stage, guests(stage, tmp_path) as run:
        guest, running = run.begin(asking())
        prompt = await stage.model.asked(1)
        guest.kill("cancelled", "enough")
        ending = await running
        await prompt.hung_up.wait()

        assert (ending.state, ending.message) == ("cancelled", "enough")
        assert stage.world.world.gateway.metrics.chats == {("main", "cancelled"): 1}


async def test_a_run_that_is_killed_leaves_nothing_at_a_server(tmp_path: Path) -> None:
    net, begun = MemoryNet(), asyncio.Event()

    async def for_ever(_: Json) -> RpcResponse:
        begun.set()
        await asyncio.Event().wait()
        return RpcResponse(result=text_result(""))

    net.servers["one"].on_call = {"echo": for_ever}
    async with chat_stage(calls((ECHO, "{}")), net=net) as stage, guests(stage, tmp_path) as run:
        guest, running = run.begin(asking())
        await begun.wait()
        guest.kill("revoked", "its key is gone")
        ending = await running

        assert (ending.ended_by, net.servers["one"].stopped_by) == ("revoked", ["echo"])


@pytest.mark.parametrize("tool", [("spin", 4), ("doze", 5)])
async def test_a_run_ends_at_its_deadline_whatever_its_functions_do(
    tmp_path: Path, tool: tuple[str, int]
) -> None:
    async with chat_stage(calls((tool[0], "{}"))) as stage, guests(stage, tmp_path) as run:
        ending = await run.ending(asking(tool), wall_clock_ms=300, fuel=10**15)

        assert (ending.state, ending.ended_by) == ("failed", "deadline")


async def test_a_run_ends_at_its_deadline_while_it_waits_for_a_model(tmp_path: Path) -> None:
    async with chat_stage(hang()) as stage, guests(stage, tmp_path) as run:
        ending = await run.ending(asking(), wall_clock_ms=2_000)

        assert ending.ended_by == "deadline"
        await stage.model.requests[0].hung_up.wait()


async def test_functions_of_a_guest_are_its_own_to_pay_for(tmp_path: Path) -> None:
    """Fuel that is used up in one is used up."""
    async with chat_stage(calls(("spin", "{}"))) as stage, guests(stage, tmp_path) as run:
        ending = await run.ending(asking(("spin", 4)), fuel=10_000_000)

        assert ending.ended_by == "out_of_fuel"
