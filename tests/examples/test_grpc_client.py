"""The gRPC example runs against a control, as the guide says."""

import subprocess
import sys
import threading
from pathlib import Path

from tests.cli.conftest import Run
from tests.cli.processes import DEADLINE_S, running

EXAMPLE = Path(__file__).parents[2] / "examples" / "watch_servers.py"
RECORD = """
server_id = "{name}"
transport = "streamable_http"
allowed_tools = ["get_*", "list_*"]

[http]
url = "https://{name}.example/mcp"
"""


def test_it_lists_the_servers_and_prints_each_change(run: Run, tmp_path: Path) -> None:
    for name in ("here", "there"):
        (tmp_path / f"{name}.toml").write_text(RECORD.format(name=name), "utf-8")
    where = ("--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0", "--data", str(tmp_path / "data"))
    with running("control", *where) as (_, started):

        def toolgate(*words: str) -> None:
            assert run(*words, "--url", started["url"]).code == 0

        toolgate("apply", "-f", str(tmp_path / "here.toml"))
        with subprocess.Popen(
            [sys.executable, str(EXAMPLE), started["grpc"]], stdout=subprocess.PIPE, text=True
        ) as client:
            watchdog = threading.Timer(DEADLINE_S, client.kill)
            watchdog.start()
            try:
                assert client.stdout is not None
                listed = [client.stdout.readline().strip() for _ in range(2)]
                revision = int(listed[1].removeprefix("revision "))
                toolgate("apply", "-f", str(tmp_path / "there.toml"))
                toolgate("servers", "delete", "here")
                changes = [client.stdout.readline().strip() for _ in range(2)]
            finally:
                watchdog.cancel()
                client.kill()

    assert listed[0] == "here: get_*, list_*"
    assert changes == [f"{revision + 1} + there", f"{revision + 2} - here"]
