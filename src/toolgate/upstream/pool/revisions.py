"""Chooses the protocol revision of a call at a server that supports both, before the call is sent.

Such a server runs the same tool in two ways. On a stateless connection (2026-07-28) a tool asks its client by
returning `input_required`; on a session-based one (up to 2025-11-25) by a request of its own. Most SDKs do
not translate between the two, and a list does not say which one a tool uses. So a call uses the revision of
its client, as it would without a gateway. A tool that turns out to need the other one gets it from its next
call on: the failed call is never sent again, because its tool may have done something before it asked.
"""

import logging
from typing import Final

from toolgate.model.json_text import UNREADABLE
from toolgate.model.tools import Revision
from toolgate.upstream.connection.contract import NO_CAPABILITIES, ClientChannel, Params, RpcResponse
from toolgate.upstream.connection.messages import parse_error

MAX_LEARNED: Final = 1_000
"""Tools, prompts and resources of one server to remember. A server has at most 2,000 tools."""
MAX_EXAMINED_BYTES: Final = 2_048
"""A longer result is not an SDK's complaint about the revision, which is one sentence."""

_NO_BACK_CHANNEL: Final = (b"erver-initiated requests", b"erver-to-client requests")
"""The error when a tool sends a request on a stateless connection: Python SDK 2.x and FastMCP 4.x ("no
back-channel for server-initiated requests"), TypeScript SDK 2.x ("Server-to-client requests are not
available")."""
_INVALID_RESULT: Final = "Handler returned an invalid result"
"""The error of the Python SDK 2.x when a tool returns `input_required` in a session. The TypeScript SDK
translates such a result itself."""
_ROUND_PARAMS: Final = ("inputResponses", "requestState")

_log: Final = logging.getLogger(__name__)


class RevisionChoice:
    """How calls to one server choose between its two connections."""

    __slots__ = ("_learned", "_server_id")

    def __init__(self, server_id: str) -> None:
        self._server_id = server_id
        self._learned: dict[tuple[str, bytes], Revision] = {}

    def needs_session(self, client: ClientChannel | None, method: str, params: Params) -> bool:
        """Whether a call belongs on the session-based connection."""
        if client is None or client.capabilities == NO_CAPABILITIES:
            return False  # it cannot be asked anything, so both connections will do
        if not client.has_session and any(name in params for name in _ROUND_PARAMS):
            return False  # the next round of what began on the stateless connection
        if self._learned:
            learned = self._learned.get(_identify_subject(method, params))
            if learned is not None:
                return learned == "legacy"
        return client.has_session

    def learn(self, method: str, params: Params, revision: Revision, response: RpcResponse) -> None:
        """Remember what a call needs if its response says that `revision` was wrong."""
        if response.size > MAX_EXAMINED_BYTES or not _is_wrong_revision(revision, response):
            return
        needed: Revision = "legacy" if revision == "modern" else "modern"
        if len(self._learned) < MAX_LEARNED:
            self._learned[_identify_subject(method, params)] = needed
            kind = "session-based" if needed == "legacy" else "stateless"
            _log.info(
                "server `%s`: a `%s` failed because it needs a %s connection; its next call uses one",
                self._server_id,
                method,
                kind,
            )

    def forget(self) -> None:
        """After a reconnect: the server may be another program now."""
        self._learned.clear()


def _identify_subject(method: str, params: Params) -> tuple[str, bytes]:
    """The name of a tool or prompt, or the URI of a resource."""
    return method, bytes(params.get("name") or params.get("uri") or b"")


def _is_wrong_revision(revision: Revision, response: RpcResponse) -> bool:
    if revision == "modern":
        text = response.error if response.error is not None else _read_tool_error(response)
        return any(words in text for words in _NO_BACK_CHANNEL)
    return response.error is not None and parse_error(response.error).message == _INVALID_RESULT


def _read_tool_error(response: RpcResponse) -> bytes:
    """The content of a tool's result that is an error; empty for any other result."""
    try:
        members = response.members or {}
    except UNREADABLE:
        return b""
    return bytes(members.get("content", b"")) if members.get("isError") == b"true" else b""
