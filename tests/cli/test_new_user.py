"""The way of a new user against a gateway that runs: add reference servers, call their tools, log in."""

import os
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.node import node, node_file
from toolgate.cli.command import ExitCode
from toolgate.cli.contexts import find_contexts_file

TIME = str(Path(sys.executable).with_name("mcp-server-time"))
NOON = ("time=12:00", "source_timezone=UTC", "target_timezone=Asia/Tokyo")
IMAGE_TOOL = "everything.get-tiny-image"


@pytest.fixture
def at_gateway(run: Run, url: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setenv("TOOLGATE_URL", url)
    return run


def test_a_server_is_added_by_its_command_and_its_tool_called(at_gateway: Run) -> None:
    denied = at_gateway("servers", "add", "clock", "--", TIME)
    unknown = at_gateway("call", "clock.convert_time", *NOON)
    again = at_gateway("servers", "add", "clock", "--allow", "*", "--", TIME)
    added = at_gateway("servers", "add", "clock", "--replace", "--allow", "convert_*", "--", TIME)
    called = at_gateway("call", "clock.convert_time", *NOON, "--servers", "clock")

    assert (denied.code, "no tool is offered" in denied.out) == (0, True)
    assert (unknown.code, "no tool `clock.convert_time`" in unknown.err) == (1, True)
    assert (again.code, "already exists" in again.err) == (1, True)
    assert "offers 1 of 2 tools: convert_time" in added.lines
    assert (called.code, called.json["target"]["datetime"][11:16]) == (0, "21:00")


def test_the_arguments_of_a_real_tool_are_described_and_checked(at_gateway: Run) -> None:
    at_gateway("servers", "add", "clock", "--replace", "--allow", "*", "--", TIME)

    described = at_gateway("call", "clock.convert_time", "--describe")
    missing = at_gateway("call", "clock.convert_time", "time=12:00")
    slip = at_gateway("call", "clock.convert_tme", *NOON)
    failed = at_gateway("call", "clock.convert_time", "time=25:00", *NOON[1:])
    in_find_mode = at_gateway("call", "clock.convert_time", *NOON, "--mode", "find")

    assert "source_timezone  string" in described.out
    assert "`clock.convert_time` needs `source_timezone` (string, " in missing.err
    assert "did you mean `clock.convert_time`?" in slip.err
    assert (missing.code, slip.code, failed.code) == (ExitCode.USAGE, ExitCode.FAILED, ExitCode.FAILED)
    assert "clock.convert_time reports an error" in failed.err
    assert in_find_mode.json["target"]["timezone"] == "Asia/Tokyo"


def test_an_image_of_a_reference_server_is_saved(at_gateway: Run, tmp_path: Path) -> None:
    program = node_file("@modelcontextprotocol/server-everything/dist/index.js")
    added = at_gateway("servers", "add", "everything", "--allow", "*", "--", node(), program, "stdio")
    out = tmp_path / "tiny.png"

    called = at_gateway("call", IMAGE_TOOL, "--out", str(out))
    summed = at_gateway("call", "everything.get-sum", "a=2", "b=3")

    assert added.code == 0
    assert called.code == 0
    assert f"image image/png, {out.stat().st_size:,} bytes, in {out}" in called.lines
    assert out.read_bytes().startswith(b"\x89PNG")
    assert "5" in summed.out


def test_a_server_that_does_not_start_is_not_registered(at_gateway: Run) -> None:
    ran = at_gateway("servers", "add", "broken", "--", sys.executable, "-c", "raise SystemExit(3)")

    assert ran.code == ExitCode.FAILED
    assert at_gateway("servers", "get", "broken").code == ExitCode.FAILED


def test_a_key_is_logged_in_with_used_and_forgotten(
    at_gateway: Run, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_file, wrong = tmp_path / "ada.key", tmp_path / "wrong.key"
    wrong.write_text("tg_wrong\n", "utf-8")
    at_gateway("keys", "create", "ada", "--role", "viewer", "--out", str(key_file))
    monkeypatch.delenv("TOOLGATE_URL")

    refused = at_gateway("login", url, "--key-file", str(wrong))
    begun = at_gateway("login", url, "--context", "here", "--key-file", str(key_file))
    listed = at_gateway("servers", "list")
    denied = at_gateway("keys", "create", "eve")
    ended = at_gateway("logout")

    assert refused.code == ExitCode.AUTH
    assert begun.lines[0] == f"✓ logged in to {url} as key:ada, role viewer"
    assert (listed.code, denied.code, ended.code) == (0, ExitCode.AUTH, 0)
    secret = key_file.read_text("utf-8").strip()
    assert secret not in begun.out + find_contexts_file(os.environ).read_text("utf-8")
