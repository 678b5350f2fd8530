"""Guests that try to widen their scope, in any order of calls, and what policy says of each of their steps.

The oracle knows the layers, composes them itself, and keeps of a guest's session only what it was to keep. It
shares nothing with the calls but `policy.compose`; and `may_ever` does not even share that.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from random import Random
from typing import Any, NamedTuple

from tests.surfaces.mcp.mcp_world import task
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition, record
from toolgate.model.principals import Ceiling, Principal
from toolgate.model.servers import ServerRecord
from toolgate.model.tasks import Task
from toolgate.model.tools import Snapshot
from toolgate.policy.compose import compose
from toolgate.policy.layers import SessionRequest, parse_task_policy
from toolgate.policy.resolve import ScopeInputs
from toolgate.policy.scope import Scope

OK, EACCES, EINVAL, ENOENT, EBADF = 0, -13, -22, -2, -9
TOOLS = ("delete_all", "read_a", "read_b", "write_a")
SERVERS = ("four", "one", "three", "two")
NAMES = (*SERVERS, "five", "nowhere", "One", "")
"""`five` is in tasks, and registered nowhere."""

CONFIGS: tuple[Mapping[str, Any], ...] = (
    {"default_server_ids": ["one"]},
    {
        "default_server_ids": ["one"],
        "allowed_server_ids": ["five", "one", "two"],
        "tool_denylist": ["delete_*"],
    },
    {"default_server_ids": [], "allowed_server_ids": ["one", "three"], "tool_denylist": ["write_*", "two/*"]},
    {"allowed_server_ids": ["one", "two"], "tool_allowlist": ["read_*"]},
    {"default_server_ids": [], "allowed_server_ids": []},
    {"enabled": False, "default_server_ids": ["one"], "allowed_server_ids": ["one", "two"]},
    {
        "default_server_ids": ["four", "one"],
        "tool_allowlist": ["one/read_*", "four/*"],
        "tool_denylist": ["read_b"],
    },
    {"default_server_ids": ["one", "two"], "tool_allowlist": []},
)
PRINCIPALS = (
    Principal(id="free", role="agent"),
    Principal(id="narrow", role="agent", ceiling=Ceiling(servers=("one", "three"), deny=("read_b",))),
    Principal(id="reader", role="agent", ceiling=Ceiling(allow=("read_*",))),
)
PATTERNS = ("*", "read_*", "write_a", "one/*", "two/read_a", "delete_all", "*_a")


def records() -> tuple[ServerRecord, ...]:
    """`three` shows two of its tools, and `four` is off."""
    return (
        record("one", allowed_tools=("*",)),
        record("two", allowed_tools=("*",)),
        record("three", allowed_tools=("read_a", "write_a")),
        record("four", allowed_tools=("*",), enabled=False),
    )


def tasks() -> tuple[Task, ...]:
    return tuple(task(f"t{number}", **config) for number, config in enumerate(CONFIGS))


def net() -> MemoryNet:
    return MemoryNet(**{name: MemoryServer(tools=tuple(map(definition, TOOLS))) for name in SERVERS})


Scopes = dict[tuple[str, str, SessionRequest], Scope]
"""By principal, task and request."""


class Step(NamedTuple):
    """One call. `target`: the descriptor that was opened as the n-th, whatever became of it since."""

    name: str
    target: int = 0
    text: str = ""
    value: Any = None


def random_steps(chance: Random) -> list[Step]:
    return [_STEPS[chance.randrange(len(_STEPS))](chance) for _ in range(chance.randint(4, 16))]


def _set_param(chance: Random) -> Step:
    return Step("set_param", chance.randrange(6), *chance.choice(_PARAMS)(chance))


def _servers(chance: Random) -> tuple[str, Any]:
    return "mcp.server_ids", chance.sample(NAMES[:-2], chance.randint(0, 3))


def _patterns(chance: Random) -> tuple[str, Any]:
    return chance.choice(("mcp.tool_allowlist", "mcp.tool_denylist")), chance.sample(
        PATTERNS, chance.randint(0, 2)
    )


def _wrong(chance: Random) -> tuple[str, Any]:
    key = chance.choice(("mcp.enabled", "mcp.server_ids", "mcp.tool_allowlist", "mcp.tool_denylist", "mcp.x"))
    return key, chance.choice((None, 1, "one", [1], ["one", None], {}, ["No id", " "]))


_PARAMS: tuple[Callable[[Random], tuple[str, Any]], ...] = (
    lambda chance: ("mcp.enabled", chance.random() < 0.7),
    _servers,
    _servers,
    _patterns,
    _wrong,
    lambda chance: (f"mcp.task_{chance.choice(('tool_allowlist', 'tool_denylist', 'x'))}", ["*"]),
    lambda chance: (chance.choice(("model", "user", "seed")), "x"),
)
_STEPS: tuple[Callable[[Random], Step], ...] = (
    lambda _: Step("cchat_create"),
    _set_param,
    _set_param,
    _set_param,
    lambda chance: Step("mcp_open", text=chance.choice(NAMES)),
    lambda chance: Step("mcp_open", text=chance.choice(SERVERS)),
    lambda chance: Step("mcp_list_tools", chance.randrange(6)),
    lambda chance: Step(
        "mcp_call_tool", chance.randrange(6), chance.choice((*TOOLS, "one.read_a", "mcp__one__read_a"))
    ),
    lambda chance: Step("offered", chance.randrange(6)),
    lambda chance: Step("mcp_close", chance.randrange(6)),
    lambda chance: Step("cchat_close", chance.randrange(6)),
    lambda chance: Step("mcp_registry_get", text=chance.choice(NAMES)),
    lambda _: Step("mcp_registry_list"),
)


@dataclass
class Oracle:
    """What a guest of one principal and one task has, by the layers alone."""

    snapshot: Snapshot
    principal: Principal
    config: Task
    scopes: Scopes
    """Of all guests: composing is what takes long."""
    opened: list[int] = field(default_factory=list)
    """All descriptors there ever were."""
    sessions: dict[int, dict[str, Any]] = field(default_factory=dict)
    servers: dict[int, str] = field(default_factory=dict)
    called: list[tuple[str, str]] = field(default_factory=list)

    def scope(self, request: SessionRequest) -> Scope:
        key = (self.principal.id, self.config.task_id, request)
        if key not in self.scopes:
            policy = parse_task_policy(self.config)
            self.scopes[key] = compose(ScopeInputs(self.snapshot, self.principal.ceiling, policy, request))
        return self.scopes[key]

    def fd_of(self, step: Step) -> int:
        """The descriptor that a step is about. Past those there are: one that was never opened."""
        return self.opened[step.target] if step.target < len(self.opened) else 2**31 - 1

    def expect(self, step: Step) -> tuple[int, list[str]]:
        """The number, positive ones as 0 where they are sizes, and the names."""
        fd = self.fd_of(step)
        if step.name in ("mcp_registry_get", "mcp_registry_list"):
            named = [step.text] if step.text or step.name == "mcp_registry_get" else SERVERS
            shown = [name for name in named if self._reach(name) == OK]
            return (OK if shown or step.name == "mcp_registry_list" else ENOENT), shown
        if step.name in ("mcp_list_tools", "offered"):
            return self._list(step.name, fd)
        return self._number(step, fd), []

    def _number(self, step: Step, fd: int) -> int:
        match step.name:
            case "cchat_create":
                return self._open(self.sessions, {})
            case "set_param":
                return self._set(fd, step)
            case "mcp_open":
                code = self._reach(step.text)
                return self._open(self.servers, step.text) if code == OK else code
            case "mcp_close":
                return EBADF if self.servers.pop(fd, None) is None else OK
            case "cchat_close":
                return EBADF if self.sessions.pop(fd, None) is None else OK
            case _:
                return self._call(fd, step.text)

    def _list(self, name: str, fd: int) -> tuple[int, list[str]]:
        if name == "mcp_list_tools" and fd in self.servers:
            return OK, self._tools(self.servers[fd])
        if name == "offered" and fd in self.sessions:
            return OK, self.offered(fd)
        return EBADF, []

    def may_ever(self, server_id: str, tool: str) -> bool:
        """Whether any request at all could have this tool: written without the policy."""
        config = {key.removeprefix("mcp."): json.loads(text) for key, text in self.config.config.items()}
        allowed = config.get("allowed_server_ids", config.get("default_server_ids", []))
        ceiling = self.principal.ceiling
        allowlists = [one for one in (config.get("tool_allowlist"), ceiling.allow) if one is not None]
        denied = [*config.get("tool_denylist", ()), *ceiling.deny]
        return (
            config["enabled"]
            and server_id in allowed
            and (ceiling.servers is None or server_id in ceiling.servers)
            and all(_matches(one, server_id, tool) for one in allowlists)
            and not _matches(denied, server_id, tool)
        )

    def _open(self, table: dict[int, Any], value: Any) -> int:
        fd = 1_000 + len(self.opened)
        self.opened.append(fd)
        table[fd] = value
        return fd

    def _set(self, fd: int, step: Step) -> int:
        key, value = step.text, step.value
        if fd not in self.sessions:
            return EBADF
        if not key.startswith("mcp."):
            return OK
        if key.startswith("mcp.task_"):
            return EACCES
        is_list = isinstance(value, list) and all(isinstance(one, str) and " " not in one for one in value)
        if not (isinstance(value, bool) if key == "mcp.enabled" else is_list and key != "mcp.x"):
            return EINVAL
        candidate = {**self.sessions[fd], key: value}
        if self.scope(_request(candidate)).refusal is not None:
            return EACCES
        self.sessions[fd] = candidate
        return OK

    def _reach(self, server_id: str) -> int:
        scope = self.scope(SessionRequest(enabled=True, servers=(server_id,)))
        if scope.refusal is not None:
            return EACCES
        return OK if scope.tools else ENOENT

    def _tools(self, server_id: str) -> list[str]:
        scope = self.scope(SessionRequest(enabled=True, servers=(server_id,)))
        return [ref.name for ref in scope.tools]

    def offered(self, fd: int) -> list[str]:
        """The tools that a model is offered in a session."""
        params = self.sessions[fd]
        return [f"{ref.server_id}.{ref.name}" for ref in self.scope(_request(params)).tools]

    def _call(self, fd: int, tool: str) -> int:
        if fd not in self.servers:
            return EBADF
        if tool not in self._tools(self.servers[fd]):
            return ENOENT
        self.called.append((self.servers[fd], tool))
        return OK


def _request(params: Mapping[str, Any]) -> SessionRequest:
    def names(key: str) -> tuple[str, ...] | None:
        return tuple(sorted(set(params[key]))) if key in params else None

    return SessionRequest(
        enabled=params.get("mcp.enabled"),
        servers=names("mcp.server_ids"),
        allow=names("mcp.tool_allowlist"),
        deny=names("mcp.tool_denylist") or (),
    )


def _matches(patterns: Any, server_id: str, tool: str) -> bool:
    return any(fnmatchcase(f"{server_id}/{tool}" if "/" in one else tool, one) for one in patterns)
