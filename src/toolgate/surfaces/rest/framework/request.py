"""REST requests: what an endpoint accepts, and how a request is validated. Also pagination.

Strict throughout: ambiguous input is rejected. No message repeats a value of a body, which may be a secret.
The listener bounds every body, and so every form (`multipart/form-data`, RFC 7578).

Pages are sorted by id. A cursor names the last id of the previous page, so records that were added or removed
meanwhile do not shift a page.
"""

import base64
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from toolgate.errors import InvalidRecord, InvalidRequest, UnsupportedMedia
from toolgate.model.names import parse_sha256, parse_version
from toolgate.model.principals import Principal
from toolgate.registry.records.body import StrictBody
from toolgate.registry.records.codec import ID_PARSERS
from toolgate.surfaces.http.messages import HttpRequest
from toolgate.surfaces.http.parsing import parse_json, parse_off_loop
from toolgate.surfaces.rest.framework.response import JSON

_NO_MEMBERS: Final = b"{}"
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
"""One spelling for each number, of at most 64 bits."""
_TAG = re.compile(rf'"({_NUMBER.pattern})"')
_PLAIN = re.compile(r"[!-~]{1,200}")

PAGE: Final = 500  # most registries fit one response
MAX_PAGE: Final = 1_000  # twice that; larger pages would save little
MAX_PAGE_BYTES: Final = 4 * 1024 * 1024  # as a body may have; the largest schemas still fit

FORM: Final = "multipart/form-data"
MAX_PARTS: Final = 64  # the one form has six members, two of which repeat
MAX_PART_HEADERS: Final = 4_096  # a part has two or three short headers (RFC 7578)

_BOUNDARY: Final = re.compile(r"""(?i);\s*boundary=(?:"([^"\r\n]{1,70})"|([^\s";,]{1,70}))\s*(?:;|\Z)""")
_DISPOSITION: Final = re.compile(r"(?im)^content-disposition:\s*form-data[ \t]*(;[^\r\n]*)")
_NAME: Final = re.compile(r'(?i);\s*name="([^"\r\n]{1,128})"')
_ENCODING: Final = re.compile(r"(?im)^content-transfer-encoding:")


def parse_form(content_type: str, body: bytes) -> list[tuple[str, str]]:
    """The names and texts of the parts, each UTF-8. File names are ignored. Raises InvalidRequest."""
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


def _parse_form_part(part: bytes) -> tuple[str, str]:
    head, blank, content = part.partition(b"\r\n\r\n")
    if not head.startswith(b"\r\n") or not blank or len(head) > MAX_PART_HEADERS:
        raise _invalid_form("a part has no headers, or too long ones")
    headers = head.decode("utf-8", "replace").replace("\r\n", "\n").strip()
    disposition = _DISPOSITION.search(headers)
    name = _NAME.search(disposition[1]) if disposition else None
    if name is None or _ENCODING.search(headers):
        raise _invalid_form("a part has no name, or is encoded")
    try:
        return name[1], content.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        raise _invalid_form(f"part `{ascii(name[1][:80])[1:-1]}` is not UTF-8 text") from exc


def _invalid_form(problem: str) -> InvalidRequest:
    return InvalidRequest(f"invalid multipart form: {problem}", hint="send it as `curl --form` does")


