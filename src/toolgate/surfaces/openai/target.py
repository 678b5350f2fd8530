"""What a URL of the chat door asks for: a resource of the OpenAI API, and the task whose scope applies."""

from dataclasses import dataclass
from typing import Final

from toolgate.errors import InvalidRecord, InvalidRequest, NotFound
from toolgate.model.names import parse_task_id
from toolgate.surfaces.http.messages import Request
from toolgate.surfaces.http.parsing import parse_query

TASK_HEADER: Final = b"x-toolgate-task"
_SERVED: Final = (
    "there are `POST /v1/chat/completions`, `POST /v1/responses` and `GET /v1/models`, "
    "each also under `/t/<task>`"
)


@dataclass(frozen=True, slots=True)
class Target:
    """A parsed URL. `rest` is what follows the resource: the id of one model."""

    resource: str
    task_id: str | None = None
    rest: str = ""


def is_openai_path(path: str) -> bool:
    """Whether `path` belongs to this door."""
    return path[:4] == "/v1/" or path == "/v1" or path[:3] == "/t/"


def parse_target(request: Request) -> Target:
    """The target of a request. Raises NotFound for a path or a task, InvalidRequest for what is ambiguous."""
    task_id, path = _split_task(request.path)
    parse_query(request.query, ())
    named = request.headers.get(TASK_HEADER)
    if named is not None:
        asked = _parse_task(named.decode("latin-1"))
        if task_id not in (None, asked):
            raise InvalidRequest(
                "the task in the path and the one in `X-Toolgate-Task` differ", hint="name it in one place"
            )
        task_id = asked
    if path in ("/v1/chat/completions", "/v1/responses", "/v1/models"):
        return Target(path.removeprefix("/v1/"), task_id)
    if path.startswith("/v1/models/") and len(path) > len("/v1/models/"):
        return Target("models", task_id, path.removeprefix("/v1/models/"))
    raise NotFound("no such path on the chat door", hint=_SERVED)


def _split_task(path: str) -> tuple[str | None, str]:
    if not path.startswith("/t/"):
        return None, path
    task_id, slash, rest = path.removeprefix("/t/").partition("/")
    return _parse_task(task_id), slash + rest


def _parse_task(text: str) -> str:
    """A text that cannot be a task's id names no task that exists."""
    try:
        return parse_task_id(text)
    except InvalidRecord as exc:
        raise NotFound(f"no task `{ascii(text[:80])[1:-1]}`", hint=exc.hint) from exc
