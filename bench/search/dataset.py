"""LiveMCPBench as sets of queries: real servers with their tools, tasks with the tools that solve them.

How annotations are read:
- `Steps` and `Tools` are numbered lists. A tool is named without its server, so every tool of that name is right.
- task -> tools: the task's text; right are all its tools that exist. A task with none of them is left out.
- step -> tool: tasks with as many steps as tools, paired in order (an assumption); steps whose tool does not exist
  are left out.
- The half of a task is the parity of the first byte of the SHA-256 of its id. Even is for tuning, odd is held out.
"""

import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from toolgate.catalog.word_search import SearchEntry, collect_parameter_text

_NUMBERED = re.compile(r"^\s*\d+[.)]\s*(.*)$", re.MULTILINE)


@dataclass(frozen=True)
class Query:
    text: str
    right: frozenset[str]
    is_held_out: bool


def read_entries(directory: Path) -> list[SearchEntry]:
    servers = json.loads((directory / "tools.json").read_text("utf-8"))
    return [
        SearchEntry(
            key=f"{server_id}.{tool['name']}",
            name=tool["name"],
            server=server_id,
            server_name=server["name"],
            description=tool.get("description") or "",
            parameters=collect_parameter_text(tool.get("inputSchema") or {}),
            category=server["category"],
        )
        for server in servers
        for server_id, offer in server["tools"].items()
        for tool in offer["tools"]
    ]


def read_queries(directory: Path, entries: list[SearchEntry]) -> tuple[list[Query], list[Query]]:
    """Steps, and tasks."""
    keys: defaultdict[str, set[str]] = defaultdict(set)
    for entry in entries:
        keys[entry.name].add(entry.key)
    steps, tasks = [], []
    for task in json.loads((directory / "annotations.json").read_text("utf-8")):
        told = _numbered(task["Annotator Metadata"]["Steps"])
        tools = _numbered(task["Annotator Metadata"]["Tools"])
        is_held_out = sha256(task["task_id"].encode()).digest()[0] % 2 == 1
        right = frozenset(key for tool in tools for key in keys.get(tool, ()))
        if right:
            tasks.append(Query(task["Question"], right, is_held_out))
        if len(told) == len(tools):
            pairs = zip(told, tools, strict=True)
            steps += [Query(step, frozenset(keys[tool]), is_held_out) for step, tool in pairs if tool in keys]
    return steps, tasks


def varied(entries: list[SearchEntry], count: int) -> Iterator[SearchEntry]:
    """`count` entries made of `entries`: the same texts, servers numbered, a word of its own in each."""
    for number in range(count):
        entry = entries[number % len(entries)]
        turn = number // len(entries)
        server = f"{entry.server}-{turn}"
        yield SearchEntry(
            key=f"{server}.{entry.name}",
            name=entry.name,
            server=server,
            server_name=f"{entry.server_name} {turn}",
            description=f"{entry.description} variant{number}",
            parameters=entry.parameters,
            category=entry.category,
        )


def _numbered(text: str) -> list[str]:
    return [line.strip() for line in _NUMBERED.findall(text)]
