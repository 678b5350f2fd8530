"""The guide to backups, typed: a registry comes back from its file, and moves from SQLite to PostgreSQL."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.documents import EXAMPLES, document
from tests.docs.typed_guide import GuideHosts, guide_blocks, open_hosts
from tests.postgres import PostgresServer, own_server
from tests.scenarios.ports import own_port

pytestmark = pytest.mark.xdist_group("docs-backup-guide")

GUIDE = document("docs/how-to/backup-and-upgrade.md")
GATEWAY_TOML = 'listen = "{address}"\ntrust_loopback = false\ndata_dir = "{data}"\nadmin_key_file = "{key}"\n'
KEY = "tg_admin_0123456789abcdefghijklmnopqrstuv"


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    with own_server() as server:
        server.execute("CREATE ROLE toolgate LOGIN")
        server.execute("CREATE DATABASE toolgate OWNER toolgate")
        yield server


@pytest.fixture
def hosts(postgres: PostgresServer, tmp_path: Path) -> Iterator[GuideHosts]:
    """Those of the guide: directories, one port, and the tests' PostgreSQL instead of that on `db`."""
    address = f"127.0.0.1:{own_port()}"
    everywhere = {
        "/opt/toolgate/bin/": f"{Path(sys.executable).parent}/",
        "//postgres@db.example.com/postgres": f"//postgres@/postgres?host={postgres.directory}",
        "@db.example.com/toolgate?": f"@/toolgate?host={postgres.directory}&",
        "@db.example.com/toolgate_restored?": f"@/toolgate_restored?host={postgres.directory}&",
    }
    tables = {
        name: everywhere
        | {place: f"{tmp_path / name}{place}" for place in ("/etc/", "/var/lib/", "/var/backups")}
        for name in ("gateway", "control-a")
    }
    tables["gateway"] |= {"127.0.0.1:8080": address}
    with open_hosts(tmp_path, tables, {"TOOLGATE_URL": f"http://{address}"}) as hosts:
        gateway, control = hosts.hosts["gateway"], hosts.hosts["control-a"]
        for host in (gateway, control):
            host.path("/etc/toolgate").mkdir()
            host.path("/var/lib/toolgate").mkdir(parents=True)
        production = EXAMPLES / "production"
        (unit, into) = ("toolgate.service", gateway.path("/etc/systemd/system"))
        (into / unit).write_text(gateway.render((production / unit).read_text("utf-8")), "utf-8")
        key, data = gateway.path("/etc/toolgate/admin.key"), gateway.path("/var/lib/toolgate")
        key.write_text(KEY, "utf-8")
        settings = GATEWAY_TOML.format(address=address, data=data, key=key)
        gateway.path("/etc/toolgate/toolgate.toml").write_text(settings, "utf-8")
        text = control.render((production / "control.toml").read_text("utf-8"))
        control.path("/etc/toolgate/control.toml").write_text(text, "utf-8")
        control.path("/etc/toolgate/control.env").write_text("PGPASSWORD=unused\n", "utf-8")
        yield hosts


def test_the_guide_goes_as_it_says(hosts: GuideHosts) -> None:
    gateway, control = hosts.hosts["gateway"], hosts.hosts["control-a"]
    on_gateway = [block for block in guide_blocks(GUIDE) if block.hosts == ["gateway"]]
    on_control = [block for block in guide_blocks(GUIDE) if block.hosts == ["control-a"]]
    task = EXAMPLES / "production" / "registry" / "tasks" / "clock.toml"
    back_up, restore = on_gateway
    hosts.run("gateway", "systemctl start toolgate")
    hosts.run(
        "gateway", "curl -sS --retry 30 --retry-delay 1 --retry-connrefused http://127.0.0.1:8080/readyz"
    )
    hosts.run("gateway", f"toolgate tasks apply -f {task} --key-file /etc/toolgate/admin.key")
    hosts.type(back_up)
    hosts.run("gateway", "toolgate tasks delete clock --key-file /etc/toolgate/admin.key")
    tasks = hosts.type(restore)
    assert "clock" in tasks
    [written] = gateway.path("/var/backups/toolgate").glob("*.jsonl")
    # What the control planes begin with is what the gateway wrote.
    control.path("/home/gateway.jsonl").write_bytes(written.read_bytes())
    hosts.run("control-a", "toolgate restore gateway.jsonl --config /etc/toolgate/control.toml")
    printed = [hosts.type(block) for block in on_control]

    assert (len(printed), len(on_gateway) + len(on_control)) == (2, len(guide_blocks(GUIDE)))
    assert _records(control.path("/var/backups/toolgate/registry.jsonl")) == _records(written)


def _records(backup: Path) -> list[object]:
    """The records in a backup."""
    lines = [json.loads(line) for line in backup.read_text("utf-8").splitlines()]
    records = [line["record"] for line in lines if "record" in line]
    assert "clock" in [record["id"] for record in records]
    return records
