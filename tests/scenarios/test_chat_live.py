"""A real model and real servers: SmolLM2 on this machine lists files and tells the time, through the gateway.

It is a model of 135 million parameters, asked what it has seen examples of; at temperature 0 it says the same
every time. What it says holds what the tools said, which it cannot know otherwise.
"""

import json
import re
from collections.abc import AsyncIterator, Iterator

import pytest

from tests.eventually import eventually, eventually_equal
from tests.forked_programs import forked
from tests.local_model import local_model
from tests.scenarios.chat import Chat, put_task, put_upstream
from tests.scenarios.gateway import Gateway, Json, Site, running
from tests.scenarios.reference import on_node

pytestmark = pytest.mark.anyio

FILES = ["harbour.txt", "lantern.md"]
"""No one could guess them."""
TOOLS = ["files.list_directory", "time.get_current_time"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Json]:
    """The demo's model, as the demo starts it."""
    with local_model(tmp_path_factory.mktemp("model")).running() as announced:
        yield dict(announced)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, model: Json) -> Iterator[Gateway]:
    """The reference servers for files and for time, and a task that sees one tool of each."""
    site = Site(tmp_path_factory.mktemp("chat"))
    home = site.root / "home"
    papers = home / "papers"
    papers.mkdir(parents=True)
    for name in FILES:
        (papers / name).touch()
    # It is where the files are, so that the question is the same on every machine.
    files = {**on_node("server-filesystem", str(home)), "cwd": str(home)}
    command, *args = forked("mcp-server-time", "--local-timezone", "UTC")
    time = {"command": command, "args": args}
    site.place(
        site.server("files", stdio=files, allowed_tools=["list_directory", "read_text_file"]),
        site.server("time", stdio=time, allowed_tools=["get_current_time"]),
    )
    with running(site) as gateway:
        allowed = {"mcp.tool_allowlist": ["files/list_directory", "time/get_current_time"]}
        put_task(
            gateway, "home", {"mcp.enabled": True, "mcp.default_server_ids": ["files", "time"], **allowed}
        )
        put_upstream(gateway, model["url"], upstream_id="local", models=[model["model"]])
        eventually_equal(lambda: sorted(gateway.modern("/api/mcp/t/home").tools()), TOOLS, 120)
        yield gateway


@pytest.fixture
async def chat(gateway: Gateway, model: Json) -> AsyncIterator[Chat]:
    client = Chat(f"{gateway.url}/t/home/v1", model=model["model"], temperature=0, max_tokens=80)
    async with client.client:
        yield client


def calls_in(audit: str) -> list[Json]:
    records = [json.loads(line) for line in audit.splitlines()]
    return [one for one in records if one["type"] == "call"]


async def test_a_real_model_lists_files_in_a_stream(gateway: Gateway, chat: Chat) -> None:
    before = len(calls_in(gateway.audit))
    reply = await chat.request("Which files are in papers?", stream=True)

    [called] = eventually(lambda: calls_in(gateway.audit)[before:])
    assert (called["server_id"], called["tool"], called["outcome"]) == ("files", "list_directory", "ok")
    assert reply.finish_reason == "stop"
    assert [name for name in FILES if name in (reply.text or "")] == FILES


async def test_a_real_model_tells_the_time(gateway: Gateway, chat: Chat) -> None:
    before = len(calls_in(gateway.audit))
    reply = await chat.request("What time is it in Tokyo?")

    [called] = eventually(lambda: calls_in(gateway.audit)[before:])
    assert (called["server_id"], called["tool"], called["outcome"]) == ("time", "get_current_time", "ok")
    assert reply.finish_reason == "stop"
    assert re.search(r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d\+09:00", reply.text or "")
