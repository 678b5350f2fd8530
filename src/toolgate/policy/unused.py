"""Grants that nobody uses: what a task or a key may call and did not, and what that costs in each list."""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from toolgate.model.names import ToolRef, kind_of
from toolgate.model.snapshot import Snapshot


class UnusedTool(NamedTuple):
    """A tool that is granted and was not used."""

    ref: ToolRef
    tokens: int
    """What its definition costs in each list."""
    last_ms: int | None
    """When it was used last, before the time that is asked about. None: never, as far as is known."""


class Grant(NamedTuple):
    """What one holder is granted, and what it does not use of that."""

    tools: int
    unused: tuple[UnusedTool, ...]
    """By server and name."""

    @property
    def unused_tokens(self) -> int:
        return sum(one.tokens for one in self.unused)


def weigh_grant(
    platform: Snapshot,
    reach: Collection[ToolRef],
    *,
    used: Collection[ToolRef],
    last_ms: Mapping[ToolRef, int],
) -> Grant:
    """What of `reach` is not in `used`. Tools alone: prompts and resources cost nothing until asked for."""
    tools = [ref for ref in reach if not kind_of(ref.name)]
    return Grant(
        tools=len(tools),
        unused=tuple(
            UnusedTool(ref, _tokens(platform, ref), last_ms.get(ref))
            for ref in sorted(tools)
            if ref not in used
        ),
    )


def _tokens(platform: Snapshot, ref: ToolRef) -> int:
    return platform.servers[ref.server_id].tools[ref.name].tokens
