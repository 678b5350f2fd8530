"""Small platforms, by hand and at random, for the policy tests."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from types import MappingProxyType
from typing import TypeVar

from toolgate.model.names import ToolRef
from toolgate.model.principals import Ceiling, Key
from toolgate.model.servers import EMPTY, ServerRecord
from toolgate.model.tasks import ENVIRONMENTS, Environment, Profile, Selection, Task
from toolgate.model.tools import (
    HINTS,
    Listing,
    ListState,
    ServerTools,
    Snapshot,
    ToolDefinition,
    read_effects,
)
from toolgate.policy.layers import SessionRequest, TaskPolicy

T = TypeVar("T")

TOKENS = 10
"""What every definition of these worlds costs."""


def offer(
    server_id: str,
    *names: str,
    allowed: tuple[str, ...] = ("*",),
    tags: tuple[str, ...] = (),
    enabled: bool = True,
    state: ListState = "ready",
    quarantined: Mapping[str, str] = EMPTY,
    detail: str = "",
    hints: Mapping[str, Mapping[str, bool]] = MappingProxyType({}),
) -> ServerTools:
    """A server with these tools; everything about it as good as can be unless said otherwise.

    Names that begin with `prompt:` or `resource:` are its prompts and resources; with a brace, templates.
    `hints` are the annotations of its tools, by name.
    """
    uris = [name.removeprefix("resource:") for name in names if name.startswith("resource:")]
    return ServerTools(
        record=ServerRecord(
            server_id=server_id, transport="stdio", allowed_tools=allowed, tags=tags, enabled=enabled
        ),
        state=state,
        tools=MappingProxyType(
            {name: _definition(server_id, name, hints.get(name, {})) for name in names if ":" not in name}
        ),
        prompts=_listings(server_id, [name[7:] for name in names if name.startswith("prompt:")]),
        resources=_listings(server_id, [uri for uri in uris if "{" not in uri]),
        templates=_listings(server_id, [uri for uri in uris if "{" in uri]),
        quarantined=quarantined,
        detail=detail,
    )


def _definition(server_id: str, name: str, hints: Mapping[str, bool]) -> ToolDefinition:
    ref, effects = ToolRef(server_id, name), read_effects(hints)
    return ToolDefinition(ref=ref, raw=b"{}", digest="", tokens=TOKENS, effects=effects)


def _listings(server_id: str, names: list[str]) -> Mapping[str, Listing]:
    return MappingProxyType(
        {name: Listing(server_id=server_id, name=name, raw=b"{}", digest="") for name in names}
    )


def snapshot(
    *offers: ServerTools,
    tasks: tuple[Task, ...] = (),
    profiles: tuple[Profile, ...] = (),
    keys: tuple[Key, ...] = (),
    environment: Environment = "prod",
) -> Snapshot:
    """A platform of these servers and records."""
    return Snapshot(
        environment=environment,
        servers=MappingProxyType({one.record.server_id: one for one in offers}),
        tasks=MappingProxyType({one.task_id: one for one in tasks}),
        profiles=MappingProxyType({one.profile_id: one for one in profiles}),
        keys=MappingProxyType({one.key_id: one for one in keys}),
    )


def refs(*texts: str) -> tuple[ToolRef, ...]:
    """`a/x` as the tool x of the server a; `a/prompt:x` as its prompt."""
    return tuple(ToolRef(*text.split("/", 1)) for text in texts)


@dataclass(frozen=True, kw_only=True)
class World:
    """All that `compose` is given."""

    platform: Snapshot
    ceiling: Ceiling = field(default_factory=Ceiling)
    task: TaskPolicy | None = None
    request: SessionRequest = field(default_factory=SessionRequest)


SERVERS = ("a", "b", "c")
GHOST = "ghost"
TOOLS = ("read", "read_all", "Read", "del", "x.y")
OTHERS = ("prompt:read", "prompt:a/b", "resource:f:/a/read", "resource:g:x", "resource:f:/{x}")
TAGS = ("blue", "red", "dull")
PATTERNS = (
    *("*", "r*", "read", "read*", "*_all", "?ead", "d*l", "x.?", "*e*a*"),
    *("*/*", "*/read", "a/*", "b/d?l", "?/x*", "ghost/x", "c/read"),
    *("@read_only", "@destructive", "@open_world", "b/@idempotent", "?/@read_only", "a/@destructive"),
)
KIND_PATTERNS = (
    *("prompt:*", "prompt:read", "prompt:a/*", "prompt:*/a/b", "prompt:?/r*", "prompt:b/read"),
    *("resource:*", "resource:f:/*", "resource:a/f:*", "resource:*/g:x", "resource:f:/{x}", "resource:?:*"),
)
ALL_PATTERNS = PATTERNS + KIND_PATTERNS + KIND_PATTERNS


class Maker:
    """Draws whole worlds from one seed. Every list is sometimes absent, sometimes empty."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)

    def world(self) -> World:
        return World(
            platform=self.platform(),
            ceiling=self._ceiling() if self._one_in(3) else Ceiling(),
            task=None if self._one_in(3) else self._task(),
            request=SessionRequest() if self._one_in(3) else self._request(),
        )

    def platform(self) -> Snapshot:
        return snapshot(
            *(self._offer(server_id) for server_id in SERVERS if not self._one_in(8)),
            profiles=tuple(self._profile(name) for name in ("p", "q") if not self._one_in(4)),
            environment=self.pick(ENVIRONMENTS),
        )

    def pick(self, choices: tuple[T, ...]) -> T:
        return self._random.choice(choices)

    def shuffled(self, items: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(self._random.sample(items, len(items)))

    def _one_in(self, count: int) -> bool:
        return self._random.randrange(count) == 0

    def some(self, choices: tuple[str, ...]) -> tuple[str, ...]:
        most = self._random.choice((0, 1, 2, 2, 3, 3))
        return tuple(self._random.sample(choices, min(most, len(choices))))

    def _maybe(self, choices: tuple[str, ...]) -> tuple[str, ...] | None:
        return self.some(choices) if self._one_in(4) else None

    def _offer(self, server_id: str) -> ServerTools:
        names = tuple(self._random.sample(TOOLS, self._random.randrange(len(TOOLS))))
        names += tuple(self._random.sample(OTHERS, self._random.randrange(len(OTHERS))))
        states: tuple[ListState, ...] = ("ready", "ready", "ready", "pending", "list_failed")
        return offer(
            server_id,
            *names,
            allowed=("*", "prompt:*", "resource:*") if self._one_in(2) else self.some(ALL_PATTERNS),
            tags=self.some(TAGS),
            enabled=not self._one_in(20),
            state=self.pick(states),
            hints={name: self._hints() for name in names},
            quarantined={"bad": "no schema", "prompt:read": "no name"} if self._one_in(6) else {},
        )

    def _hints(self) -> Mapping[str, bool]:
        hints = {hint: self._random.choice((True, False, None)) for hint in HINTS.values()}
        return {hint: value for hint, value in hints.items() if value is not None}

    def _selection(self) -> Selection:
        return Selection(
            servers=self._maybe(SERVERS),
            tags=self.some(TAGS) if self._one_in(6) else None,
            allow=self._maybe(ALL_PATTERNS),
            deny=self.some(ALL_PATTERNS) if self._one_in(4) else (),
        )

    def _profile(self, name: str) -> Profile:
        return Profile(
            profile_id=name,
            selection=self._selection(),
            environments={"dev": self._selection()} if self._one_in(2) else {},
        )

    def _ceiling(self) -> Ceiling:
        return Ceiling(
            tasks=self.pick((None, None, None, ("t",), ("u",))),
            servers=self._maybe((*SERVERS, GHOST)),
            allow=self._maybe(ALL_PATTERNS),
            deny=self.some(ALL_PATTERNS) if self._one_in(3) else (),
        )

    def _task(self) -> TaskPolicy:
        default = self.some((*SERVERS, GHOST))
        more = self._maybe((*SERVERS, GHOST))
        return TaskPolicy(
            task_id="t",
            enabled=not self._one_in(12),
            default=default,
            allowed=None if more is None else tuple({*default, *more}),
            allow=self._maybe(ALL_PATTERNS),
            deny=self.some(ALL_PATTERNS) if self._one_in(3) else (),
            profile=self.pick((None, None, None, None, "p", "q")),
            overrides=self._selection() if self._one_in(3) else Selection(),
            tags=self.some(TAGS) if self._one_in(5) else None,
            is_default_empty=not default and self._one_in(2),
        )

    def _request(self) -> SessionRequest:
        return SessionRequest(
            enabled=self.pick((None, None, None, None, None, True, True, False)),
            servers=self.some((*SERVERS, GHOST)) if self._one_in(4) else None,
            tools=self.some(PATTERNS) if self._one_in(2) else None,
            allow=self._maybe(ALL_PATTERNS),
            deny=self.some(ALL_PATTERNS) if self._one_in(4) else (),
            profile=self.pick((None, None, None, None, "p", "q")),
        )
