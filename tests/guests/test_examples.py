"""Each example runs to its end in a real slot, with a model that follows a script and servers in memory."""

import json
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.guests.built import build, compiled, example
from tests.surfaces.openai.chat_world import upstream
from tests.surfaces.wasm.guest_world import GuestWorld, open_guest_world
from tests.upstream.memory_link import Handler, Json, MemoryNet, MemoryServer, definition, record, text_result
from tests.upstream.scripted_model import Reply as ChatOutput
from tests.upstream.scripted_model import ScriptedModel, calls, scripted_model, text
from tests.wasm.wat import job
from toolgate.model.invocations import InvocationResult, LogLine
from toolgate.surfaces.wasm.functions import ALL_FUNCTIONS
from toolgate.upstream.connection.contract import RpcResponse
from toolgate.wasm.run import GuestRun
from toolgate.wasm.slots import Slots

pytestmark = pytest.mark.anyio

FILES = {"/papers/harbour.txt": "The harbour is closed.\n", "/papers/lantern.md": 'The "lantern" ☼ is lit.\n'}
LARGE = "x" * 100_000
"""More than the helpers' first buffers hold."""


class Ran:
    """What one run of an example left."""

    def __init__(self, ending: InvocationResult, log: list[LogLine]) -> None:
        self.code = ending.exit_code
        self.out = ending.stdout.decode()
        self.err = ending.stderr.decode()
        self.log = [line.text for line in log if line.stream == "log"]


async def run(world: GuestWorld, name: str, *args: str, given: str = "", directory: Path) -> Ran:
    one = GuestRun(
        job(
            compiled(example(name), directory),
            world.context(),
            args=("task", *args),
            input_=given.encode(),
        )
    )
    async with Slots(ALL_FUNCTIONS, max_guests=1) as slots:
        ending = await slots.run(one)
        assert slots.host_faults == 0
    assert ending.ended_by == "exit", ending
    return Ran(ending, one.output.take())


async def list_files(_: Json) -> RpcResponse:
    names = sorted(Path(path).name for path in FILES)
    return RpcResponse(result=text_result("\n".join(["[DIR] old", *(f"[FILE] {name}" for name in names)])))


async def read_file(params: Json) -> RpcResponse:
    return RpcResponse(result=text_result(FILES[params["arguments"]["path"]]))


async def tell_time(params: Json) -> RpcResponse:
    return RpcResponse(result=text_result(f"at {params['arguments']['timezone']}"))


async def tell_much(_: Json) -> RpcResponse:
    return RpcResponse(result=text_result(LARGE))


def servers() -> MemoryNet:
    on_files: dict[str, Handler] = {"list_directory": list_files, "read_text_file": read_file}
    on_one: dict[str, Handler] = {"large": tell_much}
    on_time: dict[str, Handler] = {"get_current_time": tell_time}
    return MemoryNet(
        **{
            server_id: MemoryServer(tools=tuple(map(definition, on_call)), on_call=on_call)
            for server_id, on_call in (("one", on_one), ("files", on_files), ("time", on_time))
        }
    )


@asynccontextmanager
async def world() -> AsyncIterator[GuestWorld]:
    """A task with three servers."""
    named = ("one", "files", "time")
    records = [record(server_id, allowed_tools=("*",)) for server_id in named]
    async with open_guest_world(servers(), *records, config={"default_server_ids": list(named)}) as opened:
        yield opened


@asynccontextmanager
async def world_with_model(*script: ChatOutput) -> AsyncIterator[tuple[GuestWorld, ScriptedModel]]:
    async with scripted_model(*script, strict=True) as model, world() as opened:
        opened.world.apply(chat_upstreams={"main": upstream(model.url)})
        yield opened, model


