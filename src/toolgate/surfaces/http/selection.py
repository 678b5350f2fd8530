"""`?task=`, `?servers=`, `?tools=`, `?profile=` and `?mode=`: one reading on every door."""

from collections.abc import Mapping
from typing import Final

from toolgate.errors import InvalidParams, InvalidRecord, InvalidRequest
from toolgate.gateway.scope.caller import Mode
from toolgate.model.names import parse_task_id
from toolgate.policy.layers import SessionRequest, parse_servers_selection, parse_tools_selection

PARAMETERS: Final = frozenset({"mode", "profile", "servers", "task", "tools"})
_MODES: Final[Mapping[str, Mode]] = {"list": "list", "find": "find"}


def parse_selection(values: Mapping[str, str]) -> tuple[str | None, SessionRequest]:
    """The task and the session request of a query, or InvalidRequest. An empty list selects nothing."""
    try:
        task_id = parse_task_id(values["task"]) if "task" in values else None
        request = SessionRequest(
            servers=parse_servers_selection(_split(values["servers"])) if "servers" in values else None,
            tools=parse_tools_selection(_split(values["tools"])) if "tools" in values else None,
            profile=parse_task_id(values["profile"]) if "profile" in values else None,
        )
    except (InvalidParams, InvalidRecord) as exc:
        raise InvalidRequest(str(exc), hint=exc.hint) from exc
    return task_id, request


def parse_mode(values: Mapping[str, str], *, default: Mode = "list") -> Mode:
    """How the tools are to be shown, or InvalidRequest."""
    mode = _MODES.get(values.get("mode", default))
    if mode is None:
        raise InvalidRequest("`mode` is neither `list` nor `find`", hint="leave it out to list the tools")
    return mode


def _split(text: str) -> list[str]:
    return text.split(",") if text else []
