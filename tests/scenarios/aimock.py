"""aimock, a scripted model by others: an independent opinion on what an OpenAI-compatible server says.

What it says is decided by fixtures, each a match and a response; what it was asked is in its journal.
"""

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2

from tests.eventually import eventually
from tests.node import node, node_file

Json = dict[str, Any]

START_S = 60.0
_LISTENING = "listening on "


@dataclass
class Aimock:
    """One that serves."""

    url: str
    key: str

    def asked(self) -> list[Json]:
        """The bodies of the chat completions it was asked for, in order, as they came."""
        return [
            {name: value for name, value in one["body"].items() if name != "_endpointType"}
            for one in self._journal()
        ]

    def headers(self) -> list[dict[str, str]]:
        """The headers of each."""
        return [one["headers"] for one in self._journal()]

    def _journal(self) -> list[Json]:
        bearer = {"authorization": f"Bearer {self.key}"}
        response = httpx2.get(f"{self.url}/__aimock/journal", headers=bearer, trust_env=False, timeout=60)
        return [one for one in response.raise_for_status().json() if one["path"] == "/v1/chat/completions"]


def says(question: str, *turns: Json) -> list[Json]:
    """A conversation: to who asks `question`, one response a turn."""
    return [
        {"match": {"userMessage": question, "turnIndex": turn}, "response": response}
        for turn, response in enumerate(turns)
    ]


def calls(*named: tuple[str, Json]) -> Json:
    """A response that calls tools, in parallel where there are several."""
    return {"toolCalls": [{"name": name, "arguments": arguments} for name, arguments in named]}


@contextmanager
def open_aimock(directory: Path, fixtures: Sequence[Json], *, key: str) -> Iterator[Aimock]:
    """It, at a port of its own choice. What no fixture matches is an error, and so is any other `key`."""
    file = directory / "fixtures.json"
    file.write_text(json.dumps({"fixtures": list(fixtures)}), "utf-8")
    log = directory / "aimock.log"
    script = node_file("@copilotkit/aimock/dist/cli.js")
    command = [node(), script, "-p", "0", "-f", str(file), "--strict", "--validate-on-load"]
    with (
        log.open("wb") as out,
        subprocess.Popen(command, stdout=out, stderr=out, env={"AIMOCK_API_KEYS": key}) as process,
    ):
        try:
            yield Aimock(eventually(lambda: _address_in(log.read_text("utf-8")), START_S), key)
        finally:
            process.terminate()


def _address_in(log: str) -> str | None:
    found = [line.partition(_LISTENING)[2] for line in log.splitlines() if _LISTENING in line]
    return found[0] if found else None
