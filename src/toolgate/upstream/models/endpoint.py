"""The connections to one chat upstream, the requests sent on them, and the errors of its server.

No error shows a credential, and no response shows the upstream's key to a caller.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import msgspec

from toolgate.errors import ModelRefused, ModelTimedOut, ModelUnavailable
from toolgate.model.json_text import decode_members
from toolgate.redaction.shapes import looks_secret
from toolgate.upstream.connection.messages import Redactor
from toolgate.upstream.http.client_connection import ExchangeFailed, ExchangeTimedOut, HttpResponse
from toolgate.upstream.http.connection_pool import ConnectFailed, HttpPool
from toolgate.upstream.http.egress import EgressRefused
from toolgate.upstream.http.endpoint import RequestHeads, ResolvedEndpoint, with_body, without_body
from toolgate.upstream.http.responses import retry_after_s
from toolgate.upstream.models.streams import EventIntake, ModelEvent

EXCHANGE_ERRORS: Final = (ConnectFailed, ExchangeFailed, ExchangeTimedOut)
RETRYABLE: Final = (429, 502, 503, 504)
"""Statuses of a server, or of a proxy in front of it, that is busy or away for a moment."""
_MIN_KEY_LENGTH: Final = 16
"""Shorter keys are placeholders (`lm-studio`, `ollama`): words in responses, which must not change."""
_MAX_QUOTED: Final = 500


class ModelEndpoint:
    """One upstream with its record and this node's secrets as they are now.

    It is retired when either changes.
    """

    def __init__(self, upstream_id: str, resolved: ResolvedEndpoint) -> None:
        """Raises StartFailed if a header cannot be sent."""
        self.upstream_id = upstream_id
        self.redactor = Redactor(resolved.credentials)
        """For error messages."""
        self._keys = Redactor(_find_keys(resolved))
        self._resolved = resolved
        self._heads = {"": RequestHeads(resolved.target, resolved.headers)}
        """By path; the gateway uses a few only."""
        self._users = 0
        self._is_retired = False

    @property
    def pool(self) -> HttpPool:
        return self._resolved.pool

    @property
    def description(self) -> str:
        """For error messages."""
        return f"chat upstream `{self.upstream_id}` at `{self._resolved.target.address}`"

    def is_current(self, url: str, headers: dict[str, str]) -> bool:
        """Whether it sends these, and not what they were before a change."""
        return self._resolved.url == url and self._resolved.headers == headers

    def encode_request(self, path: str, body: bytes | None) -> bytes:
        """A POST of `body`, or a GET without one."""
        heads = self._heads.get(path)
        if heads is None:
            base, mark, query = self._resolved.target.path.partition("?")
            target = replace(self._resolved.target, path=base.rstrip("/") + path + mark + query)
            heads = self._heads[path] = RequestHeads(target, self._resolved.headers)
        return without_body(heads.get()) if body is None else with_body(heads.initialize(), body)

    def redact_event(self, event: ModelEvent) -> ModelEvent:
        """`event` unchanged, unless it shows the upstream's key."""
        raw = self._keys.raw(event.raw)
        return event if raw is event.raw else ModelEvent(raw, event.data and self._keys.raw(event.data))

    def redact_body(self, body: bytes) -> bytes:
        return self._keys.raw(body)

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """A retired endpoint closes when its last user has left."""
        self._users += 1
        try:
            yield
        finally:
            self._users -= 1
            self._close_unused()

    def retire(self) -> None:
        """Close it as soon as the requests in flight have ended."""
        self._is_retired = True
        self._close_unused()

    def _close_unused(self) -> None:
        if self._is_retired and not self._users:
            self.pool.close()

    # Its errors

    def explain_exchange_error(
        self, exc: Exception, intake: EventIntake
    ) -> "ModelUnavailable | ModelTimedOut | TransientFailure":
        """What one of EXCHANGE_ERRORS means for the caller."""
        reason = self.redactor.text(str(exc))
        if isinstance(exc, ConnectFailed):
            failure = ModelUnavailable(f"chat upstream `{self.upstream_id}` cannot be reached: {reason}")
            return failure if isinstance(exc.__cause__, EgressRefused) else TransientFailure(failure)
        if isinstance(exc, ExchangeTimedOut):
            silent = f"sent nothing for {intake.silence_s:g} s"
            why = "was not done within the time of the request" if intake.is_over else silent
            return ModelTimedOut(f"{self.description} {why}")
        return ModelUnavailable(f"{self.description} gave no usable answer: {reason}")

    def explain_rejection(
        self, response: HttpResponse
    ) -> "ModelUnavailable | ModelRefused | TransientFailure":
        """What a status outside of 2xx means for the caller."""
        status = response.status
        if status < 400:
            return ModelUnavailable(
                f"{self.description} answered with a redirect ({status}), which is not followed"
            )
        body = self.redactor.raw(bytes(response.body)).decode(errors="replace")
        delay_s = retry_after_s(response)
        data: dict[str, Any] = {"status": status, "body": body}
        if delay_s is not None:
            data["retry_after"] = delay_s
        failure = ModelRefused(
            f"{self.description} answered with status {status}{_quote_error(body)}", data=data
        )
        return TransientFailure(failure, delay_s=delay_s or 0.0) if status in RETRYABLE else failure


class TransientFailure(Exception):
    """A failure that may pass in a moment. The request had no effect."""

    def __init__(self, failure: ModelUnavailable | ModelRefused, *, delay_s: float = 0.0) -> None:
        super().__init__(str(failure))
        self.failure = failure
        self.delay_s = delay_s
        """The delay that the server asks for."""


def _find_keys(resolved: ResolvedEndpoint) -> list[str]:
    """The values that are certainly keys, by their name and their length; they are redacted in responses."""
    values = [value for name, value in resolved.headers.items() if looks_secret(name)]
    words = [word for value in values for word in value.split()]
    return [word for word in words if len(word) >= _MIN_KEY_LENGTH]


def _quote_error(body: str) -> str:
    """The message in an error of OpenAI's, or one made like it."""
    try:
        error = decode_members(body.encode()).get("error", msgspec.Raw(b"null"))
        message = decode_members(error).get("message", error) if bytes(error).startswith(b"{") else error
        text = msgspec.json.decode(message, type=str)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return ""
    return f": {text[:_MAX_QUOTED]}"
