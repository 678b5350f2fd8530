"""`multipart/form-data` (RFC 7578), read strictly and within the limits of a request body."""

import re
from typing import Final, NamedTuple

from toolgate.errors import InvalidRequest

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


def is_form(content_type: str) -> bool:
    """Whether a request declares a multipart form."""
    return content_type.partition(";")[0].strip().lower() == FORM


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
