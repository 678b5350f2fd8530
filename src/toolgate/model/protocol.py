"""What MCP itself fixes: its revisions, and the names it reserves in `_meta`."""

from typing import Final

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
