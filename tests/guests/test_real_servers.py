"""Examples as people run them: `toolgate run`, with the reference servers for files and for the time."""

import json
from pathlib import Path

from tests.forked_programs import forked
from tests.guests.built import example
from tests.scenarios.gateway import Gateway, Ran, Site, running
from tests.scenarios.reference import filesystem

TASK = """task_id = "{name}"

[config]
mcp.enabled = true
mcp.default_server_ids = ["{server_id}"]

[workload]
module = "{module}"
args = {args}
"""


def run(gateway: Gateway, name: str, server_id: str, *args: str, given: str = "") -> Ran:
    """Make a task of the example, and run it."""
    file = gateway.site.root / f"{name}.toml"
    module = example(name)
    file.write_text(
        TASK.format(name=name, server_id=server_id, module=module, args=json.dumps(args)), "utf-8"
    )
    applied = gateway.cli("apply", "-f", str(file))
    assert applied.code == 0, applied.err
    return gateway.cli("run", name, "--input", given)


def shown(ran: Ran) -> str:
    """The text of the result that it printed."""
    text: str = json.loads(ran.out.splitlines()[-1])["content"][0]["text"]
    return text


def test_examples_run_with_real_servers(tmp_path: Path) -> None:
    site = Site(tmp_path)
    command, *args = forked("mcp-server-time", "--local-timezone", "UTC")
    time = {"command": command, "args": args}
    site.place(filesystem(site), site.server("time", stdio=time))
    with running(site) as gateway:
        read = run(
            gateway, "mcp_direct", "filesystem", "filesystem", "read_text_file", given='{"path": "read.me"}'
        )
        missing = gateway.cli("run", "mcp_direct", "--input", '{"path": "none.such"}')
        notified = run(gateway, "what_time", "time")

    assert (read.code, read.err, shown(read)) == (0, "", "Welcome.\n")
    assert "list_directory" in read.out.splitlines()
    assert (missing.code, shown(missing)[:6]) == (1, "ENOENT")
    assert (notified.code, json.loads(shown(notified))["timezone"]) == (0, "Asia/Tokyo")