B = TypeVar("B")
Choice = TypeVar("Choice", bound=str)
Model = TypeVar("Model", bound=BaseModel)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter or a header of an endpoint."""

    name: str
    description: str
    form: Literal["text", "flag", "choice", "number"] = "text"
    """A flag is `true` or `false`, and false if absent; a choice may be absent. A number is at least 0."""


PLAN_HEADER: Final = Parameter(
    "Toolgate-Plan", "The id of a plan. Fails with `plan_outdated` if the change has any other effect."
)


class NoBody(StrictBody):
    """Nothing, or an empty object."""


@dataclass(frozen=True, slots=True)
class BodySpec(Generic[B]):
    """A request body: the model that documents it, and how to parse it for the handler."""

    model: type[BaseModel] | None
    """None: the body is not JSON."""
    parse: Callable[[Any], B]
    may_be_empty: bool = False
    media_type: str = JSON
    is_raw: bool = False
    """`parse` gets the bytes and validates the JSON itself."""
    parse_form_fields: Callable[[Sequence[tuple[str, str]]], Mapping[str, Any]] | None = None
    """Converts a multipart form to a JSON value. None: the endpoint accepts no forms."""

    async def read(self, request: HttpRequest) -> Any:
        """The body as the handler gets it. Raises InvalidRequest, ParseFailed and UnsupportedMedia."""
        content_type = request.header("content-type")
        to_fields = self.parse_form_fields
        if to_fields is not None and content_type is not None and _media_type(content_type) == FORM:
            if b"origin" in request.headers:
                # A foreign page can send a form without a preflight (CSRF). Programs send no Origin.
                raise UnsupportedMedia("web pages may not send forms", hint=f"send `Content-Type: {JSON}`")
            _check_media(request, FORM)
            return await parse_off_loop(
                lambda body: self.parse(to_fields(parse_form(content_type, body))), request.body
            )
        if content_type is None and self.may_be_empty:
            if request.body:
                raise UnsupportedMedia("the request has a body but no `Content-Type`", hint=f"send `{JSON}`")
            return self._parse_json(_NO_MEMBERS)
        _check_media(request, self.media_type)
        if self.model is None:
            return self.parse(request.body)
        body = _NO_MEMBERS if self.may_be_empty and not request.body else request.body
        return await parse_off_loop(self.parse if self.is_raw else self._parse_json, body)

    def _parse_json(self, body: bytes) -> B:
        return self.parse(parse_json(body))


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _check_media(request: HttpRequest, media_type: str) -> None:
    """Requiring the type also rejects what a foreign web page can send without a preflight (CSRF)."""
    if _media_type(request.header("content-type") or "") != media_type:
        raise UnsupportedMedia(
            f"the request does not declare a body of `{media_type}`",
            hint=f"send `Content-Type: {media_type}` and no content encoding",
        )
    if (request.header("content-encoding") or "identity").lower() != "identity":
        raise UnsupportedMedia("the body is encoded")


def parse_object(value: Any) -> Mapping[str, Any]:
    """A JSON object whose members the registry checks. Raises InvalidRequest."""
    if isinstance(value, dict):
        return value
    raise InvalidRequest("the body must be a JSON object")


def parse_model(model: type[Model], value: Any) -> Model:
    """A JSON value as `model`. Raises InvalidRequest, which names each invalid field."""
    try:
        return model.model_validate(parse_object(value))
    except ValidationError as exc:
        errors = exc.errors(include_url=False, include_input=False, include_context=False)[:10]
        problems = [{"field": ".".join(map(str, one["loc"])), "problem": one["msg"]} for one in errors]
        first = f"`{ascii(problems[0]['field'][:80])[1:-1]}`: {problems[0]['problem']}"
        raise InvalidRequest(first, data={"problems": problems}) from None


def validate_as(model: type[Model], *, may_be_empty: bool = False) -> BodySpec[Model]:
    """A body that is validated as `model`."""
    return BodySpec(model, partial(parse_model, model), may_be_empty=may_be_empty)


def accept_as(model: type[BaseModel], *, may_be_empty: bool = False) -> BodySpec[Mapping[str, Any]]:
    """A body documented as `model`; the registry validates it when it stores it."""
    return BodySpec(model, parse_object, may_be_empty=may_be_empty)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestCall(Generic[B]):
    """A request that passed every check of its endpoint."""

    principal: Principal | None
    """None only if the endpoint needs no credential and the request has none."""
    authorization: str | None
    """The credential of the principal, for streams that outlive the request."""
    ids: Mapping[str, str]
    query: Mapping[str, str]
    headers: Mapping[str, str]
    """The endpoint's headers that the request has, by their names in the endpoint."""
    if_revision: int | None
    base_url: str
    """The URL by which the caller reached this gateway, without a trailing slash."""
    request_id: str
    """Generated here. It is in a response header, in the log, and in the audit event of a tool call."""
    body: B

    @property
    def caller(self) -> Principal:
        """The principal, on endpoints that require a role."""
        assert self.principal is not None
        return self.principal

    @property
    def plan_id(self) -> str | None:
        return self.headers.get(PLAN_HEADER.name)

    def number(self, name: str) -> int | None:
        """A number of the query, None if absent. Raises InvalidRequest."""
        return parse_number(name, self.query[name]) if name in self.query else None

    def number_or(self, name: str, default: int) -> int:
        """A number of the query, `default` if absent. Raises InvalidRequest."""
        return parse_number(name, self.query[name]) if name in self.query else default

    def count(self, name: str, *, default: int, most: int) -> int:
        """A number of the query from 1 to `most`, `default` if absent. Raises InvalidRequest."""
        count = self.number_or(name, default)
        if not 1 <= count <= most:
            raise InvalidRequest(f"`{name}` must be from 1 to {most}")
        return count

    def flag(self, name: str) -> bool:
        """Whether a flag of the query is set. Raises InvalidRequest."""
        value = self.query.get(name, "false")
        if value not in {"true", "false"}:
            raise InvalidRequest(f"`{name}` must be `true` or `false`")
        return value == "true"

    def choice(self, name: str, choices: Sequence[Choice]) -> Choice | None:
        """The one of `choices` that the query names, None if absent. Raises InvalidRequest."""
        found = next((one for one in choices if one == self.query.get(name)), None)
        if found is None and name in self.query:
            raise InvalidRequest(f"`{name}` must be one of {join_quoted(choices)}")
        return found

    def page(self, *, default: int = PAGE) -> "Page":
        """The `limit` and `cursor` of the query. Raises InvalidRequest."""
        limit = self.count("limit", default=default, most=MAX_PAGE)
        return Page(limit, parse_cursor(self.query["cursor"]) if "cursor" in self.query else "")


