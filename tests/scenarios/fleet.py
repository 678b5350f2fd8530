"""A fleet of real processes on loopback: replicas of control on one PostgreSQL, and nodes that follow them.

Every member can be killed or stopped, and comes back where it was. When `open_fleet` ends, it stops and
checks all of them: each exits with 0, has logged no traceback, and leaves no process behind.
"""

import json
import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path

import httpx2

from tests.eventually import eventually, eventually_equal
from tests.scenarios.canaries import with_password
from tests.scenarios.clients import UNTRUSTING, McpClient
from tests.scenarios.gateway import START_S, TOOLGATE, Gateway, Json, Site, started
from tests.scenarios.ports import own_address
from tests.scenarios.stage_http import open_http_stage
from tests.scenarios.wires import Wire, open_wire

WITHIN_S = 60.0
"""Until when a change must be everywhere. The promise is 2 s; a machine that runs tests may be busy."""


@dataclass
class Member:
    """One process of the fleet."""

    name: str
    site: Site
    environ: dict[str, str]
    stack: ExitStack
    program: list[str] = field(default_factory=lambda: [TOOLGATE])
    gateway: Gateway = field(init=False)

    def start(self) -> None:
        """Start it, where it listened before if it did."""
        kind = self.name.partition("-")[0]
        command = [*self.program, kind, "--json", "--data", str(self.site.data)]
        self.gateway = self.stack.enter_context(started(self.site, command, self.environ))
        self.environ["TOOLGATE_LISTEN"] = self.gateway.address
        if grpc := self.gateway.announced.get("grpc"):
            self.environ["TOOLGATE_GRPC_LISTEN"] = grpc

    def kill(self) -> None:
        """kill -9. What it had started goes with it."""
        self.gateway.kill()
        self.gateway.check_gone()

    def stop(self) -> None:
        """SIGTERM, and all that goes with an orderly end."""
        self.gateway.signal(signal.SIGTERM)
        assert self.gateway.wait() == 0
        self.gateway.check_stopped()

    @property
    def state(self) -> Json:
        """What it says of itself, ready or not."""
        found: Json = self.gateway.http.get("/healthz").json()
        return found

    def is_degraded(self) -> bool:
        """Whether it says so."""
        return bool(self.state["status"] == "degraded")

    def follows(self, revision: int) -> None:
        """Passes once it serves `revision`."""
        eventually(lambda: self.state["revision"] >= revision, WITHIN_S)

    def serves(self) -> None:
        """Passes once a caller sees and calls both servers."""
        for tool in ("local.echo", "remote.echo"):
            client = self.gateway.modern(f"/api/mcp?tools={tool}")
            eventually_equal(partial(_names, client), [tool], WITHIN_S)

            assert client.text(tool, text=self.name) == self.name

    def gauge(self, name: str) -> float:
        """The value of a metric."""
        text = self.gateway.http.get("/metrics").text
        found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        assert found is not None, f"no {name} in {text}"
        return float(found[1])


