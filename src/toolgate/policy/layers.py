"""Parses the two layers that people write: a task's policy and the selection of a request.

Parsing is strict: an invalid value is rejected with its key and the reason. It never guesses: it does not
split at commas, drop elements or read `yes` as true.

An absent list does not restrict; an empty list admits nothing. Lists are sorted and without duplicates.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final

import msgspec

from toolgate.errors import InvalidParams, InvalidRecord, PolicyDenied
from toolgate.model.names import MAX_SERVER_ID, kind_of, parse_server_id, parse_task_id
from toolgate.model.principals import MAX_CALLS, MAX_TOKENS, Quotas
from toolgate.model.servers import Approval
from toolgate.model.tasks import Selection, Task
from toolgate.policy.patterns import check_patterns, has_wildcard, parse_pattern

MAX_ENTRIES: Final = 1_024  # entries in one list of a request
MAX_WILDCARDS: Final = 32
"""The maximum number of patterns with wildcards: each is matched with every tool, while a plain name is
looked up."""

_TASK_KEYS: Final = (
    *("mcp.enabled", "mcp.enforce", "mcp.default_server_ids", "mcp.allowed_server_ids"),
    *("mcp.tool_allowlist", "mcp.tool_denylist", "mcp.profile", "mcp.profile_overrides", "mcp.tags"),
    *("mcp.approval_policy", "mcp.approval_in_place", "mcp.budgets", "mcp.require_servers"),
)
_APPROVALS: Final = '`"never"`, `"policy"` or `"always"`'
_SESSION_KEYS: Final = ("mcp.enabled", "mcp.server_ids", "mcp.tool_allowlist", "mcp.tool_denylist")
_SERVER_PATTERN: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_*?")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPolicy:
    """The policy of a task's `config`. Invariant: `default` is within `allowed`, if that is present."""

    task_id: str
    enabled: bool = False
    enforced: bool = True
    """False: its rules deny nothing, and the gateway audits what they would deny."""
    default: tuple[str, ...] = ()
    """The servers of a request that names no server. If absent, those that `profile` and `tags` select."""
    allowed: tuple[str, ...] | None = None
    """None: the same as the default."""
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    profile: str | None = None
    overrides: Selection = field(default_factory=Selection)
    tags: tuple[str, ...] | None = None
    """Only servers with one of these tags."""
    approval: Approval = "never"
    """The least approval of a call; the server's record may require more."""
    approval_in_place: bool = True
    """Whether the user of the calling client may approve, if the server's record also allows it."""
    budgets: Quotas | None = None
    """The quotas that all calls under the task share."""
    require_servers: bool = False
    """Whether a scope without a server is denied. False: it has a warning."""
    is_default_empty: bool = False
    """Whether `default` is present and empty: a request must name its servers, whatever a profile selects."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRequest:
    """The selection of one request or session. Hashable: equal selections share one compiled scope."""

    enabled: bool | None = None
    servers: tuple[str, ...] | None = None
    tools: tuple[str, ...] | None = None
    """Patterns from `parse_tools_selection`."""
    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    profile: str | None = None

    @property
    def named_servers(self) -> frozenset[str]:
        tools = (tool.partition("/") for tool in self.tools or ())
        return frozenset((*(self.servers or ()), *(server for server, slash, _ in tools if slash)))


class _Overrides(msgspec.Struct, forbid_unknown_fields=True):
    """The JSON object of `mcp.profile_overrides`. A null is not an absent list, and is rejected."""

    server_ids: list[str] | msgspec.UnsetType = msgspec.UNSET
    tags: list[str] | msgspec.UnsetType = msgspec.UNSET
    tool_allowlist: list[str] | msgspec.UnsetType = msgspec.UNSET
    tool_denylist: list[str] | msgspec.UnsetType = msgspec.UNSET


_Calls = Annotated[int, msgspec.Meta(ge=1, le=MAX_CALLS)] | msgspec.UnsetType
_Tokens = Annotated[int, msgspec.Meta(ge=1, le=MAX_TOKENS)] | msgspec.UnsetType


class _Budgets(msgspec.Struct, forbid_unknown_fields=True):
    calls_per_minute: _Calls = msgspec.UNSET
    calls_per_day: _Calls = msgspec.UNSET
    tokens_per_day: _Tokens = msgspec.UNSET


def parse_task_policy(task: Task) -> TaskPolicy:
    """The policy in `task.config`. Raises InvalidRecord. Keys that do not begin with `mcp.` are ignored."""
    unknown = sorted(key for key in task.config if key.startswith("mcp.") and key not in _TASK_KEYS)
    if unknown:
        message = f"task `{task.task_id}`: unknown key `{ascii(unknown[0])[1:-1]}`"
        raise InvalidRecord(message, hint=f"the keys are {', '.join(f'`{key}`' for key in _TASK_KEYS)}")
    config = _Config(task)
    default = config.names("mcp.default_server_ids", parse_server_id)
    allowed = config.names("mcp.allowed_server_ids", parse_server_id)
    outside = sorted(set(default or ()) - set(allowed)) if allowed is not None else []
    if outside:
        why = f"`{outside[0]}` is not in `mcp.allowed_server_ids`"
        raise config.invalid("mcp.default_server_ids", why)
    return TaskPolicy(
        task_id=task.task_id,
        enabled=config.flag("mcp.enabled", default=False),
        enforced=config.flag("mcp.enforce", default=True),
        default=default or (),
        allowed=allowed,
        allow=config.names("mcp.tool_allowlist", parse_pattern),
        deny=config.names("mcp.tool_denylist", parse_pattern) or (),
        profile=config.profile(),
        overrides=config.overrides(),
        tags=config.names("mcp.tags", _parse_tag),
        approval=config.decode("mcp.approval_policy", Approval, _APPROVALS) or "never",
        approval_in_place=config.flag("mcp.approval_in_place", default=True),
        budgets=config.quotas(),
        require_servers=config.flag("mcp.require_servers", default=False),
        is_default_empty=default == (),
    )


class _Config:
    """A task's `config`, read key by key. Every error names the task and the key."""

    def __init__(self, task: Task) -> None:
        self._task = task

    def invalid(self, key: str, why: str, *, hint: str | None = None) -> InvalidRecord:
        return InvalidRecord(f"task `{self._task.task_id}`: `{key}`: {why}", hint=hint)

    def flag(self, key: str, *, default: bool) -> bool:
        value: bool | None = self.decode(key, bool, "`true` or `false`")
        return default if value is None else value

    def names(self, key: str, parse: Callable[[str], str]) -> tuple[str, ...] | None:
        items = self.decode(key, list[str], 'a JSON array of strings, like `["a", "b"]`')
        return self._parse_each(key, items, parse)

    def profile(self) -> str | None:
        key = "mcp.profile"
        name = self.decode(key, str, 'a JSON string, like `"code-review"`')
        with self._naming(key):
            return None if name is None else parse_task_id(name)

    def overrides(self) -> Selection:
        key = "mcp.profile_overrides"
        found = self.decode(key, _Overrides, 'a JSON object, like `{"tool_denylist": ["delete_*"]}`')
        if found is None:
            return Selection()
        return Selection(
            servers=self._parse_each(key, found.server_ids, parse_server_id),
            tags=self._parse_each(key, found.tags, _parse_tag),
            allow=self._parse_each(key, found.tool_allowlist, parse_pattern),
            deny=self._parse_each(key, found.tool_denylist, parse_pattern) or (),
        )

    def quotas(self) -> Quotas | None:
        found = self.decode("mcp.budgets", _Budgets, 'a JSON object, like `{"calls_per_minute": 60}`')
        limits = {} if found is None else msgspec.to_builtins(found)  # without unset fields
        return Quotas(**limits) if limits else None

    def decode(self, key: str, shape: Any, example: str) -> Any:
        """The value of a key; None if the config does not have it."""
        text = self._task.config.get(key)
        if text is None:
            return None
        try:
            value = msgspec.json.decode(text, type=shape)
        except (msgspec.DecodeError, UnicodeEncodeError) as exc:
            why = f"invalid value: {exc}"
            raise self.invalid(key, why, hint=f"write {example}") from exc
        if isinstance(value, msgspec.Struct):
            json.loads(text, object_pairs_hook=partial(self._check_duplicates, key))
        return value

    def _check_duplicates(self, key: str, pairs: list[tuple[str, object]]) -> None:
        if len(dict(pairs)) < len(pairs):
            raise self.invalid(key, "duplicate name in the object")

    def _parse_each(
        self, key: str, items: list[str] | msgspec.UnsetType | None, parse: Callable[[str], str]
    ) -> tuple[str, ...] | None:
        if items is None or items is msgspec.UNSET:
            return None
        with self._naming(key):
            found = tuple(sorted({parse(item) for item in items}))
            if parse is parse_pattern:
                check_patterns(found)
        return found

    @contextmanager
    def _naming(self, key: str) -> Iterator[None]:
        try:
            yield
        except InvalidRecord as exc:
            raise self.invalid(key, str(exc), hint=exc.hint) from exc


