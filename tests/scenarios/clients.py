"""Small MCP clients of both eras, on plain HTTP: what they send and get is all there is to see."""

import json
import ssl
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2

MODERN = "2026-07-28"
LEGACY = "2025-11-25"
META = {
    "io.modelcontextprotocol/protocolVersion": MODERN,
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "scenario", "version": "1"},
}
ACCEPT = {"accept": "application/json, text/event-stream"}
UNTRUSTING = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients of plain HTTP: to read the authorities of the system takes 25 ms for each."""


class McpClient(ABC):
    """What both eras have in common: list and call."""

    def __init__(self, http: httpx2.Client, url: str) -> None:
        self._http = http
        self.url = url

    @abstractmethod
    def request(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """The whole JSON-RPC answer."""

    def tools(self) -> list[str]:
        """The names of the tools this client sees."""
        return [tool["name"] for tool in self.request("tools/list")["result"]["tools"]]

    def call(self, name: str, **arguments: Any) -> Any:
        """The whole JSON-RPC answer to a call."""
        return self.request("tools/call", {"name": name, "arguments": arguments})

    def text(self, name: str, **arguments: Any) -> str:
        """The text a tool answers with."""
        (content,) = self.call(name, **arguments)["result"]["content"]
        return str(content["text"])


class ModernClient(McpClient):
    """Of the stateless era: each request is alone."""

    def request(self, method: str, params: dict[str, Any] | None = None) -> Any:
        body, headers = self._message(method, params or {})
        return self._http.post(self.url, json=body, headers=headers).json()

    @contextmanager
    def changes(self) -> Iterator[Iterator[str]]:
        """The methods of the notifications on a stream of its own, from the acknowledgement on."""
        body, headers = self._message("subscriptions/listen", {"notifications": {"toolsListChanged": True}})
        with self._http.stream("POST", self.url, json=body, headers=headers) as response:
            yield _methods_in(response.iter_lines())

    def _message(self, method: str, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": META}}
        headers = {**ACCEPT, "mcp-protocol-version": MODERN, "mcp-method": method}
        if "name" in params:
            headers["mcp-name"] = params["name"]
        return body, headers


class LegacyClient(McpClient):
    """Of the handshake era: it opens a session, or goes on with one that is open."""

    def __init__(self, http: httpx2.Client, url: str, session: dict[str, str] | None = None) -> None:
        super().__init__(http, url)
        self.session = session or self._open()
        """The headers that name it."""

    def _open(self) -> dict[str, str]:
        info = {"name": "scenario", "version": "1"}
        server_info = {"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": info}
        response = self._post("initialize", server_info, {})
        return {
            "mcp-session-id": response.headers["mcp-session-id"],
            "mcp-protocol-version": response.json()["result"]["protocolVersion"],
        }

    def request(self, method: str, params: dict[str, Any] | None = None) -> Any:
        return self._post(method, params or {}, self.session).json()

    @contextmanager
    def changes(self) -> Iterator[Iterator[str]]:
        """The methods of the notifications on the session's stream, once it is open."""
        with self._http.stream("GET", self.url, headers={**ACCEPT, **self.session}) as response:
            lines = response.iter_lines()
            next(lines)  # which comes as soon as it is open
            yield _methods_in(lines)

    def _post(self, method: str, params: dict[str, Any], headers: dict[str, str]) -> httpx2.Response:
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
        return self._http.post(self.url, json=body, headers={**ACCEPT, **headers})


def error_of(response: Any) -> str:
    """The code of the call that failed."""
    return str(response["result"]["_meta"]["toolgate/error"]["code"])


def _methods_in(lines: Iterator[str]) -> Iterator[str]:
    """Of the messages of an event stream; a result has none and counts as `result`."""
    for line in lines:
        if line.startswith("data: {"):
            yield str(json.loads(line.removeprefix("data: ")).get("method", "result"))
