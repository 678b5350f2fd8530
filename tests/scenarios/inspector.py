"""The official Inspector's command line as a client: one process a request, of any era and transport."""

import json
import tempfile
from dataclasses import dataclass
from typing import Any

from tests.node import COMPILED_ONCE, node, node_file
from tests.scenarios.gateway import run

Json = dict[str, Any]


@dataclass(frozen=True)
class Inspector:
    """How it connects."""

    era: str
    transport: str = "http"

    def request(self, url: str, method: str, *words: str) -> Json:
        """The result of one request."""
        launcher = node_file("@modelcontextprotocol/inspector/clients/launcher/build/index.js")
        how = ["--transport", self.transport, "--protocol-era", self.era, "--format", "json"]
        with tempfile.TemporaryDirectory() as home:
            environ = {"HOME": home, **COMPILED_ONCE}
            ran = run([node(), launcher, "--cli", url, *how, "--method", method, *words], environ)
        assert ran.code == 0, ran.out + ran.err
        result: Json = ran.json["result"]
        return result

    def call(self, url: str, name: str, arguments: Json) -> Json:
        """The result of a tool."""
        return self.request(url, "tools/call", "--tool-name", name, "--tool-args-json", json.dumps(arguments))
