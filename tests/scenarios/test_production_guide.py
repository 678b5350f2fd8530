"""The guide to production, typed block by block: PostgreSQL, two control planes, three nodes, TLS, a proxy.

The only substitutions are those of `tests.docs.typed_guide` and `TABLES` below: names and ports, because all
hosts are this machine, and directories, because each host has its own.
"""

import asyncio
import json
import os
import ssl
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import TextContent

from tests.docs.documents import document
from tests.docs.typed_guide import GuideBlock, GuideHosts, guide_blocks, open_hosts
from tests.eventually import eventually
from tests.postgres import PostgresServer, own_server
from tests.scenarios.clients import LegacyClient, ModernClient
from tests.scenarios.ports import own_port
from toolgate.surfaces.http.messages import KEEPALIVE_S

pytestmark = pytest.mark.xdist_group("scenario-production-guide")

GUIDE = document("docs/how-to/production.md")
CONTROLS, NODES = ("control-a", "control-b"), ("node-1", "node-2", "node-3")
OTHER_PROXY = ["proxy with HAProxy"]
"""Typed last, on the same host, in the place of nginx."""
ALTERNATIVE = ["a laptop"]
"""Not typed: these start a gateway that is another one than that of the guide."""
NGINX = """{user}
worker_processes 1;
pid {root}/nginx.pid;
error_log {root}/log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {root}/body;
    proxy_temp_path {root}/temp;
    include {root}/etc/nginx/conf.d/*.conf;
}}
"""
"""What Debian's own file has, in the directory of the host, which only the user of the tests may read."""
LONG = 4_096
"""Bytes of a session id that does not fit into the buffer that nginx has for headers by default."""


def make_tables(root: Path, postgres: PostgresServer) -> dict[str, dict[str, str]]:
    """What is different here, on each host.

    | in the guide | here |
    | --- | --- |
    | a host and its port | loopback, and a port of its own |
    | the address that a process binds | the same |
    | `tools.example.com`, `control.example.com` | `localhost`, `127.0.0.1`: two names of one machine |
    | the network of the operators | that of loopback |
    | PostgreSQL on `db.example.com` | that of the tests, by its socket |
    | `/etc/…`, `/var/lib/…` | below the directory of the host |
    | `/opt/toolgate/bin` | the environment of the tests |
    """
    http = {name: own_port() for name in (*CONTROLS, *NODES)}
    grpc = {name: own_port() for name in CONTROLS}
    site = own_port()
    everywhere = {
        **{f"{name}.example.com:8080": f"127.0.0.1:{port}" for name, port in http.items()},
        **{f"{name}.example.com:8090": f"localhost:{port}" for name, port in grpc.items()},
        **{f"DNS:{name}.example.com": "DNS:localhost" for name in (*CONTROLS, "tools")},
        "DNS:control.example.com": "IP:127.0.0.1",
        "https://tools.example.com": f"https://localhost:{site}",
        "https://control.example.com": f"https://127.0.0.1:{site}",
        "tools.example.com": "localhost",
        "control.example.com": "127.0.0.1",
        "listen 443 ssl": f"listen 127.0.0.1:{site} ssl",
        "bind :443": f"bind 127.0.0.1:{site}",
        "192.0.2.0/24": "127.0.0.0/8",
        "//postgres@db.example.com/postgres": f"//postgres@/postgres?host={postgres.directory}",
        "@db.example.com/toolgate?": f"@/toolgate?host={postgres.directory}&",
    }

    hosts = {
        name: everywhere
        | {place: f"{root / name}{place}" for place in ("/etc/", "/var/lib/")}
        | {"/opt/toolgate/bin/": f"{Path(sys.executable).parent}/"}
        for name in (*CONTROLS, *NODES, "proxy")
    }
    for name, port in http.items():
        hosts[name] |= dict.fromkeys(("0.0.0.0:8080", "127.0.0.1:8080"), f"127.0.0.1:{port}")
    for name, port in grpc.items():
        hosts[name] |= {"0.0.0.0:8090": f"127.0.0.1:{port}"}
    return {**hosts, "workstation": everywhere}


@pytest.fixture(scope="module")
def postgres() -> Iterator[PostgresServer]:
    """One that wants the password of `toolgate`."""
    with own_server() as server:
        rules = server.directory / "data" / "pg_hba.conf"
        rules.write_text("local toolgate toolgate scram-sha-256\nlocal all postgres trust\n", "utf-8")
        server.execute("SELECT pg_reload_conf()")
        yield server


