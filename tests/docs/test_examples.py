"""Every example in the documents is a file, and every such file is what it claims to be."""

import json
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from tests.docs.documents import EXAMPLES, ROOT, documents
from toolgate.catalog.clients import CLIENT_PROGRAMS, ClientKind, GatewayEndpoint
from toolgate.catalog.skills import parse_skill
from toolgate.cli.files import load_object, load_record
from toolgate.registry.files.directory import DirectoryScan, scan_directory
from toolgate.registry.interchange.imports import parse_imports
from toolgate.registry.records.codec import ID_FIELDS, parse_record, parse_server
from toolgate.registry.records.server_bodies import ServerBody
from toolgate.settings import load_settings

FILES = sorted(path for path in EXAMPLES.rglob("*") if path.is_file())
RECORDS = [
    path
    for path in FILES
    if path.parent.name in {"servers", "complete", "tasks", "profiles", "chat-upstreams", "redaction"}
]
SETTINGS = sorted((*EXAMPLES.glob("settings/*.toml"), *EXAMPLES.glob("production/*.toml")))
CLIENTS = sorted((EXAMPLES / "clients").glob("*.json"))
LANGUAGES = ("toml", "json", "yaml", "ini", "nginx", "text")
"""Of blocks that are files."""
LOCAL = "http://127.0.0.1:8080/api/mcp/t/review"
REMOTE = "https://tools.example.com/api/mcp/t/review"


def name_of(path: Path) -> str:
    return str(path.relative_to(EXAMPLES))


def field_paths(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """The full names of a record's fields, those of its parts included."""
    for name, field in model.model_fields.items():
        choices = [field.annotation, *getattr(field.annotation, "__args__", ())]
        parts = [one for one in choices if isinstance(one, type) and issubclass(one, BaseModel)]
        for part in parts:
            yield from field_paths(part, f"{prefix}{name}.")
        if not parts:
            yield prefix + name


def given_paths(body: dict[str, Any]) -> Iterator[str]:
    parts = {"stdio", "http", "oauth", "package", "budgets", "approval_policy", "redaction"}
    for name, value in body.items():
        yield from (f"{name}.{inner}" for inner in given_paths(value)) if name in parts else (name,)


def test_every_block_of_toml_and_json_is_a_file() -> None:
    texts = {path.read_text("utf-8") for path in FILES}
    loose = {
        str(one): [block for block in one.blocks("toml", "json") if block not in texts] for one in documents()
    }

    assert {name: blocks for name, blocks in loose.items() if blocks} == {}


def test_every_example_file_is_shown_or_named_in_a_document() -> None:
    shown = {block for one in documents() for block in one.blocks(*LANGUAGES)}
    text = "".join(one.text for one in documents())

    assert [
        name_of(path)
        for path in FILES
        if path.read_text("utf-8") not in shown and str(path.relative_to(ROOT)) not in text
    ] == []


@pytest.mark.parametrize("path", RECORDS, ids=name_of)
def test_an_example_record_is_valid(path: Path) -> None:
    record = load_record(path)

    parsed = parse_record(record.kind, record.id, record.body, strict=True)

    assert getattr(parsed, ID_FIELDS[record.kind]) == record.id


@pytest.mark.parametrize(
    ("directory", "servers"), [("servers", ["git", "time"]), ("complete", ["calendar", "files", "tracker"])]
)
def test_a_directory_of_server_files_loads_without_a_word(directory: str, servers: list[str]) -> None:
    scan = scan_directory(EXAMPLES / directory, strict=True)

    assert [one.record.server_id for one in scan.servers] == servers
    assert scan == DirectoryScan(servers=scan.servers, problems=(), warnings=())


def test_the_complete_server_files_have_every_field() -> None:
    bodies = [tomllib.loads(path.read_text("utf-8")) for path in (EXAMPLES / "complete").glob("*.toml")]

    assert sorted({path for body in bodies for path in given_paths(body)}) == sorted(field_paths(ServerBody))


@pytest.mark.parametrize("path", SETTINGS, ids=name_of)
def test_a_settings_file_is_read(path: Path) -> None:
    settings = load_settings(path, {})

    assert settings.model_dump(mode="json", exclude_unset=True) == tomllib.loads(path.read_text("utf-8"))


@pytest.mark.parametrize("path", CLIENTS, ids=name_of)
def test_the_settings_of_a_client_are_what_connect_writes(path: Path) -> None:
    needs_key = path.stem.endswith("-key")
    names: dict[str, ClientKind] = {str(name): name for name in CLIENT_PROGRAMS}
    program = CLIENT_PROGRAMS[names[path.stem.removesuffix("-key")]]
    door = GatewayEndpoint(name="review", url=REMOTE if needs_key else LOCAL, needs_key=needs_key)

    assert json.loads(path.read_text("utf-8")) == program.document(door)


@pytest.mark.parametrize("path", CLIENTS, ids=name_of)
def test_the_settings_of_a_client_can_be_imported_back(path: Path) -> None:
    [body] = parse_imports(path.read_text("utf-8"), "mcpServers").bodies

    assert parse_server(body).server_id == "review"


def test_the_catalog_of_a_neighbour_can_be_imported() -> None:
    found = parse_imports((EXAMPLES / "neighbours" / "catalog.yaml").read_text("utf-8"))

    assert [parse_server(body).server_id for body in found.bodies] == ["tracker", "weather"]
    assert (found.skipped, len(found.warnings)) == ({}, 1)


def test_a_skill_is_one() -> None:
    for path in (EXAMPLES / "skills").iterdir():
        assert parse_skill(load_object(path)).skill_id == path.stem
