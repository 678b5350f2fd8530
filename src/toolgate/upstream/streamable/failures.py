"""What HTTP statuses and broken exchanges mean for a call, in the gateway's words."""

from http import HTTPStatus
from typing import Final

from toolgate.errors import ServerUnavailable
from toolgate.upstream.connection.contract import Reply
from toolgate.upstream.connection.messages import parse_error
from toolgate.upstream.http.client_connection import ExchangeFailed
from toolgate.upstream.http.responses import Rejected
from toolgate.upstream.oauth.challenges import parse_challenge
from toolgate.upstream.redaction import Redactor

_UNKNOWN_OUTCOME: Final = "the server may have acted on the call: see whether it did before you repeat it"
_HINTS: Final = {
    401: "give the server's record a valid `auth_ref`, `headers` or `oauth`",
    403: "give the server's record an `auth_ref`, `headers` or `oauth.scopes` that may do this",
    429: "the server asks to slow down: retry later, or lower its `budgets.max_concurrency`",
}
_MAX_QUOTED: Final = 200


def reply_to_rejected(rejected: Rejected, redactor: Redactor) -> Reply:
    """An error status is the answer only if its body answers our request; else the server failed."""
    if rejected.error is not None and rejected.is_ours:
        return redactor.reply(Reply(error=rejected.error))
    status = rejected.status
    message = parse_error(rejected.error).message
    said = f": {redactor.text(message)[:_MAX_QUOTED]}" if message else ""
    raise ServerUnavailable(
        f"the server answered with status {status} ({_phrase(status)}){said}",
        hint=_HINTS.get(status),
        data={"status": status, **_details(rejected)},
    ) from rejected


def _details(rejected: Rejected) -> dict[str, object]:
    """What somebody can act on."""
    details: dict[str, object] = {}
    if rejected.retry_after_s is not None:
        details["retry_after_s"] = rejected.retry_after_s
    if rejected.status == 403:
        challenge = parse_challenge(rejected.challenge.decode("latin-1"))
        if challenge.error == "insufficient_scope" and challenge.scopes:
            details["scopes"] = list(challenge.scopes)
    return details


def unknown_outcome(error: ExchangeFailed) -> ServerUnavailable:
    """The call was sent, and nobody knows what came of it."""
    return ServerUnavailable(f"{error}: unknown outcome", hint=_UNKNOWN_OUTCOME, data={"outcome": "unknown"})


def _phrase(status: int) -> str:
    if 300 <= status < 400:
        return "a redirect, which is not followed"
    try:
        return HTTPStatus(status).phrase.lower()
    except ValueError:
        return "unknown"
