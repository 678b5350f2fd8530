"""The manifest of a skill: the tools it uses, and so the scope it needs.

Only the id, the name and the tools are read.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from toolgate.catalog.naming import join_tool_name
from toolgate.errors import InvalidRecord
from toolgate.model.names import ToolRef, parse_server_id, parse_task_id
from toolgate.model.tools import HINTS

MAX_SKILL_TOOLS: Final = 1_000  # well above `max_tools`: a skill is a selection
MAX_TITLE: Final = 200  # as the display name of a record: `Title`

# A tool name, with the two wildcards; or an effect.
_TOOL_NAME = re.compile(rf"[A-Za-z0-9_.*?-]{{1,128}}|@(?:{'|'.join(HINTS)})")


@dataclass(frozen=True, slots=True, kw_only=True)
class Skill:
    skill_id: str
    """A valid task id."""
    tools: tuple[ToolRef, ...]
    """In the order of the manifest, each once. A name may be a pattern, or an effect such as `@read_only`."""
    name: str = ""
    """The name for people."""

    @property
    def servers(self) -> tuple[str, ...]:
        return tuple(sorted({ref.server_id for ref in self.tools}))

    @property
    def selection(self) -> str:
        return ",".join(join_tool_name(ref) for ref in self.tools)

    def task(self) -> dict[str, Any]:
        """The body of a task with the same scope. Equal skills give equal bodies."""
        servers = list(self.servers)
        config = {
            "mcp.enabled": True,
            "mcp.default_server_ids": servers,
            "mcp.allowed_server_ids": servers,
            "mcp.tool_allowlist": sorted(map(str, self.tools)),
        }
        texts = {key: json.dumps(value, separators=(",", ":")) for key, value in config.items()}
        title = {"display_name": self.name} if self.name else {}
        return {"task_id": self.skill_id, **title, "config": texts}


def parse_skill(document: object) -> Skill:
    """Parse the manifest of a skill. Raises InvalidRecord with all its problems."""
    if not isinstance(document, Mapping):
        raise InvalidRecord("a skill manifest must be an object", hint='like `{"id": "report", "tools": []}`')
    problems: list[dict[str, str]] = []
    skill_id = _parse_id(document.get("id"), problems)
    tools = _parse_tools(document.get("tools"), problems)
    if problems:
        listed = "; ".join(f"`{one['field']}`: {one['problem']}" for one in problems[:10])
        more = f"; and {len(problems) - 10} more" if len(problems) > 10 else ""
        hint = "name each tool with its server, as in `excel-tools.create_workbook`"
        raise InvalidRecord(f"{listed}{more}", hint=hint, data={"problems": problems})
    return Skill(skill_id=skill_id, tools=tools, name=_clean_text(document.get("name"))[:MAX_TITLE])


def _parse_id(value: object, problems: list[dict[str, str]]) -> str:
    try:
        return parse_task_id(value if isinstance(value, str) else "")
    except InvalidRecord as exc:
        problems.append({"field": "id", "problem": f"{exc}; {exc.hint}" if value else "is missing"})
        return ""


def _parse_tools(value: object, problems: list[dict[str, str]]) -> tuple[ToolRef, ...]:
    if not isinstance(value, list) or len(value) > MAX_SKILL_TOOLS:
        problems.append({"field": "tools", "problem": f"must be a list of at most {MAX_SKILL_TOOLS} tools"})
        return ()
    found: dict[ToolRef, None] = {}
    for index, one in enumerate(value):
        try:
            found[_parse_tool(one)] = None
        except InvalidRecord as exc:
            problems.append({"field": f"tools[{index}]", "problem": str(exc)})
    return tuple(found)


def _parse_tool(value: object) -> ToolRef:
    """Parse `server.tool`, split at its first dot, or `server/tool`. Raises InvalidRecord."""
    if not isinstance(value, str):
        raise InvalidRecord("not text")
    server_id, separator, name = value.partition("/" if "/" in value else ".")
    shown = ascii(value[:80])[1:-1]
    if not separator:
        raise InvalidRecord(f"`{shown}` does not name its server")
    if not _TOOL_NAME.fullmatch(name):
        known = ", ".join(f"`@{effect}`" for effect in HINTS)
        raise InvalidRecord(f"`{shown}` is not a tool name, and not one of {known}")
    return ToolRef(parse_server_id(server_id), name)


def _clean_text(value: object) -> str:
    """A text for people on one line, without invisible characters."""
    text = " ".join(value.split()) if isinstance(value, str) else ""
    return "".join(character for character in text if character.isprintable())