def parse_session_params(params: Mapping[str, object]) -> SessionRequest:
    """The session parameters about tools. Raises InvalidParams. Others go to the model. Any `mcp.task_…` key
    raises PolicyDenied: only the operator sets the policy of a task."""
    known = sorted(key for key in params if key.startswith("mcp."))
    if any(key.startswith("mcp.task_") for key in known):
        hint = "change the `config` of the task instead"
        raise PolicyDenied("a session may not set `mcp.task_…` parameters", hint=hint)
    unknown = [key for key in known if key not in _SESSION_KEYS]
    if unknown:
        hint = f"the parameters are {', '.join(f'`{key}`' for key in _SESSION_KEYS)}, `tool_choice`"
        raise InvalidParams(f"unknown session parameter `{ascii(unknown[0])[1:-1]}`", hint=hint)
    enabled: Any = params.get("mcp.enabled")
    if "mcp.enabled" in params and not isinstance(enabled, bool):
        raise InvalidParams("`mcp.enabled` must be `true` or `false`", hint="correct the type of the value")
    return SessionRequest(
        enabled=enabled,
        servers=_parse_session_list(params, "mcp.server_ids", parse_server_id),
        allow=_parse_session_list(params, "mcp.tool_allowlist", parse_pattern),
        deny=_parse_session_list(params, "mcp.tool_denylist", parse_pattern) or (),
    )


