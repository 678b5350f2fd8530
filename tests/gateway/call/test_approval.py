"""The gate in front of calls that a person must agree to: what passes, and what callers are told."""

import msgspec
import pytest

from tests.contract.stores import Clock
from tests.memory_audit import MemorySink
from tests.registry.memory_store import MemoryApprovals
from toolgate.audit.events import ApprovalRecorded
from toolgate.audit.log.writer import AuditLog
from toolgate.errors import (
    ApprovalDenied,
    ApprovalRequired,
    ControlUnavailable,
    InvalidArguments,
    ServerBusy,
    ServerUnavailable,
    StorageFailed,
    ToolgateError,
)
from toolgate.gateway.call import CallContext, Denial
from toolgate.gateway.call.approval import ApprovalStage
from toolgate.gateway.scope.caller import Caller, Trace
from toolgate.gateway.scope.routes import Route
from toolgate.gateway.scope.view import View, ViewSettings
from toolgate.model.approvals import ApprovalRequest
from toolgate.model.names import ToolRef
from toolgate.model.principals import Principal
from toolgate.model.tools import Snapshot
from toolgate.policy.scope import ApprovalRequirement, Decision, Scope
from toolgate.registry.approvals import EXPIRES_MS, ApprovalLimits, ApprovalService, ApprovalVerdict
from toolgate.upstream.connection.contract import Params

pytestmark = pytest.mark.anyio

ADA = Caller(Principal(id="key:ada", role="agent"), "support")
ROUTE = Route(
    server_id="files",
    name="delete",
    upstream_name=msgspec.Raw(b'"delete"'),
    layer="platform",
    rule="allowed_tools `*`",
    label="delete",
    digest="d" * 64,
    approval=ApprovalRequirement("platform", "approval_policy default: always"),
)


def a_call(params: Params, caller: Caller = ADA) -> CallContext:
    def decide(_ref: ToolRef) -> Decision:
        raise AssertionError

    settings = ViewSettings(page_size=10, decide=decide, on_growth=lambda _view, _bytes: None)
    view = View(caller, Scope(), Snapshot(), settings)
    return CallContext(view, ROUTE, "tools/call", params, Trace("mcp", "s1", "7"))


class Gate:
    """A gate over approvals in memory, and what it wrote down."""

    def __init__(self, service: ApprovalService | None = None, *, console_url: str = "") -> None:
        self.sink = MemorySink()
        self._audit = AuditLog(self.sink)
        self.clock = Clock()
        self.approvals = MemoryApprovals(self.clock)
        self._stage = ApprovalStage(self._audit, service or self.approvals, console_url=console_url)

    async def call(self, arguments: bytes = b'{"path":"/tmp/x"}', *, caller: Caller = ADA) -> None:
        admitted = await self._stage.admit(a_call({"arguments": msgspec.Raw(arguments)}, caller))
        if isinstance(admitted, Denial):
            raise admitted.error

    async def refused(self, arguments: bytes = b'{"path":"/tmp/x"}') -> ToolgateError:
        with pytest.raises(ToolgateError) as refused:
            await self.call(arguments)
        return refused.value

    @property
    def steps(self) -> list[tuple[str, str]]:
        self._audit.flush()
        events = [event for _, event in self.sink.events]
        return [(one.approval_id, one.state) for one in events if isinstance(one, ApprovalRecorded)]


async def test_the_error_says_what_waits_where_and_until_when() -> None:
    gate = Gate(console_url="https://gate.example")
    refused = await gate.refused()
    (waiting,) = await gate.approvals.list()
    url = f"https://gate.example/console/approvals/{waiting.approval_id}"

    assert isinstance(refused, ApprovalRequired)
    assert refused.data == {
        "approval_id": waiting.approval_id,
        "expires_at_ms": gate.clock.now_ms + EXPIRES_MS,
        "url": url,
    }
    assert f"`toolgate approvals approve {waiting.approval_id}`" in refused.hint
    assert f"`{url}`" in refused.hint
    assert waiting.question == ApprovalRequest(
        principal="key:ada",
        task_id="support",
        server_id="files",
        tool="delete",
        arguments_digest=waiting.question.arguments_digest,
        definition="d" * 64,
        arguments=b'{"path":"/tmp/x"}',
        why="approval_policy default: always",
        session="s1",
        door="mcp",
    )


async def test_where_control_is_elsewhere_the_page_is_there() -> None:
    class Elsewhere(MemoryApprovals):
        async def request(self, question: ApprovalRequest, *, new_id: str) -> ApprovalVerdict:
            verdict = await super().request(question, new_id=new_id)
            return verdict._replace(console_url="https://control.example")

    refused = await Gate(Elsewhere(Clock())).refused()

    assert refused.data["url"].startswith("https://control.example/console/approvals/")


async def test_what_is_approved_passes_once_and_with_nothing_changed() -> None:
    gate = Gate()
    approval_id = (await gate.refused()).data["approval_id"]
    await gate.approvals.decide(approval_id, is_approved=True, by="key:bob", reason="")
    other = (await gate.refused(b'{"path":"/tmp/y"}')).data["approval_id"]
    await gate.call(b'{ "path" : "/tmp/x" }')
    again = (await gate.refused()).data["approval_id"]

    assert len({approval_id, other, again}) == 3
    assert gate.steps == [
        (approval_id, "asked"),
        (other, "asked"),
        (approval_id, "used"),
        (again, "asked"),
    ]


async def test_a_question_that_waits_is_on_record_once() -> None:
    gate = Gate()
    ids = {(await gate.refused()).data["approval_id"] for _ in range(3)}

    assert [step for _, step in gate.steps] == ["asked"]
    assert len(ids) == 1


async def test_a_denial_has_its_reason() -> None:
    gate = Gate()
    approval_id = (await gate.refused()).data["approval_id"]
    await gate.approvals.decide(approval_id, is_approved=False, by="key:bob", reason="not on fridays")
    denied = await gate.refused()

    assert isinstance(denied, ApprovalDenied)
    assert str(denied) == "an approver denied this call of `files.delete`: not on fridays"
    assert denied.data == {"approval_id": approval_id, "reason": "not on fridays"}
    assert isinstance(await gate.refused(), ApprovalRequired)


async def test_too_many_requests_are_refused() -> None:
    gate = Gate(MemoryApprovals(Clock(), ApprovalLimits(max_pending_each=1)))
    await gate.refused()
    refused = await gate.refused(b"{}")

    assert isinstance(refused, ServerBusy)
    assert refused.retryable


@pytest.mark.parametrize("failure", [ControlUnavailable("x"), StorageFailed("x"), InvalidArguments("x")])
async def test_without_a_verdict_nothing_passes(failure: ToolgateError) -> None:
    class Broken(MemoryApprovals):
        async def request(self, question: ApprovalRequest, *, new_id: str) -> ApprovalVerdict:
            raise failure

    refused = await Gate(Broken(Clock())).refused()

    assert isinstance(refused, ServerUnavailable)


async def test_a_process_without_an_approval_service_lets_nothing_pass() -> None:
    with pytest.raises(ServerUnavailable):
        await ApprovalStage(AuditLog(MemorySink()), None).admit(a_call({}))


async def test_no_one_is_asked_about_invalid_arguments() -> None:
    gate = Gate()

    assert isinstance(await gate.refused(b'{"a":1,"a":2}'), InvalidArguments)
    assert await gate.approvals.list() == []
