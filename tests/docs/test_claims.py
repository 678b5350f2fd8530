"""What the hand-written documents say of the code, held against it."""

import asyncio
import re
import shutil
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.docs.documents import ROOT, document
from tests.protocol.exceptions import EXCEPTIONS, REQUIRED
from tests.protocol.suite import HANDSHAKE, STATELESS
from tests.protocol.test_authorization import SUITES
from toolgate.catalog import checks
from toolgate.model.revisions import RecordWrite
from toolgate.registry.store.engines import open_sqlite_store
from toolgate.surfaces.http import connection, parsing
from toolgate.upstream.connection import contract
from toolgate.upstream.connection import contract as limits
from toolgate.upstream.connection.secrets import BASE_ENVIRONMENT, NETWORK_ENVIRONMENT

SOURCE = ROOT / "src" / "toolgate"
PACKAGES = {path.stem for path in SOURCE.iterdir() if not path.name.startswith(("_", "py."))}
MOVES = "docs/adr/0066-sub-packages-by-concept.md"
"""Decisions are not edited: a table in this one says where the modules are now that older ones name."""
CLIENTS = "docs/how-to/clients.md"
MIB = 2**20


def test_the_architecture_lists_the_packages_in_the_order_of_the_linter() -> None:
    rows = re.findall(r"^\| `(\w+)` \| ", document("ARCHITECTURE.md").text, re.MULTILINE)
    linter = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    [layers] = [each["layers"] for each in linter["contracts"] if each["name"] == "Imports point down"]

    ranks = {name.strip(): rank for rank, layer in enumerate(layers) for name in layer.split("|")}

    assert sorted(rows) == sorted(PACKAGES), "every package has one row"
    assert [ranks[row] for row in rows] == sorted(ranks[row] for row in rows)


@pytest.mark.parametrize(
    "name",
    ["ARCHITECTURE.md", "CONTRIBUTING.md", *(f"docs/adr/{path.name}" for path in ROOT.glob("docs/adr/0*"))],
)
def test_every_module_that_is_named_exists_or_says_where_it_went(name: str) -> None:
    named = [code for code in document(name).code if re.fullmatch(r"(?:\w+/)+\w*(?:\.py)?", code)]
    ours = [code.removesuffix(".py").rstrip("/") for code in named if code.partition("/")[0] in PACKAGES]
    moves = dict(re.findall(r"^\| `([\w/]+)` \| `([\w/]+)` \|$", document(MOVES).text, re.MULTILINE))
    moved = moves if name.startswith("docs/adr/") else {}

    assert [code for code in ours if not _exists(SOURCE / moved.get(code, code))] == []


def _exists(path: Path) -> bool:
    return path.is_dir() or path.with_suffix(".py").is_file()


def test_security_names_the_limits_of_the_code() -> None:
    text = " ".join(document("SECURITY.md").text.split())

    for claim in (
        f"Bodies {connection.MAX_BODY_BYTES // MIB} MiB",
        f"nesting {parsing.MAX_DEPTH}",
        f"lines and events {contract.MAX_MESSAGE_BYTES // MIB} MiB",
        f"{checks.MAX_DEFINITIONS:,} tools a server",
        f"{limits.CALL_CEILING_S:g} s at most",
    ):
        assert claim in text


def test_the_guide_to_clients_says_how_many_conformance_scenarios_pass() -> None:
    rows = re.findall(
        r"^\| (both revisions, .+|session-based) \| (.+) \| (.+) \|$", document(CLIENTS).text, re.MULTILINE
    )

    assert rows == [
        (
            words,
            *(
                f"{total - len(EXCEPTIONS[name, revision])} of {total}"
                for revision, total in REQUIRED.items()
            ),
        )
        for words, name in (
            ("both revisions, elicits in either way", "modern"),
            ("both revisions, each tool elicits in one way", "one-way"),
            ("session-based", "legacy"),
        )
    ]


def test_the_guide_to_clients_says_how_many_scenarios_of_authorization_there_are() -> None:
    counts = {
        revision: sum(count for (_, of), count in SUITES.items() if of == revision) for revision in REQUIRED
    }
    text = " ".join(document(CLIENTS).text.split())

    assert f"about authorization, {counts[HANDSHAKE]} and {counts[STATELESS]} of them" in text


def test_the_readme_says_how_many_conformance_scenarios_pass() -> None:
    text = " ".join(document("README.md").text.split())
    passed = {key: REQUIRED[key[1]] - len(exceptions) for key, exceptions in EXCEPTIONS.items()}
    handshake, stateless = REQUIRED

    assert (
        f"{passed['one-way', handshake]} of {REQUIRED[handshake]} required scenarios for {handshake}"
        f" and {passed['one-way', stateless]} of {REQUIRED[stateless]} for {stateless} pass with our test"
    ) in text
    assert f"{passed['legacy', handshake]} and {passed['legacy', stateless]} with a session-based" in text


def test_the_base_environment_of_children_is_the_one_the_guide_lists() -> None:
    text = " ".join(document("docs/how-to/servers.md").text.split())

    assert ", ".join(f"`{name}`" for name in BASE_ENVIRONMENT) in text
    assert [name for name in NETWORK_ENVIRONMENT if f"`{name.upper()}`" not in text] == []


@pytest.mark.anyio
async def test_a_registry_copied_while_it_is_open_and_quiet_is_whole(tmp_path: Path) -> None:
    running, copy = tmp_path / "running" / "registry.db", tmp_path / "copy" / "registry.db"
    body: dict[str, Any] = {"task_id": "review"}
    async with asyncio.timeout(60), open_sqlite_store(running, lambda: 0) as store:
        await store.write([RecordWrite(kind="task", id="review", body=body)], actor="test")
        shutil.copytree(running.parent, copy.parent, ignore=shutil.ignore_patterns("*.lock"))

    async with asyncio.timeout(60), open_sqlite_store(copy, lambda: 0) as store:
        [record] = (await store.list("task")).records

    assert (record.id, record.body) == ("review", body)
