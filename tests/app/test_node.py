"""A node put together: it follows control, shows its readiness, and reports its URL."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.contract.node_service import KEY, NodeService, serving
from tests.registry.memory_store import MemoryStore
from toolgate.app.node import open_node
from toolgate.app.process import ServingApp
from toolgate.errors import NotReady
from toolgate.model.revisions import RecordWrite
from toolgate.settings import Settings

pytestmark = pytest.mark.anyio

DEADLINE_S = 60
NO_CLIENT = "127.0.0.1:1"


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(lambda: 0)


@asynccontextmanager
async def node(tmp_path: Path, control: str, **settings: Any) -> AsyncIterator[ServingApp]:
    key_file = tmp_path / "key"
    key_file.write_text(KEY)
    own: dict[str, Any] = {
        "listen": "127.0.0.1:0",
        "control": (control,),
        "control_key_file": key_file,
        "data_dir": tmp_path,
    }
    async with open_node(Settings(**own | settings), {}, "http://127.0.0.1:8123") as app:
        yield app


async def until_served(app: ServingApp) -> None:
    while app.gateway.suspension is not None:
        await asyncio.sleep(0.005)


def gauges(app: ServingApp) -> dict[str, float]:
    lines = app.gateway.metrics.render().decode().splitlines()
    found = [line.split() for line in lines if line.startswith(("toolgate_sync", "toolgate_registry"))]
    return {name: float(value) for name, value in found}


@pytest.mark.requirement("002-004")
async def test_a_node_serves_what_control_governs(tmp_path: Path, store: MemoryStore) -> None:
    body = {"server_id": "fs", "transport": "stdio", "stdio": {"command": "x"}, "enabled": False}
    await store.write([RecordWrite(kind="server", id="fs", body=body)], actor="ada")
    async with (
        asyncio.timeout(DEADLINE_S),
        serving(NodeService(store)) as control,
        node(tmp_path, control) as app,
    ):
        await until_served(app)
        shown = gauges(app)

        assert list(app.gateway.snapshot.servers) == ["fs"]
        assert shown.pop("toolgate_sync_age_s") >= 0
        assert shown == {
            "toolgate_registry_revision": 1,
            "toolgate_sync_degraded": 0,
            "toolgate_sync_relists_total": 0,
        }


async def test_a_node_without_control_refuses_and_shows_it(tmp_path: Path) -> None:
    async with asyncio.timeout(DEADLINE_S), node(tmp_path, NO_CLIENT) as app:
        while not gauges(app)["toolgate_sync_degraded"]:
            await asyncio.sleep(0.005)

        assert isinstance(app.gateway.suspension, NotReady)
        assert gauges(app)["toolgate_registry_revision"] == 0


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        pytest.param({}, "http://127.0.0.1:8123", id="where it listens"),
        pytest.param(
            {"public_url": "https://tools.example"}, "https://tools.example", id="where it is public"
        ),
        pytest.param({"listen": "0.0.0.0:0"}, "http://machine:8123", id="by the name of its machine"),
    ],
)
async def test_a_node_reports_where_it_can_be_called(
    tmp_path: Path,
    store: MemoryStore,
    monkeypatch: pytest.MonkeyPatch,
    settings: dict[str, Any],
    expected: str,
) -> None:
    monkeypatch.setattr("socket.gethostname", lambda: "machine")
    service = NodeService(store)
    async with (
        asyncio.timeout(DEADLINE_S),
        serving(service) as control,
        node(tmp_path, control, **settings),
    ):
        while not service.reports:
            await asyncio.sleep(0.005)

    assert (service.reports[0].node_id, service.reports[0].url) == ("machine", expected)
