"""The connections to one chat upstream, what is sent with every request, and what of it is never shown."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from toolgate.model.chat import ChatUpstream
from toolgate.model.servers import HttpEndpoint
from toolgate.redaction.secret_names import looks_secret
from toolgate.upstream.http.connection_pool import HttpPool
from toolgate.upstream.http.endpoint import Heads, with_body, without_body
from toolgate.upstream.models.events import ModelEvent
from toolgate.upstream.reach import Reached
from toolgate.upstream.redaction import Redactor

_MIN_KEY_LENGTH: Final = 16
"""Shorter keys are placeholders (`lm-studio`, `ollama`), and words of answers that must not change."""


class Outlet:
    """One upstream as its record and this node's secrets are now. It is retired when either changes."""

    def __init__(self, upstream_id: str, reached: Reached) -> None:
        """Raises StartFailed where a header cannot be sent."""
        self.upstream_id = upstream_id
        self.redactor = Redactor(reached.credentials)
        """For whatever is said of errors."""
        self._keys = Redactor(_keys(reached))
        self._reached = reached
        self._heads = {"": Heads(reached.target, reached.headers)}
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

    def _at(self, path: str) -> Heads:
        if path not in self._heads:
            base, mark, query = self._reached.target.path.partition("?")
            target = replace(self._reached.target, path=base.rstrip("/") + path + mark + query)
            self._heads[path] = Heads(target, self._reached.headers)
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


def _keys(reached: Reached) -> list[str]:
    """What is looked for in answers as well: what surely is a key, by its name and its length."""
    values = [value for name, value in reached.headers.items() if looks_secret(name)]
    words = [word for value in values for word in value.split()]
    return [word for word in words if len(word) >= _MIN_KEY_LENGTH]
