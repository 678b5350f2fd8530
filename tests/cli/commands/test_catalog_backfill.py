"""Packages installed before there was a catalog: filling it survives kill -9, and repeats nothing."""

import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest

from tests.cli.conftest import Run
from tests.cli.processes import DEADLINE_S, running
from toolgate.model.revisions import RecordWrite
from toolgate.packages.artifacts import ArtifactStore
from toolgate.packages.objects import open_object_store
from toolgate.registry.store.engines import open_sqlite_store

pytestmark = pytest.mark.anyio

PACKAGES: Final = 150
VERSION: Final = "1.0.0"


def ids() -> list[str]:
    return [f"old-{n:03}" for n in range(PACKAGES)]


def manifest(package_id: str) -> dict[str, Any]:
    """Of an old package: it names its tools, and says no more."""
    summary = [{"name": f"tool_{n}", "description": f"Does {n} for {package_id}"} for n in range(3)]
    return {"id": package_id, "version": VERSION, "name": f"Old {package_id}", "toolsSummary": summary}


async def install_as_before(data: Path) -> None:
    """The records and archives of packages, and no row of a catalog."""
    artifacts = ArtifactStore(open_object_store(str(data / "artifacts"), {}), clock_ms=lambda: 1_000)
    writes: list[RecordWrite] = []
    for package_id in ids():
        archive = data / "archive.tar.gz"
        archive.write_bytes(package_id.encode())
        sha256 = hashlib.sha256(package_id.encode()).hexdigest()
        content = json.dumps(manifest(package_id)).encode()
        await artifacts.put(package_id, VERSION, archive, manifest=content, sha256=sha256)
        package = {"package_id": package_id, "version": VERSION, "sha256": sha256, "source": "summary"}
        writes.append(RecordWrite(kind="package", id=package_id, body=package))
        server = {
            "server_id": package_id,
            "transport": "stdio",
            "stdio": {"command": "serve"},
            "enabled": False,
            "package": {"version": VERSION, "sha256": sha256},
        }
        writes.append(RecordWrite(kind="server", id=package_id, body=server))
    async with open_sqlite_store(data / "registry.db", lambda: 1_000) as store:
        await store.write(writes, actor="release 0.2")


def rows_of(data: Path) -> dict[str, tuple[Any, ...]]:
    """Full name to what the table says, of a gateway that is not there any more."""
    query = "SELECT full_name, description, source, schema_version, updated_at, body FROM tool_catalog"
    with closing(sqlite3.connect(data / "registry.db")) as connection:
        return {name: rest for name, *rest in connection.execute(query)}


async def test_a_backfill_that_was_killed_is_taken_up_and_ends_as_if_it_had_not_been(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    await install_as_before(tmp_path)
    up = ("up", "--listen", "127.0.0.1:0", "--data", str(tmp_path))
    with running(*up) as (process, shown):
        response = httpx2.post(f"{shown['url']}/admin/api/catalog/backfill", timeout=DEADLINE_S).json()
        process.kill()
        process.wait(DEADLINE_S)
    before = rows_of(tmp_path)
    assert response["next_cursor"] is not None
    assert 0 < len(before) < 3 * PACKAGES

    monkeypatch.setenv("TOOLGATE_SUMMARY_FALLBACK", "0.5")
    with running(*up) as (process, shown):
        monkeypatch.setenv("TOOLGATE_URL", shown["url"])
        first, second = (run("catalog", "backfill", "--json").json for _ in range(2))
        quality = run("catalog", "quality", "--json").json
        lines = httpx2.get(f"{shown['url']}/metrics", timeout=DEADLINE_S).text
        process.terminate()
        process.wait(DEADLINE_S)
    after = rows_of(tmp_path)

    assert (first["done"], second) == (
        PACKAGES,
        {"done": PACKAGES, "total": PACKAGES, "changed": 0, "failed": {}},
    )
    assert {name: row for name, row in after.items() if name in before} == before
    assert {name: tuple(row[:3]) for name, row in after.items()} == {
        f"{package_id}.{tool['name']}": (tool["description"], "summary", "legacy")
        for package_id in ids()
        for tool in manifest(package_id)["toolsSummary"]
    }
    assert (quality["total"]["summary"], quality["full_percent"], len(quality["packages"])) == (450, 0, 150)
    assert 'toolgate_catalog_rows{source="summary"} 450' in lines
    assert "toolgate_catalog_fallback_ended 0" in lines
