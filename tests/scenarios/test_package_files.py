"""Servers that are installed as packages run from their files: in one process, and on nodes of a control."""

import asyncio
import hashlib
import tarfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

from tests.contract.object_stores import open_bucket
from tests.eventually import eventually, eventually_equal
from tests.packages.archive_samples import member, tar_of
from tests.scenarios.fleet import WITHIN_S, Fleet
from tests.scenarios.gateway import Gateway, Json, Site, running
from toolgate.packages.artifacts import ArtifactStore
from toolgate.packages.objects import open_object_store

PACKAGE: Final = "greeter"
TOOL: Final = f"{PACKAGE}.greet"
SERVER: Final = '''#!/usr/bin/env python3
"""Says what is in the file next to it."""

import json
import sys

TOOL = {"name": "greet", "inputSchema": {"type": "object"}}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    answers = {
        "initialize": lambda: {
            "protocolVersion": asked["params"]["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "greeter", "version": "1"},
        },
        "tools/list": lambda: {"tools": [TOOL]},
        "tools/call": lambda: {
            "content": [{"type": "text", "text": open("greeting.txt").read() + sys.argv[1]}]
        },
    }
    found = answers.get(asked["method"])
    said = {"result": found()} if found else {"error": {"code": -32601, "message": "unknown"}}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **said}), flush=True)
'''


def archive_of(greeting: str) -> bytes:
    """A package with a program of its own."""
    program, content = member("server", SERVER.encode())
    program.mode = 0o755
    return tar_of([(program, content), member("greeting.txt", greeting.encode())], tarfile.PAX_FORMAT)


def record_of(version: str, greeting: str) -> Json:
    """The server of that package, as an installation writes it."""
    return {
        "server_id": PACKAGE,
        "transport": "stdio",
        "stdio": {"command": "./server", "args": ["from ${PACKAGE_DIR}"]},
        "allowed_tools": ["*"],
        "package": {"version": version, "sha256": hashlib.sha256(archive_of(greeting)).hexdigest()},
    }


def publish(location: str, environ: dict[str, str], tmp_path: Path, *, version: str, greeting: str) -> None:
    """Put the archive where a gateway keeps them."""
    file, content = tmp_path / "archive", archive_of(greeting)
    file.write_bytes(content)
    sha256 = hashlib.sha256(content).hexdigest()

    async def put() -> None:
        artifacts = ArtifactStore(open_object_store(location, environ), clock_ms=lambda: 1)
        await artifacts.put(PACKAGE, version, file, manifest=b"{}", sha256=sha256)

    asyncio.run(put())


def install(gateway: Gateway, record: Json) -> Any:
    return gateway.put(f"/admin/api/mcp/servers/{PACKAGE}", record)


def says(gateway: Gateway, cache: Path, greeting: str) -> None:
    """Passes once the tool answers from the files of that greeting."""
    sha256 = hashlib.sha256(archive_of(greeting)).hexdigest()
    (boot,) = eventually(lambda: list(cache.glob("*")), WITHIN_S)

    def reply() -> str:
        client = gateway.modern(f"/api/mcp?tools={TOOL}")
        return client.text(TOOL) if client.tools() else ""

    eventually_equal(reply, f"{greeting}from {boot / sha256}", WITHIN_S)


def test_a_package_runs_in_one_process_is_upgraded_and_outlives_a_kill(tmp_path: Path) -> None:
    site = Site(tmp_path)
    kept, cache = str(site.data / "artifacts"), site.data / "packages-cache"
    with running(site) as gateway:
        install(gateway, record_of("1.0.0", "hello "))
        # Its archive is not there yet: that is said, and mended by putting it there.
        eventually(lambda: "the artifact store does not have" in gateway.health(PACKAGE)["last_error"])
        publish(kept, {}, tmp_path, version="1.0.0", greeting="hello ")
        says(gateway, cache, "hello ")

        publish(kept, {}, tmp_path, version="1.1.0", greeting="good day ")
        install(gateway, record_of("1.1.0", "good day "))
        says(gateway, cache, "good day ")
        gateway.kill()
    with running(site) as gateway:
        says(gateway, cache, "good day ")


def test_a_node_gets_packages_from_its_control_which_keeps_them_in_a_bucket(tmp_path: Path) -> None:
    location = "s3://bucket/fleet"
    with open_bucket() as environ, ExitStack() as stack:
        fleet = Fleet(tmp_path, None, stack)
        control = fleet.add_control(TOOLGATE_ARTIFACTS=location, **environ)
        node = fleet.add_node()
        publish(location, environ, tmp_path, version="1.0.0", greeting="hello ")
        node.follows(int(install(control.gateway, record_of("1.0.0", "hello "))["revision"]))
        says(node.gateway, node.site.data / "packages-cache", "hello ")

        # Control starts it too, to try it.
        trial = control.gateway.http.post(f"/admin/api/mcp/servers/{PACKAGE}/test").json()
        assert (trial["error"], trial["tools"]) == ("", ["greet"])

        # A node that follows another content reports it, and uses nothing else.
        other = record_of("1.0.0", "other ")
        node.follows(int(install(control.gateway, other)["revision"]))
        eventually(lambda: "store does not have" in control.gateway.health(PACKAGE)["last_error"], WITHIN_S)
        assert not node.gateway.modern(f"/api/mcp?tools={TOOL}").call(TOOL).get("result")
