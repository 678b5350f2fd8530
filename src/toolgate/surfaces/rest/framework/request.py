"""What comes in with a request, checked in one place: ids, preconditions, body. Queries: see `surfaces.http`.

Strict throughout: what could be read in two ways is refused, because one of them might be the wrong
one. No message repeats a value of a body, which may be a secret.

`multipart/form-data` (RFC 7578), read strictly and within the bounds of a request body.

Readers that have seen a revision elsewhere: they wait for it here, or are told; never shown an older.
"""

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request

from toolgate.errors import (
    BodyTooLarge,
    CallCancelled,
    InvalidRecord,
    InvalidRequest,
    RevisionNotReached,
    UnsupportedMedia,
)
from toolgate.gateway.gateway import Gateway
from toolgate.model.names import parse_sha256, parse_version
from toolgate.registry.records.codec import ID_PARSERS
from toolgate.surfaces.rest.framework.response import JSON

MAX_BODY_BYTES: Final = 4 * 1024 * 1024

_NO_MEMBERS: Final = b"{}"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
_TAG = re.compile(rf'"({_NUMBER.pattern})"')
_PLAIN = re.compile(r"[!-~]{1,200}")

Choice = TypeVar("Choice", bound=str)
Model = TypeVar("Model", bound=BaseModel)


def check_path(path: str) -> None:
    """Refuse a path no route can mean: Starlette's own match would overlook a newline at its end."""
    if not path.isprintable():
        raise InvalidRequest("the path holds characters that cannot be seen")


def _parse_part_number(text: str) -> str:
    """The number of a part, spelled in one way. Or InvalidRecord."""
    if not _NUMBER.fullmatch(text):
        raise InvalidRecord(f"`{text[:40]}` is not the number of a part", hint="parts count from 1")
    return text


PATH_PARSERS: Final[Mapping[str, Callable[[str], str]]] = {
    **ID_PARSERS,
    "version": parse_version,
    "sha256": parse_sha256,
    "part": _parse_part_number,
    # Words of the catalog: a wrong one is not found, with a hint at a similar one.
    "category": str,
    "package": str,
    # Names of other registries: what is none of ours is not found, whatever it looks like.
    "namespace": str,
    "server_name": str,
    "server_version": str,
    # Made here, and none of the caller's business: a wrong one is not found.
    "invocation_id": str,
    "approval_id": str,
    "event_id": str,
}
"""What may stand in a path, by its name there."""


def parse_path_ids(values: Mapping[str, str]) -> Mapping[str, str]:
    """The ids in the path, or InvalidRecord."""
    return {name: PATH_PARSERS[name](value) for name, value in values.items()}


def parse_precondition(headers: Headers) -> int | None:
    """The revision a write depends on: `If-Match: "7"` is 7, `If-None-Match: *` is 0, neither is None."""
    matches = headers.getlist("if-match")
    none_matches = headers.getlist("if-none-match")
    if not matches and not none_matches:
        return None
    if none_matches == ["*"] and not matches:
        return 0
    tag = _TAG.fullmatch(matches[0]) if len(matches) == 1 and not none_matches else None
    if tag is None:
        raise InvalidRequest(
            "the precondition cannot be read",
            hint='send `If-Match: "<revision>"` with the ETag of the record, or `If-None-Match: *`',
        )
    return int(tag[1])


def parse_plain_headers(headers: Headers, names: Sequence[str]) -> Mapping[str, str]:
    """Those of the named headers that were sent, each once and as plain text. Or InvalidRequest."""
    sent = {name: headers.getlist(name) for name in names}
    for name, values in sent.items():
        if len(values) > 1 or not all(_PLAIN.fullmatch(value) for value in values):
            raise InvalidRequest(f"the header `{name}` cannot be read", hint="send it once, in plain text")
    return {name: values[0] for name, values in sent.items() if values}


def parse_number(name: str, text: str) -> int:
    """A whole number from 0 on, spelled in one way. Or InvalidRequest."""
    if not _NUMBER.fullmatch(text):
        raise InvalidRequest(f"`{name}` must be a whole number, of at most 18 digits")
    return int(text)


def parse_count(query: Mapping[str, str], name: str, *, unless: int, most: int) -> int:
    """A number of the query from 1 to `most`; `unless` where it is not there. Or InvalidRequest."""
    count = parse_number(name, query.get(name, str(unless)))
    if not 1 <= count <= most:
        raise InvalidRequest(f"`{name}` must be from 1 to {most}")
    return count


def parse_choice(query: Mapping[str, str], name: str, among: Sequence[Choice]) -> Choice | None:
    """Which of a few the query names, None where it names none, or InvalidRequest with what is allowed."""
    found = next((one for one in among if one == query.get(name)), None)
    if found is None and name in query:
        raise InvalidRequest(f"`{name}` must be one of {join_quoted(among)}")
    return found


def join_quoted(names: Iterable[str]) -> str:
    """Names as messages and documents have them."""
    return ", ".join(f"`{one}`" for one in names)


