"""`control`: the form scripts rely on, what it prints to people, and what it refuses."""

import json
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.processes import DEADLINE_S, PROGRAM, running
from tests.cli.screen import shown
from toolgate.cli.commands.serve import render_control_ready


def test_control_serves_rest_and_grpc_says_where_and_ends_with_0_on_sigint(tmp_path: Path) -> None:
    where = ("--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0", "--data", str(tmp_path / "d"))
    with running("control", *where) as (process, started):
        host, _, port = started["grpc"].rpartition(":")
        with urllib.request.urlopen(f"{started['url']}/admin/api/nodes", timeout=60) as response:
            assert json.load(response)["nodes"] == []
        with urllib.request.urlopen(started["console"], timeout=60) as response:
            assert response.headers["content-type"] == "text/html; charset=utf-8"
        with urllib.request.urlopen(f"{started['url']}/api/v1/me", timeout=60) as response:
            assert json.load(response)["calls_tools"] is False
        with socket.create_connection((host, int(port)), timeout=60):
            pass
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0


def test_control_waits_for_its_database_and_stops_at_once_on_sigterm(tmp_path: Path) -> None:
    url = f"postgresql://toolgate@127.0.0.1:{free_port()}/toolgate"
    command = [sys.executable, "-c", PROGRAM, "control", "--data", str(tmp_path / "d"), "--database", url]
    where = ["--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0"]
    with subprocess.Popen([*command, *where], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        watchdog = threading.Timer(DEADLINE_S, process.kill)
        watchdog.start()
        lines = process.stderr.readline()
        process.send_signal(signal.SIGTERM)
        ended = process.wait(timeout=60)
        rest = process.stderr.read()
        watchdog.cancel()

    assert "waiting for the database `toolgate` at `127.0.0.1`" in lines
    assert (ended, "Traceback" in rest) == (0, False)


def free_port() -> int:
    """One without a listener."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_people_see_how_to_give_it_a_node() -> None:
    console = "http://127.0.0.1:8080/console/"
    assert shown(render_control_ready("http://127.0.0.1:8080", "127.0.0.1:8090", console=console))[1:] == [
        "nodes follow it at 127.0.0.1:8090",
        "its console is at http://127.0.0.1:8080/console/",
        "",
        "To start a node, create a key for it:",
        "  toolgate keys create node-1 --role node --out node.key",
        "  toolgate node --control 127.0.0.1:8090 --control-key-file node.key \\",
        "    --listen 127.0.0.1:8081 --data .toolgate-node",
        "",
        "Ctrl-C stops the control plane. Its nodes continue with their last state.",
    ]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(("--grpc-listen", "0.0.0.0:0"), "unencrypted", id="plain gRPC"),
        pytest.param(("--listen", "0.0.0.0:0"), "no key is configured", id="ADM-5"),
        pytest.param(("--grpc-listen", "nowhere"), "setting `grpc.listen`", id="a wrong address"),
        pytest.param(("--grpc-cert-file", "c.pem"), "only one of", id="a certificate without its key"),
        pytest.param(
            ("--grpc-cert-file", __file__, "--grpc-key-file", __file__), "cannot listen", id="no certificate"
        ),
        pytest.param(
            ("--database", "mysql://u:pw@h/d"),
            "setting `database`: not a URL that begins with `postgresql://`",
            id="another database",
        ),
    ],
)
def test_unsafe_settings_are_rejected_with_the_reason(
    run: Run, tmp_path: Path, *, words: tuple[str, ...], message: str
) -> None:
    ran = run("control", "--data", str(tmp_path / "d"), "--listen", "127.0.0.1:0", *words)

    assert ran.code == 1
    assert message in ran.err
    assert "Traceback" not in ran.err
    assert "pw@h" not in ran.err


def test_a_port_in_use_is_reported_in_one_sentence(run: Run, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = run(
            "control", "--data", str(tmp_path), "--listen", "127.0.0.1:0", "--grpc-listen", address, "--json"
        )

    assert ran.code == 1
    assert json.loads(ran.err)["error"]["message"].startswith(f"cannot listen for gRPC on `{address}`")
