"""Keeps the credentials that one server was started or reached with out of what it sends.

Only values that can be a credential are searched for. Callers apply the mask to errors and messages, not to
results: a value that merely looks like a word in a result must not change data.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from toolgate.model.servers import HttpEndpoint, StdioLaunch
from toolgate.redaction.random_words import random_spans
from toolgate.redaction.shapes import looks_secret, percent_decode

_CREDENTIAL_MASK: Final = b"[redacted]"
"""Not `***`: it is inserted into sentences and JSON of servers, where that could be a part of their own
text."""
_MIN_LENGTH: Final = 8  # shorter values are no credentials, and would occur inside other words
# Scheme and authority, path, query.
_URL: Final = re.compile(r"(?:[^:/?#]+:)?(?://[^/?#]*)?(?P<path>[^?#]*)(?:\?(?P<query>[^#]*))?")


class CredentialMask:
    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = tuple(secrets)
        self._spellings = _spell_all(self._secrets)

    @property
    def is_empty(self) -> bool:
        return not self._spellings

    def learn(self, *secrets: str) -> None:
        """Mask these too, and no longer those learned before: tokens are renewed."""
        self._spellings = _spell_all((*self._secrets, *secrets))

    def text(self, text: str) -> str:
        return self.raw(text.encode()).decode()

    def raw(self, raw: bytes) -> bytes:
        for spelling in self._spellings:
            raw = raw.replace(spelling, _CREDENTIAL_MASK)
        return raw


def _spell_all(secrets: Iterable[str]) -> list[bytes]:
    spellings = {form for secret in secrets if len(secret) >= _MIN_LENGTH for form in _spell(secret)}
    # Longest first, so that no part of a long one is left. Not one pattern: every response is searched, and
    # searching bytes for bytes is a hundred times as fast.
    return sorted(spellings, key=len, reverse=True)


def _spell(secret: str) -> set[bytes]:
    """The secret itself, and its spellings in JSON."""
    escaped = msgspec.json.encode(secret)[1:-1]
    return {secret.encode(), escaped, escaped.replace(b"/", b"\\/")}


def collect_child_credentials(
    launch: StdioLaunch, env: Mapping[str, str], *, url_variables: Iterable[str]
) -> list[str]:
    """The values of a child's resolved environment that are references, have a secret's name, or look random.

    `url_variables`: variables that may contain URLs with a user and password, such as proxies.
    """
    declared = {name: env[name] for name in (*launch.env, *launch.env_from)}
    named = [
        value
        for name, value in declared.items()
        if name in launch.env_from or value != launch.env[name] or _may_name_secret(name)
    ]
    texts = (*launch.args, *launch.env.values())
    random = (text[start:end] for text in texts for start, end in random_spans(text))
    urls = (url for name in url_variables for url in re.split(r"[\s,]+", env.get(name, "")))
    return [*named, *random, *(part for url in urls if "@" in url for part in _split_userinfo(url))]


def _split_userinfo(url: str) -> list[str]:
    """`user:password@host`, `user:password`, and the password encoded and decoded."""
    userinfo, _, rest = url.rpartition("@")
    userinfo, host = userinfo.rpartition("//")[2], re.split(r"[/:?]", rest)[0]
    password = userinfo.partition(":")[2]
    return [f"{userinfo}@{host}", userinfo, password, percent_decode(password)]


def collect_endpoint_credentials(endpoint: HttpEndpoint, url: str, headers: Mapping[str, str]) -> list[str]:
    """The values of the resolved `url` and `headers` that are references, or have a secret's name."""
    known = endpoint.headers
    values = [one for name, one in headers.items() if one != known.get(name) or _may_name_secret(name)]
    parts = _URL.match(url)
    assert parts is not None  # it matches any text
    is_resolved = url != endpoint.url
    for pair in (parts["query"] or "").split("&"):
        name, _, value = (percent_decode(part) for part in pair.replace("+", " ").partition("="))
        values += [value] if value and (is_resolved or _may_name_secret(name)) else []
    values += parts["path"].split("/") if is_resolved else []
    # Servers also quote `Bearer abc` as `abc`, and only the value of a cookie.
    return [part for value in values for part in {value, *re.split(r"[\s;=,]+", value)}]


def _may_name_secret(name: str) -> bool:
    # Wider than the names that records hide: here it costs no more than a word in an error.
    return looks_secret(name) or "key" in name.lower()
