"""Keeps a server's own credentials out of what it says about its errors, and out of its last words.

Only what can be a credential is looked for, and results that are no errors pass as they came: a value that
merely looks like a word in them must not change data.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

import msgspec

from toolgate.model.servers import HttpEndpoint, StdioLaunch
from toolgate.redaction.random_words import random_spans
from toolgate.redaction.secret_names import looks_secret
from toolgate.upstream.connection.contract import RpcResponse, ServerInfo
from toolgate.upstream.connection.messages import is_tool_error
from toolgate.upstream.connection.secrets import NETWORK_ENVIRONMENT

_MASK: Final = b"[redacted]"
_MIN_LENGTH: Final = 8
"""Shorter ones are no credentials, and would be found inside other words."""


class Redactor:
    """Knows the credentials of one server."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = tuple(secrets)
        self._spellings = self._spell(self._secrets)

    def learn(self, *secrets: str) -> None:
        """Look for these too, in place of those learned before: tokens are renewed for ever."""
        self._spellings = self._spell((*self._secrets, *secrets))

    @staticmethod
    def _spell(secrets: Iterable[str]) -> list[bytes]:
        spellings = {form for secret in secrets if len(secret) >= _MIN_LENGTH for form in _spellings(secret)}
        # Longest first, so that no part of a long one is left over. Not one pattern: every answer is
        # searched, and searching bytes for bytes is a hundred times faster.
        return sorted(spellings, key=len, reverse=True)

    def text(self, text: str) -> str:
        """`text` without credentials."""
        return self.raw(text.encode()).decode()

    def hello(self, hello: ServerInfo) -> ServerInfo:
        """`hello` with instructions without credentials: they are shown to clients."""
        return replace(hello, instructions=self.text(hello.instructions)) if hello.instructions else hello

    def raw(self, raw: bytes) -> bytes:
        """`raw` without credentials."""
        for spelling in self._spellings:
            raw = raw.replace(spelling, _MASK)
        return raw

    def reply(self, reply: RpcResponse) -> RpcResponse:
        """`reply` as it is, unless it is an error of either kind that shows a credential."""
        if not self._spellings:
            return reply
        if reply.error is not None:
            return RpcResponse(error=self.raw(reply.error))
        return (
            RpcResponse(result=self.raw(reply.result or b"")) if is_tool_error(reply.members or {}) else reply
        )


def credentials_of_child(launch: StdioLaunch, env: Mapping[str, str]) -> list[str]:
    """What in the resolved environment of a child must not be shown: what was referred to, or is named so."""
    declared = {name: env[name] for name in (*launch.env, *launch.env_from)}
    named = [
        value
        for name, value in declared.items()
        if name in launch.env_from or value != launch.env[name] or _is_telling(name)
    ]
    texts = (*launch.args, *launch.env.values())
    random = (text[start:end] for text in texts for start, end in random_spans(text))
    urls = (url for name in NETWORK_ENVIRONMENT for url in re.split(r"[\s,]+", env.get(name, "")))
    return [*named, *random, *(part for url in urls if "@" in url for part in _credentials_in(url))]


def _credentials_in(url: str) -> list[str]:
    """`user:password@host`, and the password alone, as it is written and as it is meant."""
    userinfo, _, rest = url.rpartition("@")
    userinfo, host = userinfo.rpartition("//")[2], re.split(r"[/:?]", rest)[0]
    password = userinfo.partition(":")[2]
    return [f"{userinfo}@{host}", userinfo, password, unquote(password)]


def credentials_of(endpoint: HttpEndpoint, url: str, headers: Mapping[str, str]) -> list[str]:
    """What in the resolved `url` and `headers` of an endpoint must not be shown."""
    values = [
        value for name, value in headers.items() if value != endpoint.headers.get(name) or _is_telling(name)
    ]
    parts = urlsplit(url)
    is_resolved = url != endpoint.url
    values += [value for name, value in parse_qsl(parts.query) if is_resolved or _is_telling(name)]
    values += parts.path.split("/") if is_resolved else []
    # `Bearer abc` is also said as `abc`; a cookie as its value alone.
    return [part for value in values for part in {value, *re.split(r"[\s;=,]+", value)}]


def _is_telling(name: str) -> bool:
    # Wider than what records hide: here it costs no more than a word in an error.
    return looks_secret(name) or "key" in name.lower()


def _spellings(secret: str) -> set[bytes]:
    """As it is, and as JSON may write it."""
    escaped = msgspec.json.encode(secret)[1:-1]
    return {secret.encode(), escaped, escaped.replace(b"/", b"\\/")}
