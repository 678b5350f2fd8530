"""What goes wrong with a model's server, in the words of this gateway. No credential is in any of them."""

from typing import Any, Final

import msgspec

from toolgate.errors import ModelRefused, ModelTimedOut, ModelUnavailable
from toolgate.model.raw import decode_members
from toolgate.upstream.http.client_connection import Answer, ExchangeFailed, ExchangeTimedOut
from toolgate.upstream.http.connection_pool import ConnectFailed
from toolgate.upstream.http.egress import EgressRefused
from toolgate.upstream.http.responses import retry_after_s
from toolgate.upstream.models.endpoint import Outlet
from toolgate.upstream.models.streams import Inflow

EXCHANGE: Final = (ConnectFailed, ExchangeFailed, ExchangeTimedOut)
RETRYABLE: Final = (429, 502, 503, 504)
"""Answers of a server, or of what stands before it, that is busy or away for a moment."""
_MAX_QUOTED: Final = 500


class Passing(Exception):
    """A failure that may have passed in a moment. Nothing has come of the request."""

    def __init__(self, failure: ModelUnavailable | ModelRefused, *, asked_s: float = 0.0) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.asked_s = asked_s
        """How long the server asks to be left alone."""


def not_set_up(upstream_id: str) -> ModelUnavailable:
    """What is missing is for operators: the log says it."""
    return ModelUnavailable(
        f"chat upstream `{upstream_id}` cannot be asked: its record does not fit this node",
        hint="ask an operator: the log of the node says what is missing",
    )


def of_exchange(exc: Exception, outlet: Outlet, inflow: Inflow) -> ModelUnavailable | ModelTimedOut | Passing:
    """What one of EXCHANGE is to whoever asked."""
    if isinstance(exc, ConnectFailed):
        return _unreachable(outlet, exc)
    if isinstance(exc, ExchangeTimedOut):
        return _timed_out(outlet, inflow)
    reason = outlet.redactor.text(str(exc))
    return ModelUnavailable(
        f"chat upstream `{outlet.upstream_id}` at `{outlet.address}` gave no usable answer: {reason}"
    )


def _unreachable(outlet: Outlet, exc: ConnectFailed) -> ModelUnavailable | Passing:
    reason = outlet.redactor.text(str(exc))
    failure = ModelUnavailable(f"chat upstream `{outlet.upstream_id}` cannot be reached: {reason}")
    return failure if isinstance(exc.__cause__, EgressRefused) else Passing(failure)


def _timed_out(outlet: Outlet, inflow: Inflow) -> ModelTimedOut:
    said = f"said nothing for {inflow.silence_s:g} s"
    why = "was not done within the time of the request" if inflow.is_over else said
    return ModelTimedOut(f"chat upstream `{outlet.upstream_id}` at `{outlet.address}` {why}")


def rejected(outlet: Outlet, answer: Answer) -> ModelUnavailable | ModelRefused | Passing:
    """What an answer outside of 2xx is to whoever asked."""
    who = f"chat upstream `{outlet.upstream_id}` at `{outlet.address}`"
    if answer.status < 400:
        return ModelUnavailable(f"{who} answered with a redirect ({answer.status}), which is not followed")
    body = outlet.redactor.raw(bytes(answer.body)).decode(errors="replace")
    asked_s = retry_after_s(answer)
    data: dict[str, Any] = {"status": answer.status, "body": body}
    if asked_s is not None:
        data["retry_after"] = asked_s
    failure = ModelRefused(f"{who} answered with status {answer.status}{_quoted(body)}", data=data)
    return Passing(failure, asked_s=asked_s or 0.0) if answer.status in RETRYABLE else failure


def _quoted(body: str) -> str:
    """What OpenAI's errors, and those made like them, say for people."""
    try:
        error = decode_members(body.encode()).get("error", msgspec.Raw(b"null"))
        said = decode_members(error).get("message", error) if bytes(error).startswith(b"{") else error
        text = msgspec.json.decode(said, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return f": {text[:_MAX_QUOTED]}"