@pytest.fixture(scope="module")
def hosts(postgres: PostgresServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuideHosts]:
    root = tmp_path_factory.mktemp("guide")
    with open_hosts(root, make_tables(root, postgres)) as hosts:
        uvx = hosts.directory / "uvx"
        uvx.write_text(f'#!/bin/sh\nexec "{Path(sys.executable).parent}/$1" "$2" "$3"\n', "utf-8")
        uvx.chmod(0o755)
        proxy = hosts.hosts["proxy"]
        user = "user root;" if os.geteuid() == 0 else ""
        proxy.path("/etc/nginx/nginx.conf").write_text(NGINX.format(user=user, root=proxy.root), "utf-8")
        hosts.copy_files("workstation", GUIDE.path.parents[1] / "examples" / "production")
        yield hosts


def test_the_guide_goes_as_it_says(hosts: GuideHosts) -> None:
    blocks = guide_blocks(GUIDE)
    typed = [block for block in blocks if block.hosts not in (OTHER_PROXY, ALTERNATIVE)]
    failure = next(at for at, block in enumerate(typed) if "systemctl stop" in block.script)
    for block in typed[:failure]:
        hosts.type(block)
    colleague = Colleague(hosts)
    before = colleague.use()
    *_, last = [hosts.type(block) for block in typed[failure:]]
    with_less = colleague.use()
    hosts.stop(hosts.hosts["proxy"], "nginx")
    for block in blocks:
        if block.hosts == OTHER_PROXY:
            hosts.type(GuideBlock(["proxy"], block.script))
    eventually(colleague.is_served)
    over_haproxy = colleague.use()
    official = asyncio.run(colleague.use_official_client())

    assert [before, with_less, over_haproxy] == [AS_EXPECTED] * 3
    assert official == AS_EXPECTED
    assert [name for name in NODES if name not in last] == []


class Use(NamedTuple):
    """What a client saw and did."""

    tools: list[str]
    zone: str


AS_EXPECTED = Use(["time.convert_time", "time.get_current_time"], "Europe/Berlin")


class Colleague:
    """A user with the key that the guide creates, who knows the URL and the CA."""

    def __init__(self, hosts: GuideHosts) -> None:
        home = hosts.hosts["workstation"].path("/home")
        self._url = hosts.hosts["workstation"].render("https://tools.example.com")
        self._options: dict[str, Any] = {
            "verify": ssl.create_default_context(cafile=str(home / "ca.pem")),
            "headers": {"authorization": f"Bearer {(home / 'ada.key').read_text('utf-8').strip()}"},
            "trust_env": False,
            # A stream that a proxy buffers would be silent for longer: its first comment comes after 15 s.
            "timeout": KEEPALIVE_S - 5,
        }

    def is_served(self) -> bool:
        with suppress(httpx2.TransportError), httpx2.Client(**self._options) as http:
            return http.get(f"{self._url}/readyz").status_code == 200
        return False

    def use(self) -> Use:
        """List, call and stream with both revisions, and with as long a session id as there is."""
        # Names that no tool has: the session keeps its selection.
        names = ",".join([*AS_EXPECTED.tools, *(f"time.tool_{number:050}" for number in range(70))])
        selection = f"{self._url}/api/mcp/t/clock?tools={names}"
        with httpx2.Client(**self._options) as http:
            stateless = ModernClient(http, f"{self._url}/api/mcp/t/clock")
            session = LegacyClient(http, selection)
            with stateless.changes(), session.changes():
                texts = [
                    client.text("time.get_current_time", timezone=AS_EXPECTED.zone)
                    for client in (stateless, session)
                ]
            lists = [sorted(client.tools()) for client in (stateless, session)]
        zones = {json.loads(text)["timezone"] for text in texts}

        assert len(session.session["mcp-session-id"]) > LONG
        assert (lists[0], zones) == (lists[1], {AS_EXPECTED.zone})
        return Use(lists[0], AS_EXPECTED.zone)

    async def use_official_client(self) -> Use:
        url = f"{self._url}/api/mcp/t/clock"
        async with (
            asyncio.timeout(60),
            httpx2.AsyncClient(**self._options) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            tools = sorted(tool.name for tool in (await client.list_tools()).tools)
            result = await client.call_tool("time.get_current_time", {"timezone": AS_EXPECTED.zone})
        (content,) = result.content
        assert isinstance(content, TextContent)
        return Use(tools, json.loads(content.text)["timezone"])
