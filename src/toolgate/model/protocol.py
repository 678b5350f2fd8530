"""What MCP itself fixes: its revisions, the names it reserves in `_meta`, and those of its methods."""

from collections.abc import Mapping
from typing import Final

from toolgate.model.tools import ListKind

MODERN_VERSION: Final = "2026-07-28"
"""The stateless era: every request carries its own envelope."""
LEGACY_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The handshake era, newest first."""

RESERVED_PREFIX: Final = "io.modelcontextprotocol/"
PROTOCOL_VERSION_KEY: Final = RESERVED_PREFIX + "protocolVersion"
CLIENT_CAPABILITIES_KEY: Final = RESERVED_PREFIX + "clientCapabilities"
CLIENT_INFO_KEY: Final = RESERVED_PREFIX + "clientInfo"
SERVER_INFO_KEY: Final = RESERVED_PREFIX + "serverInfo"
SUBSCRIPTION_ID_KEY: Final = RESERVED_PREFIX + "subscriptionId"
LOG_LEVEL_KEY: Final = RESERVED_PREFIX + "logLevel"

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""From the least severe to the most."""

LIST_METHODS: Final[Mapping[ListKind, str]] = {
    "tools": "tools/list",
    "prompts": "prompts/list",
    "resources": "resources/list",
    "templates": "resources/templates/list",
}
LIST_MEMBERS: Final[Mapping[ListKind, str]] = {
    "tools": "tools",
    "prompts": "prompts",
    "resources": "resources",
    "templates": "resourceTemplates",
}
"""How each list is asked for, and the member of the answer that it is."""
LIST_CHANGED: Final[Mapping[str, str]] = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
}
"""How changed lists are told of, by the capability of whoever has them. Templates count as resources."""
UPDATED: Final = "notifications/resources/updated"
LOG_MESSAGE: Final = "notifications/message"
PROGRESS: Final = "notifications/progress"
CANCELLED: Final = "notifications/cancelled"

CAPABILITY_OF: Final[Mapping[str, str]] = {
    "elicitation/create": "elicitation",
    "roots/list": "roots",
    "sampling/createMessage": "sampling",
}
"""What a server may ask a client, and what the client must have said it can do."""
