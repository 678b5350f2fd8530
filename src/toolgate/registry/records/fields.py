"""The text types of records, each with its rule.

The message of a rule describes what is allowed. It never repeats the text, which may be a secret.
"""

import ipaddress
import re
import unicodedata
from collections.abc import Callable
from typing import Annotated, Final
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field
from pydantic_core import PydanticCustomError

from toolgate.errors import InvalidRecord
from toolgate.model import names
from toolgate.model.http import HEADER_NAME, is_reserved_header
from toolgate.policy.patterns import check_patterns, parse_pattern
from toolgate.redaction.shapes import MASK

# `fullmatch` throughout: `$` would let a trailing newline pass.
_URL = re.compile(r"[\x21\x23-\x3b\x3d\x3f-\x5b\x5d\x5f\x61-\x7a\x7e]+")
# Resolvers read a host whose last label looks like this as an address, in any notation.
_NUMERIC_LABEL = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")
# Printable ASCII without spaces at its ends.
_TRIMMED: Final = r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?"
# Also the bounds of a server's `ttlMs`.
MIN_LIST_TTL_S: Final = 30  # listing more often costs the server
MAX_LIST_TTL_S: Final = 300  # listing less often hides changes


def field_error(problem: str) -> PydanticCustomError:
    """Return the error that a validator raises. `problem` is the whole message."""
    # Passed as context: it may contain braces, which a template would interpret.
    return PydanticCustomError("refused", "{problem}", {"problem": problem})


def _parsed_by(parse: Callable[[str], str]) -> AfterValidator:
    def check(text: str) -> str:
        try:
            return parse(text)
        except InvalidRecord as exc:
            raise field_error(f"{exc}; {exc.hint}") from exc

    return AfterValidator(check)


def _matching(rule: str | re.Pattern[str], problem: str) -> AfterValidator:
    pattern = re.compile(rule)

    def check(text: str) -> str:
        if not pattern.fullmatch(text):
            raise field_error(problem)
        return text

    return AfterValidator(check)


def _without_controls(allowed: str) -> AfterValidator:
    def check(text: str) -> str:
        if any(unicodedata.category(char) in {"Cc", "Cs"} and char not in allowed for char in text):
            raise field_error("control characters are not allowed")
        return text

    return AfterValidator(check)


