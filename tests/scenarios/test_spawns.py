"""Every process that a gateway starts for a server is in its audit: whatever it was started for, and whatever
became of the gateway right after.
"""

import json
import os
import signal
from pathlib import Path

from tests.eventually import eventually, eventually_equal
from tests.scenarios.gateway import Gateway, Json, Site, running


def spawns(gateway: Gateway, server_id: str) -> list[Json]:
    events = map(json.loads, gateway.audit.splitlines())
    return [one for one in events if one["type"] == "spawn" and one["server_id"] == server_id]


def pids(file: Path) -> list[int]:
    return [int(line) for line in file.read_text("utf-8").split()] if file.exists() else []


def test_each_process_of_a_server_has_one_record_of_why_it_was_started(site: Site) -> None:
    shared, own, broken = (site.root / name for name in ("shared", "own", "broken"))
    missing = {"stdio": {"env": {"A": "${ENV:NOT_THERE}"}}}
    site.place(
        site.stage("shared", f"pids={shared}", "--api-key", "hunter2hunter2", "${ENV:WORD:-x}"),
        site.stage("own", f"pids={own}", sharing="per_session"),
        site.stage("broken", f"pids={broken}", **missing),
    )
    with running(site) as gateway:
        eventually(lambda: pids(shared))
        first, second = gateway.legacy(), gateway.legacy()
        assert first.text("own.pid") != second.text("own.pid")
        os.kill(int(first.text("shared.pid")), signal.SIGKILL)
        eventually(lambda: len(pids(shared)) == 2 or first.call("shared.pid") is None)
        gateway.http.post("/admin/api/mcp/servers/shared/test", json={}).raise_for_status()
        eventually_equal(lambda: len(spawns(gateway, "shared")), 3)

        reasons = [one.get("reason", "start") for one in spawns(gateway, "shared")]
        assert reasons == ["start", "start", "trial"]
        assert len(spawns(gateway, "own")) == len(pids(own)) >= 2
        assert (spawns(gateway, "broken"), pids(broken)) == ([], [])
        command = spawns(gateway, "shared")[0]["command"]
        assert "--api-key '***' '${ENV:WORD:-x}'" in command
        assert gateway.get("/admin/api/audit?type=spawn&server=shared")["events"][0]["command"] == command


def test_the_record_is_there_when_the_gateway_is_killed_as_soon_as_the_process_exists(site: Site) -> None:
    started = site.root / "started"
    site.place(site.stage("silent", "silent", f"pids={started}"))
    with running(site) as gateway:
        eventually(lambda: pids(started))
        gateway.kill()
    with running(site) as gateway:
        eventually(lambda: len(pids(started)) == 2)
        eventually_equal(lambda: len(spawns(gateway, "silent")), 2, 60)
