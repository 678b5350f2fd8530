"""A task, a scripted model, and played guests of the task that chat with it."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tests.surfaces.wasm.guest_world import GuestWorld, PlayedGuest, open_guest_world
from tests.upstream.memory_link import MemoryNet, record
from tests.upstream.scripted_model import ScriptedModel, scripted_model
from toolgate.model.chat import ChatUpstream
from toolgate.model.servers import ServerRecord
from toolgate.model.tasks import WorkloadLimits
from toolgate.surfaces.wasm.chat_calls import AUTO_TOOL_CALL
from toolgate.surfaces.wasm.context import TaskContext
from toolgate.surfaces.wasm.functions import ALL_FUNCTIONS
from toolgate.wasm.abi import HostcallFault

T = TypeVar("T")

ARENA = 49_152
ARENA_LENGTH = 8_192


@dataclass
class ChatStage:
    """What a test of chats looks at."""

    world: GuestWorld
    model: ScriptedModel

    async def play(self, story: Callable[["Chatter"], T], **limits: Any) -> T:
        """Have `story` play a guest with one session."""
        return await self.world.play(
            ALL_FUNCTIONS, lambda guest: story(Chatter(guest)), limits=WorkloadLimits(**limits)
        )

    def upstreams(self, **fields: Any) -> None:
        """`main` serves every model; its fields, or those of the task."""
        main = ChatUpstream(upstream_id="main", base_url=self.model.url, models=("*",))
        self.world.world.apply(chat_upstreams={"main": replace(main, **fields)})


@asynccontextmanager
async def chat_stage(
    *script: Any, net: MemoryNet | None = None, servers: tuple[ServerRecord, ...] = (), **options: Any
) -> AsyncIterator[ChatStage]:
    """`script` is that of the model, which refuses what OpenAI does, unless it is not `strict`."""
    fields, strict = options.pop("upstream", {}), options.pop("strict", True)
    async with (
        scripted_model(*script, strict=strict) as model,
        open_guest_world(
            net or MemoryNet(), *(servers or (record("one", allowed_tools=("*",)),)), **options
        ) as world,
    ):
        stage = ChatStage(world, model)
        stage.upstreams(**fields)
        yield stage


class Chatter:
    """A played guest with a session, and a way of talking about it."""

    def __init__(self, guest: PlayedGuest) -> None:
        self.guest = guest
        self.fd = guest.call("cchat_create")
        for key, value in {"model": "m", "tool_arena_ptr": ARENA, "tool_arena_len": ARENA_LENGTH}.items():
            assert self.set(key, value) == 0

    @property
    def context(self) -> TaskContext:
        return self.guest.context

    def set(self, key: str, value: Any) -> int:
        return self.guest.set_param(self.fd, key, value)

    def say(self, content: str, role: str = "user") -> None:
        assert self.guest.call("cchat_write_msg", self.fd, role, content) == 0

    def write_fn(self, declared: Any, index: int = 1) -> int:
        data = declared if isinstance(declared, str | bytes) else json.dumps(declared)
        return self.guest.call("cchat_write_fn", self.fd, index, data)

    def tool(self, name: str, does: Callable[..., int], index: int = 1) -> None:
        """A function of the guest at `index` of its table, declared as a tool."""
        self.guest.table[index] = does
        assert self.write_fn({"type": "function", "function": {"name": name}}, index) == 0

    def send(self, flags: int = AUTO_TOOL_CALL) -> int:
        return self.guest.call("cchat_send", self.fd, flags)

    def recv(self, fd: int) -> Any:
        return self.guest.received("cchat_recv", fd, room=16_384)

    def prompt(self, content: str | None = "go", flags: int = AUTO_TOOL_CALL) -> Any:
        """The answer to one more message, or to those there are."""
        if content is not None:
            self.say(content)
        return self.recv(self.send(flags))

    def says(self, response: Callable[[Any], str | bytes]) -> Callable[..., int]:
        """A function that answers its arguments so, by the rules of the arena."""

        def does(arguments: int, length: int, out: int, out_length: int) -> int:
            sent = self.guest.read(arguments, length, most=ARENA_LENGTH)
            sent_text = response(json.loads(sent))
            data = sent_text.encode() if isinstance(sent_text, str) else sent_text
            try:
                self.guest.put_out(out, out_length, data)
            except HostcallFault as fault:
                return -fault.errno
            return 0

        return does


def content_of(response: Any) -> Any:
    return response["choices"][0]["message"]["content"]