def _check_label(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        raise field_error("use printable characters, without spaces at the ends")
    return text


def _check_references(text: str) -> str:
    if "${ENV:" in names.REFERENCE.sub("", text):
        raise field_error("invalid reference: write `${ENV:NAME}` or `${ENV:NAME:-default}`")
    if MASK in text:
        raise field_error(f"`{MASK}` is the mask of a secret: send the value, or a reference to it")
    return text


def _check_guest_text(text: str) -> str:
    if "${ENV:" in text:
        raise field_error("references like `${ENV:NAME}` are not allowed: guests get no secrets of the node")
    if MASK in text:
        raise field_error(f"`{MASK}` is the mask of a secret: send the value")
    return text


def _check_list_ttl(seconds: int) -> int:
    if 0 < seconds < MIN_LIST_TTL_S:
        raise field_error(f"must be 0, or from {MIN_LIST_TTL_S} to {MAX_LIST_TTL_S}")
    return seconds


def _check_header_name(name: str) -> str:
    if len(name) > 128 or not HEADER_NAME.fullmatch(name):
        raise field_error("invalid header name")
    if is_reserved_header(name):
        raise field_error("reserved header: the gateway sets it")
    return name


def _check_url(url: str) -> str:
    """Check an absolute http(s) URL without userinfo or fragment. References may follow the scheme."""
    filled = names.REFERENCE.sub("env", url)
    if not _URL.fullmatch(filled):
        raise field_error("invalid URL: use printable ASCII without spaces, quotes, backslashes and braces")
    try:
        parts = urlsplit(filled)
        host, _ = parts.hostname, parts.port
    except ValueError as exc:
        raise field_error("invalid URL") from exc
    if parts.scheme not in {"http", "https"} or not host:
        raise field_error("invalid URL: start it with `http://` or `https://` and a host")
    if "@" in parts.netloc:
        raise field_error("invalid URL: user and password are not allowed, use `headers` or `auth_ref`")
    if parts.fragment:
        raise field_error("invalid URL: a fragment is not allowed")
    if _NUMERIC_LABEL.fullmatch(host.removesuffix(".").rpartition(".")[2]) and not _is_address(host):
        raise field_error("invalid IP address: use four decimal numbers, or IPv6 in brackets")
    return url


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _check_patterns(patterns: list[str]) -> list[str]:
    try:
        check_patterns(patterns)
    except InvalidRecord as exc:
        raise field_error(f"{exc}; {exc.hint}") from exc
    return patterns


ABSENT_IF_EMPTY: Final = BeforeValidator(lambda value: None if value == "" else value)
"""For optional texts: `""` means that the field is absent, as in SPEAR's registry files."""
_LINES: Final = _without_controls("\t\r\n")
# Field limits come before the rules: otherwise Pydantic uses its message for lists.
Title = Annotated[str, Field(max_length=200), _without_controls("")]
LongText = Annotated[str, Field(max_length=4_096), _LINES]
Path = Annotated[str, Field(min_length=1, max_length=4_096), _without_controls("")]
ConfigKey = Annotated[str, Field(min_length=1, max_length=128), _without_controls("")]
# Newlines are valid in both: PEM keys, scripts for `sh -c`.
Argument = Annotated[str, Field(max_length=32_768), _LINES, AfterValidator(_check_references)]
# Of programs in the sandbox.
GuestArgument = Annotated[str, Field(max_length=4_096), _LINES, AfterValidator(_check_guest_text)]
GuestValue = Annotated[str, Field(max_length=32_768), _LINES, AfterValidator(_check_guest_text)]
Label = Annotated[str, Field(max_length=64), AfterValidator(_check_label)]
ModelPattern = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_check_label)]
MemberPattern = Annotated[str, Field(min_length=1, max_length=128), AfterValidator(_check_label)]
MemberPatterns = Annotated[list[MemberPattern], Field(max_length=128)]
Tag = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_check_label)]
JsonText = Annotated[str, Field(max_length=262_144), _LINES]
_VARIABLE: Final = _matching(r"[A-Za-z_][A-Za-z0-9_]*", "invalid environment variable name")
VariableName = Annotated[str, Field(max_length=128), _VARIABLE]
HeaderName = Annotated[str, AfterValidator(_check_header_name)]
_VALUE_RULE: Final = "invalid header value: use printable ASCII without spaces at the ends"
_HEADER_VALUE: Final = _matching(f"(?:{_TRIMMED})?", _VALUE_RULE)
HeaderValue = Annotated[str, Field(max_length=8_192), _HEADER_VALUE, AfterValidator(_check_references)]
Url = Annotated[str, Field(max_length=4_096), AfterValidator(_check_references), AfterValidator(_check_url)]
_NAME_RULE: Final = "invalid secret name: use up to 128 letters, digits and `. _ -`, not the secret itself"
SecretName = Annotated[str, _matching(names.SECRET_NAME, _NAME_RULE)]
# RFC 6749: a client id is printable ASCII, a scope the same without spaces, quotes and backslashes.
_CLIENT_ID: Final = _matching(_TRIMMED, "invalid client id: use printable ASCII without spaces at the ends")
ClientId = Annotated[str, Field(max_length=1_024), _CLIENT_ID]
_SCOPE: Final = _matching(r"[\x21\x23-\x5b\x5d-\x7e]+", "invalid scope: use printable ASCII without spaces")
OAuthScope = Annotated[str, Field(max_length=256), _SCOPE]
_NAMESPACE_RULE: Final = "use lower-case letters and digits, single `.`, `-` or `_` between"
Namespace = Annotated[str, Field(max_length=64), _matching(r"[a-z0-9]+(?:[._-][a-z0-9]+)*", _NAMESPACE_RULE)]
Pattern = Annotated[str, _parsed_by(parse_pattern)]
Patterns = Annotated[list[Pattern], AfterValidator(_check_patterns)]
ServerId = Annotated[str, _parsed_by(names.parse_server_id)]
UpstreamId = Annotated[str, _parsed_by(names.parse_upstream_id)]
Name = Annotated[str, _parsed_by(names.parse_task_id)]
Sha256 = Annotated[str, _parsed_by(names.parse_sha256)]
Version = Annotated[str, _parsed_by(names.parse_version)]
UnixTime = Annotated[int, Field(ge=0, le=253_402_300_799)]
"""In seconds. Up to the end of the year 9999, the last that calendars can show."""
ListTtl = Annotated[int, Field(ge=0, le=MAX_LIST_TTL_S), AfterValidator(_check_list_ttl)]
