"""SCO-21: every denial is audited once, with the layer and rule that made it, and their revision."""

import pytest

from tests.surfaces.mcp.mcp_world import McpWorld, key, open_mcp_world, task
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition, record
from toolgate.audit.events import CredentialRefused
from toolgate.audit.log.writer import MAX_BEGIN_BYTES
from toolgate.surfaces.http.messages import Headers

pytestmark = pytest.mark.anyio

GIT = record("git", allowed_tools=("log", "push"))
REVIEW = task("review", default_server_ids=["git"], tool_denylist=["push"])
BOUND = key("bound", "secret-of-bound", ceiling={"allow": ("log",)})


def world() -> MemoryNet:
    return MemoryNet(git=MemoryServer(tools=[definition(name) for name in ("log", "push", "wipe")]))


def denials(opened: McpWorld) -> list[tuple[str, str, str]]:
    """Tool, layer and rule of each."""
    return [(one.tool, one.layer, one.rule) for one in opened.audited if one.outcome == "denied"]


@pytest.mark.requirement("000-43")
@pytest.mark.parametrize(
    ("url", "secret", "name", "layer"),
    [
        pytest.param("/mcp", None, "git.wipe", "platform", id="the record"),
        pytest.param("/mcp", "secret-of-bound", "git.push", "key", id="the key"),
        pytest.param("/mcp/t/review", None, "git.push", "task", id="the task"),
        pytest.param("/mcp?tools=git.log", None, "git.push", "request", id="the request"),
        pytest.param("/mcp/s/git?tools=log", None, "push", "request", id="a bare name"),
        pytest.param("/mcp", None, "notes.add", "platform", id="no such server"),
        pytest.param("/mcp", None, "git.none", "platform", id="no such tool"),
        pytest.param("/mcp", None, "no name at all", "", id="no name"),
    ],
)
async def test_sco_21_a_denial_names_the_layer_that_made_it(
    url: str, secret: str | None, name: str, layer: str
) -> None:
    async with open_mcp_world(world(), GIT, tasks=(REVIEW,), keys=(BOUND,)) as opened:
        session = await opened.session(url, key=secret)
        await session.call(name)
        await opened.modern(url, "tools/call", {"name": name}, key=secret)

        assert [(tool, found) for tool, found, _ in denials(opened)] == [(name, layer)] * 2


async def test_sco_21_a_revoked_tool_is_denied_by_the_record_of_the_new_revision() -> None:
    async with open_mcp_world(world(), GIT) as opened:
        session = await opened.session("/mcp")
        await session.call("git.push")
        opened.apply(servers={"git": record("git", allowed_tools=("log",))})
        await session.call("git.push")

        [denied] = [one for one in opened.audited if one.outcome == "denied"]
        assert (denied.layer, denied.revision) == ("platform", opened.state.revision)
        assert "allowed_tools" in denied.rule


async def test_a_denial_whose_task_is_gone_by_then_is_audited_without_a_reason() -> None:
    async with open_mcp_world(world(), GIT, tasks=(REVIEW,)) as opened:
        call = opened.open_modern("/mcp/t/review", "tools/call", {"name": "git.push"})
        send = call.send

        def send_and_remove(status: int, body: bytes, headers: Headers = ()) -> None:
            send(status, body, headers)
            opened.apply(tasks={})

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(call, "send", send_and_remove)
            await call.whole()

        assert denials(opened) == [("git.push", "", "")]


async def test_a_call_for_whose_record_there_is_no_room_is_counted_and_not_sent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(_lines: object) -> None:
        raise OSError("no space left")

    async with open_mcp_world(world(), GIT) as opened:
        await opened.modern("/mcp", "tools/list")
        with monkeypatch.context() as patch:
            patch.setattr(opened.sink, "write", fail)
            opened.gateway.audit.record(CredentialRefused(1, "mcp", "x" * MAX_BEGIN_BYTES))
            refused = await opened.modern("/mcp", "tools/call", {"name": "git.log"})
        opened.gateway.audit.flush()
        await opened.modern("/mcp", "tools/call", {"name": "git.log"})

        assert refused.json["result"]["_meta"]["toolgate/error"]["code"] == "mcp_unavailable"
        assert len(opened.net["git"].calls) == 1
        counted = opened.gateway.metrics.calls["git", "log"]
        assert (counted.calls, counted.errors) == (2, {"mcp_unavailable": 1})