@dataclass
class Fleet:
    """All members, and what lies between them."""

    root: Path
    database: str | None
    stack: ExitStack
    controls: list[Member] = field(default_factory=list)
    nodes: list[Member] = field(default_factory=list)
    wires: list[Wire] = field(default_factory=list)
    """Between the last node and each control."""
    program: list[str] = field(default_factory=lambda: [TOOLGATE])
    _numbers: Iterator[int] = field(default_factory=lambda: count(1))

    # Members

    def add_control(self, **settings: str) -> Member:
        registry = {} if self.database is None else {"TOOLGATE_DATABASE": with_password(self.database)}
        return self._add(
            self.controls,
            f"control-{len(self.controls) + 1}",
            TOOLGATE_GRPC_LISTEN=own_address(),
            TOOLGATE_ALLOWED_COMMANDS="*",
            **registry,
            **settings,
        )

    def add_node(self, *, through: list[str] | None = None, **settings: str) -> Member:
        """A node with a key of its own. `through`: what it takes for the addresses of control."""
        name = f"node-{next(self._numbers)}"
        key_file = self.root / f"{name}.key"
        key_file.write_text(self.make_key(name, role="node"))
        return self._add(
            self.nodes,
            name,
            TOOLGATE_CONTROL=",".join(through or self.grpc),
            TOOLGATE_CONTROL_KEY_FILE=str(key_file),
            TOOLGATE_NODE_ID=name,
            **settings,
        )

    def _add(self, members: list[Member], name: str, **settings: str) -> Member:
        site = Site(self.root / name)
        site.root.mkdir()
        environ = {"TOOLGATE_LISTEN": own_address(), **settings}
        member = Member(name, site, environ, self.stack, self.program)
        member.start()
        members.append(member)
        return member

    def dismiss(self, node: Member) -> None:
        """Stop a node that was added for one test."""
        node.stop()
        self.nodes.remove(node)

    @property
    def members(self) -> list[Member]:
        return [*self.controls, *self.nodes]

    @property
    def grpc(self) -> list[str]:
        """Where the controls listen for nodes."""
        return [control.environ["TOOLGATE_GRPC_LISTEN"] for control in self.controls]

    # What is asked of control

    def put(self, path: str, body: Json, *, at: int = 0) -> int:
        """Write at one of the controls; the revision."""
        return int(self.controls[at].gateway.put(path, body)["revision"])

    def put_task(self, task_id: str, number: int, *, at: int = 0) -> int:
        """A task that no other test minds; `number` makes it another than before."""
        config = {"mcp.tool_denylist": json.dumps([str(number)])}
        return self.put(f"/admin/api/tasks/{task_id}", {"task_id": task_id, "config": config}, at=at)

    def make_key(self, key_id: str, *, at: int = 0, **fields: object) -> str:
        """The secret of a new key."""
        body = {"key_id": key_id, **fields}
        response = self.controls[at].gateway.http.post("/admin/api/keys", json=body)
        return str(response.raise_for_status().json()["secret"])

    def revoke(self, key_id: str, *, at: int = 0) -> None:
        self.controls[at].gateway.http.delete(f"/admin/api/keys/{key_id}").raise_for_status()

    def caller(self, node: Member, secret: str) -> httpx2.Client:
        """A client of a node that shows a key. It is closed with the fleet."""
        headers = {"authorization": f"Bearer {secret}"}
        return self.stack.enter_context(
            httpx2.Client(
                base_url=node.gateway.url, headers=headers, timeout=60, trust_env=False, verify=UNTRUSTING
            )
        )

    # What must become true

    def reaches_all(self, revision: int) -> None:
        """Passes once every node serves `revision`."""
        for node in self.nodes:
            node.follows(revision)

    def settle(self) -> None:
        """Passes once all members are ready, and every node follows the newest revision and serves."""
        for member in self.members:
            eventually(member.gateway.is_ready, START_S)
        self.reaches_all(max(control.state["revision"] for control in self.controls))
        for node in self.nodes:
            eventually_equal(node.is_degraded, False, WITHIN_S)
            node.serves()

    def check_gone(self) -> None:
        """No process that names this fleet is left, wherever it hangs in the tree."""
        nothing: list[str] = []
        eventually_equal(lambda: [" ".join(one.cmdline()) for one in Site(self.root).processes()], nothing)


def _names(client: McpClient) -> list[str]:
    """The tools that a client sees; none while its node refuses to say, for want of a policy."""
    response = client.request("tools/list")
    return [tool["name"] for tool in response["result"]["tools"]] if "result" in response else []


@contextmanager
def open_fleet(root: Path, database: str | None, *, controls: int, nodes: int) -> Iterator[Fleet]:
    """A fleet that serves two servers: `local`, on stdio at each node, and `remote`, behind one URL.

    Without a `database` its one control keeps the registry itself. The last node reaches control over wires
    that can be cut, the others directly.
    """
    with open_http_stage() as remote_url, ExitStack() as stack:
        fleet = Fleet(root, database, stack)
        for _ in range(controls):
            fleet.add_control()
        site = Site(root / "servers")
        local = site.stage("local")
        remote = site.server("remote", http={"url": remote_url}) | {"transport": "streamable_http"}
        for record in (local, remote):
            fleet.put(f"/admin/api/mcp/servers/{record['server_id']}", record)
        for _ in range(nodes - 1):
            fleet.add_node()
        fleet.wires = [stack.enter_context(open_wire(target)) for target in fleet.grpc]
        fleet.add_node(through=[wire.address for wire in fleet.wires])
        fleet.settle()
        yield fleet
    fleet.check_gone()
