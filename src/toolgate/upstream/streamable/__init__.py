"""MCP servers over streamable HTTP, of both eras, on the gateway's own HTTP client.

What a caller sent to the gateway (its credentials, cookies, headers) does not exist here: a server gets what
its own record says, and the message.
"""

from toolgate.upstream.http.streamable import StreamableConnector

__all__ = ["StreamableConnector"]
