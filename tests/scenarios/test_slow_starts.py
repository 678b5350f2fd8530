"""Servers that package runners download first: imported from another program's file and left alone. TRY-5."""

import json
import os
import re
import sys
from pathlib import Path

import pytest

from tests.eventually import eventually, eventually_equal
from tests.scenarios.gateway import STAGE_SERVER, Gateway, Site, running

NPX = ("memory", "files", "everything")
UVX = ("git", "time")


class Runners:
    """`npx` and `uvx` on a PATH: they say that they download, and run a stage server once a file appears."""

    def __init__(self, site: Site) -> None:
        self.bin = site.root / "bin"
        self.bin.mkdir()
        self._site = site
        self._packages = site.root / "packages"
        self._starts = site.root / "starts"
        for name in ("npx", "uvx"):
            script = self.bin / name
            script.write_text(
                f"#!/bin/sh\necho $* >> {self._starts}\necho downloading $* >&2\n"
                f"while [ ! -e {self._packages} ]; do sleep 0.05; done\n"
                f"exec {sys.executable} -I -S {STAGE_SERVER} tools=pid site={site.root}\n"
            )
            script.chmod(0o755)

    @property
    def environ(self) -> dict[str, str]:
        return {"PATH": f"{self.bin}:{os.environ['PATH']}"}

    @property
    def starts(self) -> list[str]:
        return sorted(self._starts.read_text().splitlines())

    def file(self) -> Path:
        """Five servers as other programs have them."""
        npx = {one: {"command": "npx", "args": ["-y", f"server-{one}"]} for one in NPX}
        uvx = {one: {"command": "uvx", "args": [f"server-{one}"]} for one in UVX}
        path = self._site.root / "mcp.json"
        path.write_text(json.dumps({"mcpServers": npx | uvx}), "utf-8")
        return path

    def finish(self) -> None:
        self._packages.touch()


def states(gateway: Gateway) -> dict[str, str]:
    return {
        server["server_id"]: server["health"]["state"]
        for server in gateway.get("/admin/api/mcp/servers")["servers"]
    }


def test_try_5_five_imported_servers_that_download_are_up_without_a_hand_on_them(site: Site) -> None:
    runners = Runners(site)
    site.place(site.stage("quick", "tools=pid"))
    with running(site, environ=runners.environ) as gateway:
        imported = gateway.cli("servers", "import", str(runners.file()), "--allow", "*")
        downloading = dict.fromkeys((*NPX, *UVX), "starting")
        eventually_equal(lambda: states(gateway), {"quick": "connected", **downloading})
        eventually(lambda: "downloading server-git" in gateway.health("git")["stderr_tail"])
        answered = gateway.modern().text("quick.pid")
        refused = gateway.modern().text("git.pid")
        listed, doctor = gateway.cli("servers", "list").out, gateway.cli("doctor").out
        shown = gateway.cli("servers", "get", "git").out
        runners.finish()
        eventually_equal(lambda: set(states(gateway).values()), {"connected"})
        responses = {one: gateway.modern().text(f"{one}.pid") for one in (*NPX, *UVX)}
        restarts = {one: gateway.health(one)["restarts"] for one in responses}

    assert imported.code == 0
    assert answered.isdigit()
    assert re.match(
        r'mcp_unavailable: server "git" is still starting \(\d+ s\): uvx is downloading packages\. ', refused
    )
    assert "git: uvx is downloading packages" in listed
    assert "starting: npx is downloading packages" in doctor
    assert "downloading server-git" in shown
    assert all(response.isdigit() for response in responses.values())
    assert restarts == dict.fromkeys(responses, 0)
    assert runners.starts == sorted([*(f"-y server-{one}" for one in NPX), *(f"server-{one}" for one in UVX)])


@pytest.mark.requirement("002-014", "002-047")
def test_a_server_that_cannot_start_shows_its_cause_what_it_printed_and_a_hint(site: Site) -> None:
    runner = site.root / "npx"
    runner.write_text(
        "#!/bin/sh\necho 'npm error code E404' >&2\necho 'npm error 404 Not Found - no-such-server' >&2\n"
        "echo 'npm error A complete log of this run can be found in: x.log' >&2\nexit 1\n"
    )
    runner.chmod(0o755)
    site.place(site.server("broken", stdio={"command": str(runner), "args": ["-y", "no-such-server"]}))
    with running(site) as gateway:
        eventually_equal(lambda: states(gateway), {"broken": "down"})
        health = gateway.health("broken")
        shown, doctor = gateway.cli("servers", "get", "broken").out, gateway.cli("doctor").out

    assert health["last_error"] == "it exited with status 1: npm error 404 Not Found - no-such-server"
    assert health["hint"] == (
        f"run the command yourself: {runner} -y no-such-server; the last 40 lines of its output are in "
        '"toolgate servers get broken"'
    )
    assert "npm error A complete log" in shown
    assert "run the command yourself" in doctor
