"""A program that is told of calls that wait: signed, until it takes note, and what it decides."""

import asyncio
import hashlib
import hmac
import json
import logging
from dataclasses import replace
from typing import Any, ClassVar, Final

import pytest

from tests.contract.approval_samples import ASKED, question
from tests.contract.stores import Clock
from tests.memory_audit import MemorySink
from tests.registry.memory_store import MemoryApprovals
from tests.upstream.faulty_http import FaultyHttp, Peer, Request, Script
from toolgate.audit.events import ApprovalRecorded
from toolgate.audit.log.writer import AuditLog
from toolgate.errors import Conflict, NotFound, StorageUnavailable
from toolgate.govern.approvals import ApprovalWebhook, BodySigner, DecisionBody
from toolgate.model.approvals import CallApproval
from toolgate.registry.approvals import EXPIRES_MS, NOTICE_MS
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.fetch import MAX_DOCUMENT_BYTES, Fetcher

pytestmark = pytest.mark.anyio

SECRET: Final = "whsec-" + "s3cret" * 8
NOW_S: Final = 1_000


class Receiver:
    """The webhook of one process, over approvals that others may share."""

    def __init__(self, url: str, approvals: MemoryApprovals, clock: Clock, *, private: bool = True) -> None:
        self.sink = MemorySink()
        self.audit = AuditLog(self.sink)
        self.approvals = approvals
        self.webhook = ApprovalWebhook(
            url,
            BodySigner(SECRET, clock),
            approvals=approvals,
            audit=self.audit,
            fetcher=Fetcher(Egress(allow_private=private)),
            own_url=lambda: "https://gate.example",
        )

    @property
    def steps(self) -> list[tuple[str, str, str]]:
        self.audit.flush()
        events = [event for _, event in self.sink.events if isinstance(event, ApprovalRecorded)]
        return [(one.state, one.decided_by, one.reason) for one in events]


def answering(*responses: Any, status: int = 200) -> Script:
    """Answers each request with the next of these; the last goes on."""
    left = list(responses)

    async def respond(_request: Request, peer: Peer) -> None:
        body = left.pop(0) if len(left) > 1 else left[0]
        await peer.respond(body if isinstance(body, bytes) else json.dumps(body).encode(), status=status)

    return respond


def asked_at(clock: Clock) -> MemoryApprovals:
    return MemoryApprovals(clock)


async def known(approvals: MemoryApprovals, approval_id: str = "a") -> CallApproval:
    found = await approvals.get(approval_id)
    assert found is not None
    return found


async def test_a_receiver_gets_all_it_needs_under_the_gateways_signature() -> None:
    clock = Clock(NOW_S * 1000)
    approvals = asked_at(clock)
    await approvals.request(ASKED, new_id="a")
    async with FaultyHttp(answering(b"")) as server:
        notified = await Receiver(server.url, approvals, clock).webhook.notify_pending()
    (request,) = server.requests
    mac = hmac.new(SECRET.encode(), b"%d." % NOW_S + request.body, hashlib.sha256).hexdigest()

    assert notified == 1
    assert (request.method, request.headers["content-type"]) == ("POST", "application/json")
    assert request.headers["toolgate-signature"] == f"t={NOW_S},v1={mac}"
    assert request.message == {
        "event": "approval_asked",
        "approval_id": "a",
        "principal": "key:ada",
        "task_id": "support",
        "server_id": "files",
        "tool": "delete",
        "arguments": {"path": "/tmp/x"},
        "arguments_digest": "a" * 64,
        "why": "approval_policy default: always",
        "door": "mcp",
        "created_ms": NOW_S * 1000,
        "expires_ms": NOW_S * 1000 + EXPIRES_MS,
        "console_url": "https://gate.example/console/approvals/a",
        "decision_url": "https://gate.example/admin/api/approvals/a/decision",
    }
    assert SECRET not in repr(request)


