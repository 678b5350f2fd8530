"""The shapes of the official MCP registry's read API. Models, for names that no value of Python can have."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from toolgate.registry.records.body import Documented


class _Official(Documented, BaseModel):
    model_config = ConfigDict(extra="forbid", defer_build=True)


class OfficialRemote(_Official):
    """Where a server is reached: at this gateway."""

    type: Literal["streamable-http"]
    url: str
    headers: list[dict[str, Any]] | None = None
    """What a client sends to be let in, as something to fill in."""


class OfficialServer(_Official):
    """A server as `server.json` describes it. How the gateway itself starts or reaches it is not said."""

    schema_url: str = Field(alias="$schema")
    name: str
    """The gateway's namespace, a slash, the server's id."""
    title: str | None = None
    description: str
    version: str
    """Of its package; without one, `0.0.` and the revision at which its record was written."""
    remotes: list[OfficialRemote]


class OfficialMeta(_Official):
    """What a registry says of an entry."""

    status: Literal["active"]
    published_at: datetime = Field(alias="publishedAt")
    updated_at: datetime = Field(alias="updatedAt")
    is_latest: bool = Field(alias="isLatest")


class OfficialMetas(_Official):
    """What registries say of an entry, by their names."""

    official: OfficialMeta = Field(alias="io.modelcontextprotocol.registry/official")


class OfficialEntry(_Official):
    """One version of a server."""

    server: OfficialServer
    meta: OfficialMetas = Field(alias="_meta")


class OfficialPage(_Official):
    """Which part of the list this is."""

    next_cursor: str | None = Field(default=None, alias="nextCursor")
    """Where the next page begins; absent: there is none."""
    count: int
    """How many are in this page."""


class OfficialList(_Official):
    """Servers that the caller can reach, and no others."""

    servers: list[OfficialEntry]
    metadata: OfficialPage


class OfficialNotFound(_Official):
    """Nothing of that name, or nothing that the caller can reach."""

    error: str