async def read_body(request: Request, *, may_be_empty: bool, media_type: str = JSON) -> bytes:
    """The body, which must call itself what the endpoint takes, and stay within the limit.

    The declared type also keeps out what a foreign web page can send without asking first (CSRF).
    """
    declared = request.headers.get("content-type")
    if declared is None and may_be_empty:
        if await _read_bounded(request, max_bytes=0):
            raise UnsupportedMedia("the request has a body and does not say that it is JSON")
        return _NO_MEMBERS
    if declared is None or declared.partition(";")[0].strip().lower() != media_type:
        raise UnsupportedMedia(
            f"the request does not declare a body of `{media_type}`",
            hint=f"send `Content-Type: {media_type}` and no content encoding",
        )
    if request.headers.get("content-encoding", "identity").lower() != "identity":
        raise UnsupportedMedia("the body is encoded")
    body = await _read_bounded(request, max_bytes=MAX_BODY_BYTES)
    if len(body) > MAX_BODY_BYTES:
        raise BodyTooLarge(f"the body is larger than {MAX_BODY_BYTES} bytes")
    return _NO_MEMBERS if may_be_empty and not body else body


async def _read_bounded(request: Request, *, max_bytes: int) -> bytes:
    """The body as far as it had come when it passed `max_bytes`; the rest is never read."""
    body = bytearray()
    try:
        async for chunk in request.stream():
            body += chunk
            if len(body) > max_bytes:
                break
    except ClientDisconnect as exc:
        raise CallCancelled("the caller went away before its request was complete") from exc
    return bytes(body)


def parse_object(value: Any) -> Mapping[str, Any]:
    """A JSON object whose members somebody else checks, or InvalidRequest."""
    if isinstance(value, dict):
        return value
    raise InvalidRequest("the body must be a JSON object")


def parse_model(model: type[Model], value: Any) -> Model:
    """A JSON value as `model`, or InvalidRequest naming each wrong field."""
    try:
        return model.model_validate(parse_object(value))
    except ValidationError as exc:
        errors = exc.errors(include_url=False, include_input=False, include_context=False)
        problems = [
            {"field": ".".join(map(str, error["loc"])), "problem": error["msg"]} for error in errors[:10]
        ]
        first = problems[0]
        raise InvalidRequest(
            f"`{ascii(first['field'][:80])[1:-1]}`: {first['problem']}", data={"problems": problems}
        ) from None


FORM: Final = "multipart/form-data"
MAX_PARTS: Final = 64
MAX_PART_HEADERS: Final = 4_096

_BOUNDARY: Final = re.compile(
    r""";\s*boundary=(?:"([^"\r\n]{1,70})"|([^\s";,]{1,70}))\s*(?:;|\Z)""", re.IGNORECASE
)
_DISPOSITION: Final = re.compile(
    r"^content-disposition:\s*form-data[ \t]*(;[^\r\n]*)", re.IGNORECASE | re.MULTILINE
)
_NAME: Final = re.compile(r';\s*name="([^"\r\n]{1,128})"', re.IGNORECASE)
_ENCODING: Final = re.compile(r"^content-transfer-encoding:", re.IGNORECASE | re.MULTILINE)


class FormField(NamedTuple):
    """One part of a form."""

    name: str
    text: str


def is_form(content_type: str | None) -> bool:
    """Whether a request declares a multipart form."""
    return content_type is not None and content_type.partition(";")[0].strip().lower() == FORM


def parse_form(content_type: str, body: bytes) -> list[FormField]:
    """The parts in order, or InvalidRequest. Each is UTF-8 text; file names are not looked at."""
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise _invalid_form("the content type has no boundary")
    boundary = (found[1] or found[2]).encode("latin-1", "replace")
    _, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary)
    if not parts or not parts[-1].startswith(b"--"):
        raise _invalid_form("the last boundary is missing")
    if len(parts) > MAX_PARTS + 1:
        raise _invalid_form(f"it has more than {MAX_PARTS} parts")
    return [_parse_form_part(part) for part in parts[:-1]]


def _parse_form_part(part: bytes) -> FormField:
    head, blank, content = part.partition(b"\r\n\r\n")
    if not head.startswith(b"\r\n") or not blank or len(head) > MAX_PART_HEADERS:
        raise _invalid_form("a part has no headers, or too long ones")
    headers = head.decode("utf-8", "replace").replace("\r\n", "\n").strip()
    disposition = _DISPOSITION.search(headers)
    name = _NAME.search(disposition[1]) if disposition else None
    if name is None or _ENCODING.search(headers):
        raise _invalid_form("a part has no name, or is encoded")
    try:
        return FormField(name[1], content.decode("utf-8-sig"))
    except UnicodeDecodeError as exc:
        raise _invalid_form(f"part `{ascii(name[1][:80])[1:-1]}` is not UTF-8 text") from exc


def _invalid_form(problem: str) -> InvalidRequest:
    return InvalidRequest(f"invalid multipart form: {problem}", hint="send it as `curl --form` does")


MIN_REVISION: Final = "Toolgate-Min-Revision"
SERVED_REVISION: Final = "Toolgate-Revision"
"""On answers: nothing in them is older than this revision."""
MAX_REVISION_WAIT_S: Final = 2.0


async def await_revision(gateway: Gateway, headers: Headers) -> None:
    """Return once the revision that `headers` ask for is served, or raise RevisionNotReached.

    What is served follows the store, so whoever reads the store itself reads nothing older either.
    """
    sent = parse_plain_headers(headers, [MIN_REVISION])
    if not sent:
        return
    revision = parse_number(MIN_REVISION, sent[MIN_REVISION])
    try:
        async with asyncio.timeout(MAX_REVISION_WAIT_S):
            await gateway.reached(revision)
    except TimeoutError:
        raise RevisionNotReached(
            f"revision {revision} is not served here yet", data={"revision": gateway.snapshot.revision}
        ) from None
