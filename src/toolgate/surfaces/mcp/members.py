"""The members of MCP messages that decide something, and those that only look like one of them.

A server behind the gateway may ignore letter case, stop at a NUL or normalise Unicode. Each of these objects
is checked before anything is looked up, so that such a server reads the names that were authorised.
"""

from collections.abc import Mapping
from typing import Any, Final

from toolgate.model.json_text import KnownNames, ambiguous, find_deep_clash
from toolgate.model.protocol import (
    CLIENT_CAPABILITIES_KEY,
    CLIENT_INFO_KEY,
    LOG_LEVEL_KEY,
    PROTOCOL_VERSION_KEY,
    RESERVED_PREFIX,
)

ENVELOPE: Final = KnownNames("jsonrpc", "id", "method", "params", "result", "error")
PARAMS: Final = KnownNames(
    *("name", "arguments", "_meta", "uri", "ref", "argument", "context", "cursor", "level", "task"),
    *("requestState", "inputResponses", "notifications", "requestId", "reason", "progressToken", "progress"),
    *("protocolVersion", "capabilities", "clientInfo", "tools"),
)
"""All that any method has, as a server may look for any of them."""
RESULT: Final = KnownNames("action", "content", "_meta", "model", "role", "stopReason", "roots")
"""Of what a client answers to a question."""
_OBJECTS: Final[Mapping[str, KnownNames]] = {
    "_meta": KnownNames(
        *(PROTOCOL_VERSION_KEY, CLIENT_CAPABILITIES_KEY, CLIENT_INFO_KEY, LOG_LEVEL_KEY),
        *("progressToken", "traceparent", "tracestate", "baggage"),
        prefixes=(RESERVED_PREFIX,),
    ),
    "ref": KnownNames("type", "name", "uri", "title"),
    "argument": KnownNames("name", "value"),
    "context": KnownNames("arguments"),
    "notifications": KnownNames(
        *("toolsListChanged", "promptsListChanged", "resourcesListChanged", "resourceSubscriptions")
    ),
}


def find_fault(params: Mapping[str, Any]) -> str:
    """Why some reader may find something else in `params` than is decided on here; empty where none does.

    What is in `arguments` is the tool's own: that is checked where the tool is known.
    """
    impostor = PARAMS.find_impostor(params)
    if impostor is not None:
        return ambiguous(impostor, "`params`")
    for name, value in params.items():
        known = _OBJECTS.get(name)
        if known is not None and isinstance(value, dict):
            impostor = known.find_impostor(value)
        elif name == "inputResponses":
            impostor = find_deep_clash(value)
        if impostor is not None:
            return ambiguous(impostor, f"`{name}`")
    return ""
