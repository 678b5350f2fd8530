"""A real gateway with as many servers and tools as a large world has: what must stay quick is tried on it.

The servers are records of their own, each behind a URL of its own, served by one process.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.eventually import eventually
from tests.scenarios.gateway import Gateway, Json, Site, running

SERVERS = 500
TOOLS = 20
"""Of each server."""
TEAMS = ("billing", "support", "platform", "research", "sales")
LISTED_S = 60.0


@contextmanager
def large_gateway(root: Path, *options: str, servers: int = SERVERS, tools: int = TOOLS) -> Iterator[Gateway]:
    """Runs below `root`, on loopback and without keys. Every server has told what it offers.

    They are `fleet-000` and so on; each has `tools` tools, a category and two tags.
    """
    site = Site(root)
    with _fleet_server(tools) as url:
        site.place(*(record(site, number, url) for number in range(servers)))
        with running(site, *options) as gateway:
            eventually(lambda: _listed(gateway) == servers * tools, LISTED_S)
            yield gateway


def record(site: Site, number: int, url: str) -> Json:
    """One of the servers behind `url`."""
    team = TEAMS[number % len(TEAMS)]
    server_id = f"fleet-{number:03}"
    return site.server(
        server_id,
        transport="streamable_http",
        display_name=f"{team.title()} {number}",
        http={"url": f"{url}/mcp/{server_id}"},
        category=team,
        tags=[team, f"rack-{number % 7}"],
    )


@contextmanager
def _fleet_server(tools: int) -> Iterator[str]:
    program = [sys.executable, "-I", "-S", str(Path(__file__).with_name("fleet_server.py")), str(tools)]
    with subprocess.Popen(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.communicate()


def await_catalog(gateway: Gateway) -> None:
    """Returns when the catalog, which follows aside, shows every tool that is listed."""
    eventually(lambda: _cataloged(gateway) == _listed(gateway), LISTED_S)


def _listed(gateway: Gateway) -> int:
    return int(gateway.get("/admin/api/mcp/tasks-overview")["registered_tools"])


def _cataloged(gateway: Gateway) -> int:
    return sum(one["toolCount"] for one in gateway.get("/api/catalog")["categories"])
