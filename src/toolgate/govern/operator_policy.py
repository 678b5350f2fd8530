"""Operator policy: limits for every record, and a rate limit for changes of integrations."""

import time
from collections import Counter
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
"""Variables that make the loader run another program under an allowed name."""
PLANNED_KINDS: Final[frozenset[Kind]] = frozenset({"server", "task", "profile", "chat_upstream"})
"""The kinds whose changes a plan shows, with what each task gains and loses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorPolicy:
    """The operator's requirements for every record, by any writer."""

    allowed_commands: tuple[str, ...] = (ANY_COMMAND,)
    """Patterns of the programs that records may start. A pattern without a `/` matches a program on the PATH,
    one that begins with `./` a program among the files of a package."""
    requires_plan: bool = False
    """Whether a change must name its plan."""
    egress: Egress = field(default_factory=lambda: Egress(allow_private=True))
    """Which addresses servers and chat upstreams may have."""


def check_plan(policy: OperatorPolicy, kind: Kind, plan_id: str | None) -> None:
    """Raise PlanRequired if this change must name a plan and does not."""
    if policy.requires_plan and plan_id is None and kind in PLANNED_KINDS:
        raise PlanRequired("this gateway requires a plan, and the change names none")


def check_operator_policy(policy: OperatorPolicy, record: Record) -> None:
    """Raise InvalidRecord for a program or address that the operator does not allow."""
    if isinstance(record, ChatUpstream):
        _check_address(policy, record.base_url, "base_url")
    if not isinstance(record, ServerRecord):
        return
    if record.stdio is not None:
        _check_command(policy, record.stdio, is_packaged=record.package is not None)
    if record.http is not None:
        _check_address(policy, record.http.url, "http.url")
        if record.http.oauth is not None and record.http.oauth.issuer is not None:
            _check_address(policy, record.http.oauth.issuer, "http.oauth.issuer")


def _check_command(policy: OperatorPolicy, launch: StdioLaunch, *, is_packaged: bool) -> None:
    command = launch.command
    if not any(_allows(pattern, command, is_packaged=is_packaged) for pattern in policy.allowed_commands):
        raise InvalidRecord(
            f"`stdio.command`: the operator does not allow this gateway to start `{command[:80]}`",
            hint="use a program in the setting `allowed_commands`, or ask the operator to add it",
        )
    found_by = sorted(LOADER_VARIABLES & launch.env.keys())
    if found_by and ANY_COMMAND not in policy.allowed_commands:
        raise InvalidRecord(
            f"`stdio.env.{found_by[0]}`: this variable could make an allowed program run another one",
            hint="set it in the node's environment, or ask the operator to allow any command (`*`)",
        )


def _allows(pattern: str, command: str, *, is_packaged: bool) -> bool:
    if pattern == ANY_COMMAND:
        return True
    if REFERENCE.search(command):
        return False  # only the node knows its value
    # Without a package, it is resolved in a directory that the record names.
    if "/" in command and not command.startswith("/") and not is_packaged:
        return False
    # A star must not match a path out of its directory.
    if "/" in command and ("/" not in pattern or ".." in command.split("/")):
        return False
    return matches_glob(pattern, command)


def _check_address(policy: OperatorPolicy, url: str, named: str) -> None:
    """Check a literal host. A reference or a host name is checked on connecting."""
    if REFERENCE.search(url):
        return
    try:
        policy.egress.check_literal(parse_target(url))
    except EgressRefused as exc:
        raise InvalidRecord(f"`{named}`: {exc}") from exc


MAX_CHANGES: Final = 30  # per caller and minute: enough for a person who clicks through a list of switches
MAX_ALL_CHANGES: Final = 600
"""Of all callers per minute: the log keeps 10,000 revisions, so no watcher loses its place in it."""
WINDOW_S: Final = 60.0  # the two limits above are per minute


class IntegrationRateLimit:
    """A rate limit for changes of integrations: each change is a transaction of the registry."""

    def __init__(self, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._began_s = clock_s()
        self._changes: Counter[str] = Counter()

    def count(self, principal_id: str) -> None:
        """Count one change by `principal_id`. Raises TooManyAttempts beyond a limit."""
        now = self._clock_s()
        if now - self._began_s >= WINDOW_S:
            self._began_s = now
            self._changes.clear()
        if self._changes[principal_id] >= MAX_CHANGES or self._changes.total() >= MAX_ALL_CHANGES:
            wait_s = max(1, round(self._began_s + WINDOW_S - now))
            raise TooManyAttempts(
                "integrations changed too often in this minute",
                hint=f"retry in {wait_s} s",
                data={"retry_after_s": wait_s},
            )
        self._changes[principal_id] += 1