@pytest.mark.requirement("002-044")
@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        ({"decision": "approved", "by": "bob", "reason": "ok"}, ("approved", "webhook:bob", "ok")),
        ({"decision": "denied", "reason": "no", "approval_id": "a"}, ("denied", "webhook", "no")),
    ],
    ids=["approved", "denied"],
)
async def test_a_receiver_may_decide_in_its_answer(decision: Any, expected: tuple[str, str, str]) -> None:
    clock = Clock()
    approvals = asked_at(clock)
    await approvals.request(ASKED, new_id="a")
    async with FaultyHttp(answering(decision)) as server:
        receiver = Receiver(server.url, approvals, clock)
        await receiver.webhook.notify_pending()
    after = await known(approvals)
    verdict = await approvals.request(ASKED, new_id="b")

    assert (after.state, after.decided_by, after.reason) == expected
    assert receiver.steps == [expected]
    assert verdict.outcome == ("granted" if decision["decision"] == "approved" else "denied")


@pytest.mark.parametrize(
    "response",
    [
        b"",
        b"thanks",
        b'{"ok": true}',
        b"[]",
        b"\xff",
        b"[" * 5_000,
        b'{"decision": "yes"}',
        b'{"decision": true}',
        b'{"decision": "approved", "reason": 7}',
        b'{"decision": "approved", "approval_id": "b"}',
        b'{"decision": "approved", "by": "a\\u202eb"}',
        b'{"decision": "approved", "by": "%b"}' % (b"x" * 101),
        b'{"decision": "approved", "reason": "%b"}' % (b"x" * 501),
        b'{"decision": "approved", "Decision": "denied"}',
    ],
    ids=range(14),
)
async def test_a_response_without_a_decision_acknowledges_the_notification(response: bytes) -> None:
    clock = Clock()
    approvals = asked_at(clock)
    await approvals.request(ASKED, new_id="a")
    async with FaultyHttp(answering(response)) as server:
        receiver = Receiver(server.url, approvals, clock)
        await receiver.webhook.notify_pending()
        clock.now_ms += NOTICE_MS
        await receiver.webhook.notify_pending()

    assert (await known(approvals)).state == "pending"
    assert len(server.requests) == 1


async def redirect(_request: Request, peer: Peer) -> None:
    await peer.respond(b'{"decision": "approved"}', status=307, headers=["Location: /elsewhere"])


async def hang_up(_request: Request, peer: Peer) -> None:
    peer.close()