def parse_tools_selection(items: Sequence[str]) -> tuple[str, ...]:
    """The entries of `?tools=` or of `initialize` `params.tools[]` as patterns. Raises InvalidParams.

    An entry is `server.tool`, split at its first dot, or `server/tool`, or a tool name for any server. A tool
    with a dot in its name needs its server, or `*/tool.name`.
    """
    return _parse_entries("tools", items, _parse_tool_entry)


def parse_servers_selection(items: Sequence[str]) -> tuple[str, ...]:
    return _parse_entries("servers", items, parse_server_id)


def _parse_tool_entry(text: str) -> str:
    pattern = parse_pattern(text)
    if kind_of(pattern):
        hint = "prompts and resources follow their servers; a key or a task can narrow them"
        raise InvalidRecord(f"`{ascii(pattern[:80])[1:-1]}` is not a tool", hint=hint)
    server, separator, tool = pattern.partition("/" if "/" in pattern else ".")
    if not separator:
        return pattern
    if has_wildcard(server):
        is_server = len(server) <= MAX_SERVER_ID and _SERVER_PATTERN.issuperset(server)
        if not is_server:
            raise InvalidRecord(f"`{server}` matches no server id", hint="server ids are lower-case")
    else:
        parse_server_id(server)
    return f"{server}/{parse_pattern(tool)}"


def _parse_entries(key: str, items: Sequence[str], parse: Callable[[str], str]) -> tuple[str, ...]:
    if len(items) > MAX_ENTRIES:
        raise InvalidParams(f"`{key}` has {len(items)} entries", hint=f"send at most {MAX_ENTRIES}")
    try:
        entries = {parse(item) for item in items}
    except InvalidRecord as exc:
        raise InvalidParams(f"`{key}`: {exc}", hint=exc.hint) from exc
    if sum(map(has_wildcard, entries)) > MAX_WILDCARDS:
        hint = "name the tools, or put the patterns into a task or a profile"
        raise InvalidParams(f"`{key}` has more than {MAX_WILDCARDS} entries with wildcards", hint=hint)
    return tuple(sorted(entries))


def _parse_session_list(
    params: Mapping[str, object], key: str, parse: Callable[[str], str]
) -> tuple[str, ...] | None:
    value = params.get(key)
    if key not in params:
        return None
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        raise InvalidParams(f"`{key}` must be a list of strings", hint='send a list, like `["a", "b"]`')
    return _parse_entries(key, value, parse)


def _parse_tag(text: str) -> str:
    if text and text.isprintable():
        return text
    hint = "use printable characters"
    raise InvalidRecord(f"invalid tag `{ascii(text[:80])[1:-1]}`", hint=hint)