async def test_a_model_calls_a_function_of_the_guest(tmp_path: Path) -> None:
    async with world_with_model(calls(("add", '{"a": 7, "b": 35}')), text("It is 42.")) as (opened, model):
        ran = await run(opened, "chat_with_tool", "m", given="What is 7 + 35?\n", directory=tmp_path)

    assert (ran.code, ran.out, ran.err, ran.log) == (0, "It is 42.\n", "", ['{"sum":42}'])
    assert "add" in model.requests[0].tool_names
    assert model.requests[1].messages[-1]["content"] == '{"sum":42}'


async def test_a_chat_that_fails_says_so_on_standard_error(tmp_path: Path) -> None:
    async with world() as opened:
        ran = await run(opened, "chat_with_tool", "unknown", given="Hello?\n", directory=tmp_path)

    assert (ran.code, ran.out) == (1, "")
    assert json.loads(ran.err)["error"]["code"] == "model_not_found"


async def test_a_server_is_listed_and_called(tmp_path: Path) -> None:
    async with world() as opened:
        ran = await run(
            opened, "mcp_direct", "time", "get_current_time", given='{"timezone": "UTC"}', directory=tmp_path
        )

    name, result = ran.out.splitlines()
    assert (ran.code, ran.err, name) == (0, "", "get_current_time")
    assert json.loads(result)["content"] == [{"type": "text", "text": "at UTC"}]


async def test_a_large_result_is_fetched_by_one_call(tmp_path: Path) -> None:
    """WAS-8"""
    async with world() as opened:
        ran = await run(opened, "mcp_direct", "one", "large", directory=tmp_path)

    assert json.loads(ran.out.splitlines()[1])["content"][0]["text"] == LARGE
    assert len(opened.net["one"].calls) == 1


async def test_what_the_task_has_not_is_a_number_with_its_reason(tmp_path: Path) -> None:
    async with world() as opened:
        no_server = await run(opened, "mcp_direct", "other", "any", directory=tmp_path)
        no_tool = await run(opened, "mcp_direct", "time", "any", directory=tmp_path)

    assert (no_server.code, no_server.err) == (1, "open: error 13\n")
    status, reply = no_tool.err.splitlines()
    assert (no_tool.code, reply) == (1, "call: error 2")
    assert json.loads(status)["last_error"]["code"] == "unknown_tool"


async def test_the_files_of_a_directory_are_summarised(tmp_path: Path) -> None:
    async with world_with_model(text("Closed, but lit.")) as (opened, model):
        ran = await run(opened, "summarize", "files", "m", given="/papers\n", directory=tmp_path)

    assert (ran.code, ran.out, ran.err) == (0, "Closed, but lit.\n", "")
    assert ran.log == ["harbour.txt", "lantern.md"]
    [asked] = model.requests
    assert asked.messages[-1]["content"] == (
        'harbour.txt:\nThe harbour is closed.\n\nlantern.md:\nThe "lantern" ☼ is lit.\n\n'
    )
    assert asked.tool_names == []


async def test_a_guest_in_assemblyscript_calls_a_tool(tmp_path: Path) -> None:
    async with world() as opened:
        ran = await run(opened, "what_time", directory=tmp_path)

    assert (ran.code, ran.err) == (0, "")
    assert json.loads(ran.out)["content"] == [{"type": "text", "text": "at Asia/Tokyo"}]


@pytest.mark.requirement("002-097")
async def test_a_c_guest_narrows_its_descriptor(tmp_path: Path) -> None:
    source = tmp_path / "narrowed.c"
    shutil.copy(Path(__file__).with_name(source.name), source)
    module = compiled(build(source, "--target=wasm32-wasi"), tmp_path)
    async with world() as opened, Slots(ALL_FUNCTIONS, max_guests=1) as slots:
        args = ("task", "files", "read_text_file", "list_directory")
        ending = await slots.run(GuestRun(job(module, opened.context(), args=args)))

    assert ending.stdout.decode().splitlines() == [
        "narrow 0",
        "widen -13",
        "other gone",
        "call -2",
        "again -11",
    ]
    assert opened.net["files"].calls == []