def _parse_part_number(text: str) -> str:
    """Raises InvalidRecord."""
    if not _NUMBER.fullmatch(text):
        raise InvalidRecord(f"invalid part number `{text[:40]}`", hint="parts are numbered from 1")
    return text


PATH_PARSERS: Final[Mapping[str, Callable[[str], str]]] = {
    **ID_PARSERS,
    "version": parse_version,
    "sha256": parse_sha256,
    "part": _parse_part_number,
    # Categories, names in other registries, and generated ids: any text, and an unknown one is not found.
    **dict.fromkeys(("category", "package", "namespace", "server_name", "server_version"), str),
    **dict.fromkeys(("invocation_id", "approval_id", "event_id"), str),
}
"""The parser of each path parameter, by its name in the template."""


def parse_precondition(request: HttpRequest) -> int | None:
    """The revision a write depends on: 7 for `If-Match: "7"`, 0 for `If-None-Match: *`, None for neither."""
    match, none_match = request.header("if-match"), request.header("if-none-match")
    if match is None and none_match is None:
        return None
    if match is None and none_match == "*":
        return 0
    # The listener joins repeated headers by a comma, which no tag has.
    tag = _TAG.fullmatch(match) if match is not None and none_match is None else None
    if tag is None:
        raise InvalidRequest(
            "invalid precondition",
            hint='send `If-Match: "<revision>"` with the ETag of the record, or `If-None-Match: *`',
        )
    return int(tag[1])


def parse_plain_headers(request: HttpRequest, names: Iterable[str]) -> Mapping[str, str]:
    """The named headers that the request has. Raises InvalidRequest if one is repeated or not plain text."""
    sent = {name: value for name in names if (value := request.header(name.lower())) is not None}
    for name, value in sent.items():
        if name.lower().encode() in request.repeated or not _PLAIN.fullmatch(value):
            raise InvalidRequest(f"invalid header `{name}`", hint="send it once, in plain text")
    return sent


def parse_number(name: str, text: str) -> int:
    """A non-negative integer. Raises InvalidRequest."""
    if not _NUMBER.fullmatch(text):
        raise InvalidRequest(f"`{name}` must be a whole number of at most 18 digits")
    return int(text)


def join_quoted(names: Iterable[str]) -> str:
    """Names as messages and documents show them."""
    return ", ".join(f"`{one}`" for one in names)


def describe_paging(default: int) -> tuple[Parameter, ...]:
    """The parameters that `RestCall.page` reads."""
    limit = Parameter(
        "limit", f"The maximum number of entries: 1 to {MAX_PAGE}. Default: {default}.", "number"
    )
    return (limit, Parameter("cursor", "The `next_cursor` of the previous page. Default: the first page."))


PAGING: Final = describe_paging(PAGE)


class Page(NamedTuple):
    """The requested part of a list."""

    limit: int
    after: str
    """The id that the page begins after. Empty: the first page."""

    def cut(
        self,
        sorted_by_id: Sequence[T],
        id_of: Callable[[T], str],
        *,
        bytes_of: Callable[[T], int] | None = None,
    ) -> tuple[Sequence[T], str | None]:
        """The page, and the cursor of the next one, None for the last. `bytes_of` also limits its size."""
        return self.first([one for one in sorted_by_id if id_of(one) > self.after], id_of, bytes_of=bytes_of)

    def first(
        self, found: Sequence[T], id_of: Callable[[T], str], *, bytes_of: Callable[[T], int] | None = None
    ) -> tuple[Sequence[T], str | None]:
        """As `cut`, for entries that all follow the cursor. One more than the limit is enough."""
        page = found[: self.limit]
        if bytes_of is not None:
            sizes = accumulate(map(bytes_of, page))
            page = page[: max(1, sum(size <= MAX_PAGE_BYTES for size in sizes))]
        return page, encode_cursor(id_of(page[-1])) if len(found) > len(page) else None


def encode_cursor(record_id: str) -> str:
    """The cursor of the page after this id."""
    return base64.urlsafe_b64encode(record_id.encode()).decode().rstrip("=")


def parse_cursor(cursor: str) -> str:
    """The id of a cursor. Raises InvalidRequest."""
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        record_id = base64.b64decode(padded, altchars=b"-_", validate=True).decode()
    except ValueError:
        record_id = ""
    if not record_id or encode_cursor(record_id) != cursor:
        raise InvalidRequest("invalid cursor", hint="omit `cursor` to start at the first page")
    return record_id
