"""What the operator of this gateway demands of every record that is written, whoever writes it.

How often callers change what they have chosen for themselves.

Each change is a transaction of the registry. Those are else made by people who govern; here each agent makes
them, so each has a limit. Held by `Control`.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from toolgate.errors import InvalidRecord, PlanRequired, TooManyAttempts
from toolgate.model.chat import ChatUpstream
from toolgate.model.names import REFERENCE, matches_glob
from toolgate.model.revisions import Kind
from toolgate.model.servers import ServerRecord, StdioLaunch
from toolgate.registry.records.codec import Record
from toolgate.upstream.http.egress import Egress, EgressRefused, parse_target

ANY_COMMAND: Final = "*"
LOADER_VARIABLES: Final = frozenset({"PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT"})
"""Variables by which a program of an allowed name would be another one."""
PLANNED_KINDS: Final[frozenset[Kind]] = frozenset({"server", "task", "profile", "chat_upstream"})
"""The kinds a plan can show: what changes, and what each task gains and loses by it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPolicy:
    """The operator's demands."""

    allowed_commands: tuple[str, ...] = (ANY_COMMAND,)
    """Patterns of the programs that records may start. One without a `/` means a program on the PATH, one
    that begins with `./` a program among the files of a package."""
    requires_plan: bool = False
    """Whether a change must name the plan that showed it."""
    egress: Egress = field(default_factory=lambda: Egress(allow_private=True))
    """Where servers and chat upstreams may be."""


def check_plan(terms: OperatorPolicy, kind: Kind, plan_id: str | None) -> None:
    """Raises PlanRequired where a change must have been looked at before it is made, and no plan is named."""
    if terms.requires_plan and plan_id is None and kind in PLANNED_KINDS:
        raise PlanRequired("this gateway takes reviewed changes only: the change names no plan")


def check_operator_policy(terms: OperatorPolicy, record: Record) -> None:
    """Raises InvalidRecord for what this gateway would not start or connect to."""
    if isinstance(record, ChatUpstream):
        _check_address(terms, record.base_url, "base_url")
    elif isinstance(record, ServerRecord):
        _check_server(terms, record)


def _check_server(terms: OperatorPolicy, record: ServerRecord) -> None:
    if record.stdio is not None:
        _check_command(terms, record.stdio, is_packaged=record.package is not None)
    if record.http is not None:
        _check_address(terms, record.http.url, "http.url")
        if record.http.oauth is not None and record.http.oauth.issuer is not None:
            _check_address(terms, record.http.oauth.issuer, "http.oauth.issuer")


def _check_command(terms: OperatorPolicy, launch: StdioLaunch, *, is_packaged: bool) -> None:
    command = launch.command
    if not any(_allows(pattern, command, is_packaged=is_packaged) for pattern in terms.allowed_commands):
        raise InvalidRecord(
            f"`stdio.command`: `{command[:80]}` is not among the programs this gateway may start",
            hint="use one of `allowed_commands`, or have the operator add it there",
        )
    found_by = sorted(LOADER_VARIABLES & launch.env.keys())
    if found_by and ANY_COMMAND not in terms.allowed_commands:
        raise InvalidRecord(
            f"`stdio.env.{found_by[0]}`: would make another program of an allowed one",
            hint="leave it to the node's own environment, or have the operator allow any command: `*`",
        )


def _allows(pattern: str, command: str, *, is_packaged: bool) -> bool:
    if pattern == ANY_COMMAND:
        return True
    if REFERENCE.search(command):
        return False  # what it stands for is known on the node alone
    # Without a package it would be found from a directory that the record itself names.
    if "/" in command and not command.startswith("/") and not is_packaged:
        return False
    # A star must not climb out of the directory its author meant.
    if "/" in command and ("/" not in pattern or ".." in command.split("/")):
        return False
    return matches_glob(pattern, command)


def _check_address(terms: OperatorPolicy, url: str, named: str) -> None:
    """Where the host is written out. One that a reference or a name stands for is checked on connecting."""
    if REFERENCE.search(url):
        return
    try:
        terms.egress.check_literal(parse_target(url))
    except EgressRefused as exc:
        raise InvalidRecord(f"`{named}`: {exc}") from exc


MAX_CHANGES: Final = 30
"""Of one caller in a minute: a person who goes through a list of switches is not slowed down."""
MAX_ALL_CHANGES: Final = 600
"""Of all callers together in a minute: with 10,000 revisions kept, no watcher loses its place in the log."""
WINDOW_S: Final = 60.0


class IntegrationRateLimit:
    """Counts changes in windows of a minute. `clock_s` is monotonic."""

    def __init__(self, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._began_s = clock_s()
        self._changes: dict[str, int] = {}
        self._total = 0

    def count(self, principal_id: str) -> None:
        """One more change by `principal_id`. Raises TooManyAttempts where that is one too many."""
        now = self._clock_s()
        if now - self._began_s >= WINDOW_S:
            self._began_s, self._total = now, 0
            self._changes.clear()
        changes = self._changes.get(principal_id, 0)
        if changes >= MAX_CHANGES or self._total >= MAX_ALL_CHANGES:
            wait_s = max(1, round(self._began_s + WINDOW_S - now))
            raise TooManyAttempts(
                "integrations are changed too often",
                hint=f"wait {wait_s} s",
                data={"retry_after_s": wait_s},
            )
        self._changes[principal_id] = changes + 1
        self._total += 1
