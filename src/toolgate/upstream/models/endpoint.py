"""The connections to one chat upstream, what is sent with every request, and what of it is never shown.

What goes wrong with a model's server, in the words of this gateway. No credential is in any of them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import msgspec

from toolgate.errors import ModelRefused, ModelTimedOut, ModelUnavailable
from toolgate.model.chat import ChatUpstream
from toolgate.model.json_text import decode_members
from toolgate.model.servers import HttpEndpoint
from toolgate.redaction.secret_names import looks_secret
from toolgate.upstream.http.client_connection import ExchangeFailed, ExchangeTimedOut, HttpResponse
from toolgate.upstream.http.connection_pool import ConnectFailed, HttpPool
from toolgate.upstream.http.egress import EgressRefused
from toolgate.upstream.http.endpoint import RequestHeads, ResolvedEndpoint, with_body, without_body
from toolgate.upstream.http.responses import retry_after_s
from toolgate.upstream.models.streams import EventIntake, ModelEvent
from toolgate.upstream.redaction import Redactor

_MIN_KEY_LENGTH: Final = 16
"""Shorter keys are placeholders (`lm-studio`, `ollama`), and words of answers that must not change."""


class ModelEndpoint:
    """One upstream as its record and this node's secrets are now. It is retired when either changes."""

    def __init__(self, upstream_id: str, reached: ResolvedEndpoint) -> None:
        """Raises StartFailed where a header cannot be sent."""
        self.upstream_id = upstream_id
        self.redactor = Redactor(reached.credentials)
        """For whatever is said of errors."""
        self._keys = Redactor(_keys(reached))
        self._reached = reached
        self._heads = {"": RequestHeads(reached.target, reached.headers)}
        """By path; there are as many as this gateway knows."""
        self._users = 0
        self._is_retired = False

    @property
    def pool(self) -> HttpPool:
        return self._reached.pool

    @property
    def address(self) -> str:
        """For people: host and port."""
        return self._reached.target.address

    def is_for(self, url: str, headers: dict[str, str]) -> bool:
        """Whether it shows these, and not what they were before."""
        return self._reached.url == url and self._reached.headers == headers

    def post(self, path: str, body: bytes) -> bytes:
        """A whole request."""
        return with_body(self._at(path).initialize(), body)

    def get(self, path: str) -> bytes:
        return without_body(self._at(path).get())

    def _at(self, path: str) -> RequestHeads:
        if path not in self._heads:
            base, mark, query = self._reached.target.path.partition("?")
            target = replace(self._reached.target, path=base.rstrip("/") + path + mark + query)
            self._heads[path] = RequestHeads(target, self._reached.headers)
        return self._heads[path]

    def hide(self, event: ModelEvent) -> ModelEvent:
        """`event` as it is, unless it shows a key of ours."""
        raw = self._keys.raw(event.raw)
        return event if raw is event.raw else ModelEvent(raw, event.data and self._keys.raw(event.data))

    def hide_in(self, body: bytes) -> bytes:
        return self._keys.raw(body)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Retiring waits until nobody uses it any more."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self._close_unused()

    def retire(self) -> None:
        """Close it as soon as what is under way has ended."""
        self._is_retired = True
        self._close_unused()

    def close(self) -> None:
        """Close it now."""
        self.pool.close()

    def _close_unused(self) -> None:
        if self._is_retired and not self._users:
            self.pool.close()


def endpoint_of(upstream: ChatUpstream) -> HttpEndpoint:
    return HttpEndpoint(url=upstream.base_url, headers=upstream.headers, auth_ref=upstream.auth_ref)


def _keys(reached: ResolvedEndpoint) -> list[str]:
    """What is looked for in answers as well: what surely is a key, by its name and its length."""
    values = [value for name, value in reached.headers.items() if looks_secret(name)]
    words = [word for value in values for word in value.split()]
    return [word for word in words if len(word) >= _MIN_KEY_LENGTH]


EXCHANGE_ERRORS: Final = (ConnectFailed, ExchangeFailed, ExchangeTimedOut)
RETRYABLE: Final = (429, 502, 503, 504)
"""Answers of a server, or of what stands before it, that is busy or away for a moment."""
_MAX_QUOTED: Final = 500


class TransientFailure(Exception):
    """A failure that may have passed in a moment. Nothing has come of the request."""

    def __init__(self, failure: ModelUnavailable | ModelRefused, *, asked_s: float = 0.0) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.asked_s = asked_s
        """How long the server asks to be left alone."""


def explain_setup_error(upstream_id: str) -> ModelUnavailable:
    """What is missing is for operators: the log says it."""
    return ModelUnavailable(
        f"chat upstream `{upstream_id}` cannot be asked: its record does not fit this node",
        hint="ask an operator: the log of the node says what is missing",
    )


def explain_exchange_error(
    exc: Exception, outlet: ModelEndpoint, inflow: EventIntake
) -> ModelUnavailable | ModelTimedOut | TransientFailure:
    """What one of EXCHANGE is to whoever asked."""
    if isinstance(exc, ConnectFailed):
        return _unreachable(outlet, exc)
    if isinstance(exc, ExchangeTimedOut):
        return _timed_out(outlet, inflow)
    reason = outlet.redactor.text(str(exc))
    return ModelUnavailable(
        f"chat upstream `{outlet.upstream_id}` at `{outlet.address}` gave no usable answer: {reason}"
    )


def _unreachable(outlet: ModelEndpoint, exc: ConnectFailed) -> ModelUnavailable | TransientFailure:
    reason = outlet.redactor.text(str(exc))
    failure = ModelUnavailable(f"chat upstream `{outlet.upstream_id}` cannot be reached: {reason}")
    return failure if isinstance(exc.__cause__, EgressRefused) else TransientFailure(failure)


def _timed_out(outlet: ModelEndpoint, inflow: EventIntake) -> ModelTimedOut:
    said = f"said nothing for {inflow.silence_s:g} s"
    why = "was not done within the time of the request" if inflow.is_over else said
    return ModelTimedOut(f"chat upstream `{outlet.upstream_id}` at `{outlet.address}` {why}")


def explain_rejection(
    outlet: ModelEndpoint, answer: HttpResponse
) -> ModelUnavailable | ModelRefused | TransientFailure:
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
    return TransientFailure(failure, asked_s=asked_s or 0.0) if answer.status in RETRYABLE else failure


def _quoted(body: str) -> str:
    """What OpenAI's errors, and those made like them, say for people."""
    try:
        error = decode_members(body.encode()).get("error", msgspec.Raw(b"null"))
        said = decode_members(error).get("message", error) if bytes(error).startswith(b"{") else error
        text = msgspec.json.decode(said, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return f": {text[:_MAX_QUOTED]}"
