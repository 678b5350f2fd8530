"""How a guest narrows one of its MCP descriptors: fewer tools, fewer calls, less time, less output.

A descriptor starts with all that the task lets its guest have. Each change can only take away. The lists are
checked by the policy of the request layer, so a tool that a descriptor excludes is one that does not exist.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

import msgspec

from toolgate.errors import InvalidParams, PolicyDenied
from toolgate.model.effects import UNSTATED
from toolgate.model.names import ToolRef, kind_of
from toolgate.model.raw import UNREADABLE
from toolgate.policy.layers import SessionRequest, parse_session_params
from toolgate.policy.patterns import Patterns, effect_of, has_wildcard

MAX_POLICY_BYTES: Final = 65_536
"""Of one change: a thousand patterns of the usual length."""

_MIN_TIMEOUT_MS: Final = 100
"""As of a server's own `tool_timeout_ms`: less would end calls before they reach it."""
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class _Change(msgspec.Struct, forbid_unknown_fields=True):
    """The JSON object of one change. A null is not an absent member, and refused."""

    allow: list[str] | msgspec.UnsetType = msgspec.UNSET
    deny: list[str] | msgspec.UnsetType = msgspec.UNSET
    max_calls: _Count | msgspec.UnsetType = msgspec.UNSET
    timeout_ms: _Count | msgspec.UnsetType = msgspec.UNSET
    max_output_bytes: _Count | msgspec.UnsetType = msgspec.UNSET


_decode_change = msgspec.json.Decoder(_Change).decode


@dataclass(frozen=True, slots=True, kw_only=True)
class FdPolicy:
    """What is left of a descriptor. None: this part does not restrict."""

    allow: tuple[str, ...] | None = None
    deny: tuple[str, ...] = ()
    max_calls: int | None = None
    """Counted since the descriptor was opened."""
    timeout_ms: int | None = None
    max_output_bytes: int | None = None

    def narrow(self, data: bytes, *, server_id: str) -> "FdPolicy":
        """This and what the JSON in `data` takes away. Raises InvalidParams, and PolicyDenied for more."""
        try:
            change = _decode_change(data)
        except UNREADABLE as exc:
            raise InvalidParams(f"the policy of the descriptor cannot be read: {exc}") from exc
        lists = {
            f"mcp.tool_{name}list": value
            for name, value in (("allow", change.allow), ("deny", change.deny))
            if value is not msgspec.UNSET
        }
        if self.deny and "mcp.tool_denylist" in lists:
            # The limits of one list hold for all denials together: each is held against each tool.
            lists["mcp.tool_denylist"] = [*self.deny, *lists["mcp.tool_denylist"]]
        asked = parse_session_params(lists)
        if asked.allow is not None:
            self._check_within(asked.allow, server_id)
        return FdPolicy(
            allow=self.allow if asked.allow is None else asked.allow,
            deny=asked.deny or self.deny,
            max_calls=_least(self.max_calls, change.max_calls),
            timeout_ms=_least(self.timeout_ms, change.timeout_ms, at_least=_MIN_TIMEOUT_MS),
            max_output_bytes=_least(self.max_output_bytes, change.max_output_bytes),
        )

    def request(self, server_id: str) -> SessionRequest:
        """What a call on the descriptor asks of policy."""
        return SessionRequest(enabled=True, servers=(server_id,), allow=self.allow, deny=self.deny)

    def shown(self) -> Mapping[str, Any]:
        """The parts that restrict."""
        parts = {name: getattr(self, name) for name in FdPolicy.__slots__}
        return {name: value for name, value in parts.items() if value not in (None, ())}

    def _check_within(self, allow: tuple[str, ...], server_id: str) -> None:
        """PolicyDenied for an entry that the list so far does not hold.

        A pattern, an effect, a prompt or a resource is within it only as the same text: whether one pattern
        covers another is not computed.
        """
        if self.allow is None:
            return
        before = Patterns.of(self.allow)
        for entry in allow:
            ref = ToolRef(server_id, entry.removeprefix(f"{server_id}/"))
            is_name = not has_wildcard(entry) and effect_of(entry) is None and not kind_of(entry)
            matches = is_name and before.first_match(ref, effects=UNSTATED, is_deny=False) is not None
            if entry not in self.allow and not matches:
                raise PolicyDenied(
                    f"`{ascii(entry[:80])[1:-1]}` is not within what the descriptor allows",
                    hint="a descriptor can only be narrowed; open the server again for another list",
                )


ALL: Final = FdPolicy()


def _least(now: int | None, asked: int | msgspec.UnsetType, *, at_least: int = 0) -> int | None:
    if isinstance(asked, msgspec.UnsetType):
        return now
    wanted = max(asked, at_least)
    return wanted if now is None else min(now, wanted)