@pytest.mark.parametrize(
    "script",
    [
        redirect,
        hang_up,
        answering({"decision": "approved"}, status=500),
        answering({"decision": "approved"}, status=404),
        answering(b" " * (MAX_DOCUMENT_BYTES + 1)),
    ],
    ids=["redirect", "hung up", "failed", "not there", "too much"],
)
async def test_a_receiver_that_fails_decides_nothing_and_is_notified_again(
    script: Script, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    approvals = asked_at(clock)
    await approvals.request(ASKED, new_id="a")
    async with FaultyHttp(script) as server:
        receiver = Receiver(f"{server.url}?token=canary", approvals, clock)
        with caplog.at_level(logging.DEBUG):
            notified = [await receiver.webhook.notify_pending()]
            notified.append(await receiver.webhook.notify_pending())
            clock.now_ms += NOTICE_MS
            notified.append(await receiver.webhook.notify_pending())

    assert notified == [1, 0, 1]
    assert (await known(approvals)).state == "pending"
    assert [one.levelname for one in caplog.records if "webhook" in one.message] == ["WARNING"]
    assert SECRET not in caplog.text
    assert "canary" not in caplog.text


async def test_egress_rules_hold_for_the_receiver() -> None:
    clock = Clock()
    approvals = asked_at(clock)
    await approvals.request(ASKED, new_id="a")
    async with FaultyHttp(answering({"decision": "approved"})) as server:
        await Receiver(server.url, approvals, clock, private=False).webhook.notify_pending()
        await Receiver("http://192.0.2.1/", approvals, clock).webhook.notify_pending()

    assert server.requests == []
    assert (await known(approvals)).state == "pending"


async def test_of_several_replicas_one_tells_of_a_question_and_another_if_that_one_ends() -> None:
    clock = Clock()
    approvals = asked_at(clock)
    for number in range(3):
        await approvals.request(question(tool=f"t{number}"), new_id=f"a{number}")
    never = asyncio.Event()

    async def hang(_request: Request, _peer: Peer) -> None:
        await never.wait()

    async with FaultyHttp(answering(b"")) as server, FaultyHttp(hang) as silent:
        dying = asyncio.create_task(Receiver(silent.url, approvals, clock).webhook.notify_pending())
        async with asyncio.timeout(60):
            while len(silent.requests) < 3:
                await asyncio.sleep(0)
        others = [Receiver(server.url, approvals, clock) for _ in range(2)]
        at_once = [await one.webhook.notify_pending() for one in others]
        dying.cancel()
        await asyncio.wait([dying])
        clock.now_ms += NOTICE_MS
        after = await asyncio.gather(*(one.webhook.notify_pending() for one in others))
        never.set()

    assert at_once == [0, 0]
    assert sum(after) == 3
    assert sorted(one.message["approval_id"] for one in server.requests) == ["a0", "a1", "a2"]


async def test_who_runs_it_tells_of_what_is_asked_while_it_runs_and_goes_on_after_failures() -> None:
    clock = Clock()

    class Flaky(MemoryApprovals):
        failures: ClassVar = [ValueError("no one thought of this"), StorageUnavailable("for a moment")]

        async def claim_notices(self, *, limit: int) -> Any:
            if self.failures:
                raise self.failures.pop()
            return await super().claim_notices(limit=limit)

    approvals = Flaky(clock)
    arrived = asyncio.Event()

    async def note(_request: Request, peer: Peer) -> None:
        arrived.set()
        await peer.respond(b"")

    async with FaultyHttp(note) as server:
        running = asyncio.create_task(Receiver(server.url, approvals, clock).webhook.run())
        await approvals.request(ASKED, new_id="a")
        async with asyncio.timeout(60):
            await arrived.wait()
        running.cancel()
        await asyncio.wait([running])

    assert [one.message["approval_id"] for one in server.requests] == ["a"]


async def test_a_decision_that_comes_too_late_changes_nothing() -> None:
    clock = Clock()
    approvals = asked_at(clock)
    await approvals.request(ASKED, new_id="a")

    async def late(_request: Request, peer: Peer) -> None:
        await approvals.decide("a", is_approved=False, by="key:bob", reason="no")
        await peer.respond(b'{"decision": "approved"}')

    async with FaultyHttp(late) as server:
        receiver = Receiver(server.url, approvals, clock)
        await receiver.webhook.notify_pending()
        with pytest.raises(Conflict):
            await receiver.webhook.decide("a", DecisionBody(decision="approved"))
        with pytest.raises(NotFound):
            await receiver.webhook.decide("b", DecisionBody(decision="approved"))

    assert (await known(approvals)).decided_by == "key:bob"
    assert receiver.steps == []


@pytest.mark.parametrize(
    ("signature", "after_s", "expected"),
    [
        ("{good}", 0, True),
        ("{good}", 300, True),
        ("{good}", -300, True),
        ("{good}", 301, False),
        ("{good}", -301, False),
        ("{good},v1=" + "0" * 64, 0, False),
        (" {good}", 0, False),
        ("t=1000,v1=" + "0" * 64, 0, False),
        ("v1=" + "0" * 64, 0, False),
        ("", 0, False),
        (None, 0, False),
    ],
)
def test_a_signature_is_good_for_its_body_and_for_five_minutes(
    signature: str | None, after_s: int, expected: bool
) -> None:
    clock = Clock(NOW_S * 1000)
    signer = BodySigner(SECRET, clock)
    good = signer.sign(b'{"a":1}')
    clock.now_ms += after_s * 1000
    sent = None if signature is None else signature.format(good=good)

    assert signer.is_signed(b'{"a":1}', sent) is expected
    assert not signer.is_signed(b'{"a":2}', sent)
    assert not BodySigner(SECRET[:-1], clock).is_signed(b'{"a":1}', sent)


async def test_arguments_are_sent_as_people_see_them() -> None:
    clock = Clock()
    approvals = asked_at(clock)
    await approvals.request(replace(ASKED, arguments=b'{"password":"***","n":1.10}', task_id=""), new_id="a")
    async with FaultyHttp(answering(b"")) as server:
        await Receiver(server.url, approvals, clock).webhook.notify_pending()
    (request,) = server.requests

    assert b'"arguments":{"password":"***","n":1.10}' in request.body
    assert request.message["task_id"] is None
