"""The protocol revision that a server's responses show."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from toolgate.errors import CallTimedOut, ServerUnavailable
from toolgate.model.tools import Revision
from toolgate.upstream.connection.contract import Params, RpcResponse, ServerInfo, StartFailed
from toolgate.upstream.connection.negotiation import negotiate

pytestmark = pytest.mark.anyio

MODERN = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}, "instructions": "hi"}
LEGACY = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "serverInfo": {"name": "s"},
    "instructions": None,
}
UNKNOWN = {"code": -32601, "message": "method not found"}


def unsupported(*versions: str) -> dict[str, Any]:
    return {"code": -32022, "message": "unsupported", "data": {"supported": versions, "requested": "x"}}


def result(value: Any) -> RpcResponse:
    return RpcResponse(result=json.dumps(value).encode())


def error(value: Any) -> RpcResponse:
    return RpcResponse(error=json.dumps(value).encode())


class Server:
    """Responds to `server/discover` and `initialize` as scripted; the last response stays. None: silence."""

    def __init__(self, discover: list[RpcResponse | None], initialize: list[RpcResponse | None]) -> None:
        self._responses = {"server/discover": discover, "initialize": initialize}
        self.received: list[str] = []
        self.late: asyncio.Future[RpcResponse] = asyncio.get_running_loop().create_future()
        """The late response to a request that met silence."""
        self.on_initialize: Callable[[], None] = lambda: None

    async def request(self, method: str, params: Params, timeout_s: float) -> RpcResponse:
        self.received.append(method)
        if method == "initialize":
            self.on_initialize()
        responses = self._responses[method]
        response = responses.pop(0) if len(responses) > 1 else responses[0]
        return await asyncio.shield(self.late) if response is None else response

    async def notify(self, method: str, params: Params) -> None:
        self.received.append(method)

    async def meet(self, known_revision: Revision | None = None) -> str:
        async with asyncio.timeout(60):
            info = await negotiate(
                self.request, self.notify, known_revision=known_revision, probe_timeout_s=0.01
            )
            return info.revision


PROBED = ["server/discover"]
GREETED = ["initialize", "notifications/initialized"]


@pytest.mark.parametrize(
    ("discover", "initialize", "expected", "received"),
    [
        pytest.param(result(MODERN), error(UNKNOWN), "modern", PROBED, id="modern"),
        pytest.param(error(UNKNOWN), result(LEGACY), "legacy", PROBED + GREETED, id="method unknown"),
        pytest.param(
            error({"code": -32602, "message": "x"}),
            result(LEGACY),
            "legacy",
            PROBED + GREETED,
            id="any error",
        ),
        pytest.param(RpcResponse(error=b"[]"), result(LEGACY), "legacy", PROBED + GREETED, id="an odd error"),
        pytest.param(
            error(unsupported("2025-11-25")),
            result(LEGACY),
            "legacy",
            PROBED + GREETED,
            id="refuses our version",
        ),
        pytest.param(
            result({**MODERN, "supportedVersions": ["2025-11-25"]}),
            result(LEGACY),
            "legacy",
            PROBED + GREETED,
            id="discovers, but lists legacy versions only",
        ),
        pytest.param(
            result({"tools": []}),
            result(LEGACY),
            "legacy",
            PROBED + GREETED,
            id="responds with something else",
        ),
        pytest.param(
            RpcResponse(result=b"[" * 100_000),
            result(LEGACY),
            "legacy",
            PROBED + GREETED,
            id="responds with deep nesting",
        ),
        pytest.param(None, result(LEGACY), "legacy", PROBED + GREETED, id="silent on discover"),
    ],
)
async def test_the_probe_decides(
    discover: RpcResponse | None, initialize: RpcResponse, expected: Revision, received: list[str]
) -> None:
    server = Server([discover], [initialize])

    assert (await server.meet(), server.received) == (expected, received)


async def test_a_server_that_rejects_a_version_it_lists_is_probed_once_more() -> None:
    patient = Server([error(unsupported("2026-07-28")), result(MODERN)], [error(UNKNOWN)])
    stubborn = Server([error(unsupported("2026-07-28"))], [result(LEGACY)])

    assert (await patient.meet(), patient.received) == ("modern", PROBED * 2)
    assert (await stubborn.meet(), stubborn.received) == ("legacy", PROBED * 2 + GREETED)


async def test_what_a_modern_server_says_of_itself_is_kept() -> None:
    server = Server([result(MODERN)], [error(UNKNOWN)])
    info = await negotiate(server.request, server.notify)

    assert info == ServerInfo(
        revision="modern",
        version="2026-07-28",
        capabilities=info.capabilities,
        instructions="hi",
    )
    assert {name: msgspec.json.decode(raw) for name, raw in info.capabilities.items()} == {"tools": {}}


async def test_what_a_legacy_server_says_of_itself_is_kept() -> None:
    server = Server([error(UNKNOWN)], [result(LEGACY)])

    assert await negotiate(server.request, server.notify) == ServerInfo(
        revision="legacy",
        version="2025-06-18",
        capabilities={},
        instructions="",
    )


async def test_a_late_stateless_response_beats_the_handshake_that_was_sent_meanwhile() -> None:
    server = Server([None], [None])
    server.on_initialize = lambda: server.late.set_result(result(MODERN))

    assert (await server.meet(), server.received) == ("modern", ["server/discover", "initialize"])


async def test_a_late_rejection_of_the_probe_lets_the_handshake_continue() -> None:
    server = Server([None], [result(LEGACY)])
    server.on_initialize = lambda: server.late.set_result(error(UNKNOWN))

    assert (await server.meet(), server.received) == ("legacy", PROBED + GREETED)


async def test_a_handshake_rejected_before_a_late_stateless_response_waits_for_it() -> None:
    server = Server([None], [error(unsupported("2026-07-28"))])
    asyncio.get_running_loop().call_later(0.1, lambda: server.late.set_result(result(MODERN)))

    assert (await server.meet(), server.received) == ("modern", ["server/discover", "initialize"])


async def test_a_known_legacy_server_is_not_probed() -> None:
    server = Server([result(MODERN)], [result(LEGACY)])

    assert (await server.meet("legacy"), server.received) == ("legacy", GREETED)


@pytest.mark.parametrize("refusal", [unsupported("2026-07-28"), UNKNOWN])
async def test_a_known_session_based_server_that_rejects_the_handshake_is_probed(
    refusal: dict[str, Any],
) -> None:
    server = Server([result(MODERN)], [error(refusal)])

    assert (await server.meet("legacy"), server.received) == ("modern", ["initialize", "server/discover"])


async def test_a_rejected_probe_is_repeated_if_the_handshake_names_our_stateless_version() -> None:
    server = Server([error(UNKNOWN), result(MODERN)], [error(unsupported("2026-07-28"))])

    assert (await server.meet(), server.received) == (
        "modern",
        ["server/discover", "initialize", "server/discover"],
    )


@pytest.mark.parametrize(
    ("discover", "initialize", "message"),
    [
        (error(UNKNOWN), error({"code": 1, "message": "not today"}), "it rejected `initialize`: not today"),
        (error(UNKNOWN), error({"code": 5}), "it rejected `initialize`: 5"),
        (error(UNKNOWN), result([]), "its response to `initialize` is not an initialize result"),
        (
            error(UNKNOWN),
            result({"protocolVersion": "2031-01-01"}),
            "it speaks `2031-01-01`, and this gateway does not",
        ),
        (
            error(UNKNOWN),
            result({"protocolVersion": "2026-07-28"}),
            "it speaks `2026-07-28`, and this gateway does not",
        ),
        (
            error(unsupported("2030-01-01", "2031-01-01")),
            result(LEGACY),
            "it speaks `2030-01-01`, `2031-01-01`, and this gateway does not",
        ),
        (
            result({**MODERN, "supportedVersions": []}),
            result(LEGACY),
            "it speaks no protocol version, and this gateway does not",
        ),
    ],
)
async def test_a_server_of_a_foreign_revision_is_rejected_with_the_reason(
    discover: RpcResponse, initialize: RpcResponse, message: str
) -> None:
    with pytest.raises(StartFailed) as caught:
        await Server([discover], [initialize]).meet()

    assert str(caught.value) == message


@pytest.mark.parametrize("failure", [ServerUnavailable("gone"), CallTimedOut("late")])
@pytest.mark.parametrize("known_revision", [None, "legacy", "modern"])
async def test_a_connection_that_fails_is_no_verdict(
    failure: Exception, known_revision: Revision | None
) -> None:
    async def request(method: str, params: Params, timeout_s: float) -> RpcResponse:
        raise failure

    with pytest.raises(type(failure)):
        await negotiate(request, Server([], []).notify, known_revision=known_revision)


async def test_a_connection_that_fails_while_both_questions_are_open_is_no_verdict() -> None:
    server = Server([None], [None])
    server.on_initialize = lambda: server.late.set_exception(ServerUnavailable("gone"))

    with pytest.raises(ServerUnavailable):
        await server.meet()


async def test_a_cancelled_negotiation_leaves_no_question_open() -> None:
    server = Server([None], [None])
    before = asyncio.all_tasks()
    meeting = asyncio.ensure_future(server.meet())
    asked = asyncio.Event()
    server.on_initialize = asked.set
    await asked.wait()
    meeting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await meeting

    assert asyncio.all_tasks() == before
