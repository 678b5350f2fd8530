"""The constants of MCP: its revisions, the names it reserves in `_meta`, and its methods."""

from collections.abc import Mapping
from typing import Final

from toolgate.model.tools import ListKind

MODERN_VERSION: Final = "2026-07-28"
"""The stateless revision: every request carries its own envelope."""
LEGACY_VERSIONS: Final = ("2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05")
"""The session-based revisions, newest first."""

RESERVED_PREFIX: Final = "io.modelcontextprotocol/"
PROTOCOL_VERSION_KEY: Final = RESERVED_PREFIX + "protocolVersion"
CLIENT_CAPABILITIES_KEY: Final = RESERVED_PREFIX + "clientCapabilities"
CLIENT_INFO_KEY: Final = RESERVED_PREFIX + "clientInfo"
SERVER_INFO_KEY: Final = RESERVED_PREFIX + "serverInfo"
SUBSCRIPTION_ID_KEY: Final = RESERVED_PREFIX + "subscriptionId"
LOG_LEVEL_KEY: Final = RESERVED_PREFIX + "logLevel"

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
"""From the least to the most severe."""

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
"""The method of each list, and the member of its result."""
LIST_CHANGED: Final[Mapping[str, str]] = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
}
"""The list-changed notifications, by capability. Templates count as resources."""
UPDATED: Final = "notifications/resources/updated"
LOG_MESSAGE: Final = "notifications/message"
PROGRESS: Final = "notifications/progress"
CANCELLED: Final = "notifications/cancelled"

CAPABILITY_OF: Final[Mapping[str, str]] = {
    "elicitation/create": "elicitation",
    "roots/list": "roots",
    "sampling/createMessage": "sampling",
}
"""The requests of servers to clients, and the client capability that each requires."""
