"""How failures of a gateway reach the user: message, what to do, exit code."""

import json
import socket
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.cli.fake_gateway import FakeGateway
from tests.cli.responses import tools


@pytest.fixture
def dead_url() -> str:
    """An address where nothing listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}"


def test_a_gateway_that_is_not_there_ends_with_4_and_says_how_to_start_one(run: Run, dead_url: str) -> None:
    ran = run("tools", "--url", dead_url)

    assert ran.code == 4
    assert ran.err.startswith(f"error: cannot reach the gateway at `{dead_url}`")
    assert "start it with `toolgate up`" in ran.err


def test_with_json_a_failure_is_an_object_on_standard_error(run: Run, dead_url: str) -> None:
    ran = run("tools", "--json", "--url", dead_url)

    assert (ran.code, ran.out) == (4, "")
    assert json.loads(ran.err)["error"]["code"] == "unreachable"


@pytest.mark.parametrize(
    ("code", "status", "exit_code"),
    [
        ("unauthenticated", 401, 3),
        ("forbidden", 403, 3),
        ("mcp_policy_denied", 403, 1),
        ("not_found", 404, 1),
        ("internal", 500, 1),
    ],
)
def test_the_exit_code_follows_the_gateways_own_code(
    gateway: FakeGateway, run: Run, code: str, status: int, exit_code: int
) -> None:
    gateway.refuse("GET /api/v1/mcp/tools", code, "no", hint="do this", status=status)

    ran = run("tools")

    assert ran.code == exit_code
    assert ran.err.startswith("error: no\n  try: ")


def test_a_missing_key_says_where_to_put_one(gateway: FakeGateway, run: Run) -> None:
    gateway.refuse("GET /api/v1/mcp/tools", "unauthenticated", "no key", status=401)

    assert "TOOLGATE_KEY" in run("tools").err


def test_the_key_comes_from_a_file_or_the_environment(
    gateway: FakeGateway, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.respond("GET /api/v1/mcp/tools", tools())
    key_file = tmp_path / "key"
    key_file.write_text("tg_file\n", "utf-8")

    run("tools")
    assert "authorization" not in gateway.last.headers
    monkeypatch.setenv("TOOLGATE_KEY", "tg_env")
    run("tools")
    assert gateway.last.headers["authorization"] == "Bearer tg_env"
    run("tools", "--key-file", str(key_file))
    assert gateway.last.headers["authorization"] == "Bearer tg_file"


@pytest.mark.parametrize("content", [None, ""])
def test_a_key_file_without_a_key_is_a_usage_error(
    gateway: FakeGateway, run: Run, tmp_path: Path, content: str | None
) -> None:
    key_file = tmp_path / "key"
    if content is not None:
        key_file.write_text(content, "utf-8")

    assert run("tools", "--key-file", str(key_file)).code == 2
    assert gateway.asked == []


def test_no_command_takes_a_key_on_the_command_line(run: Run) -> None:
    assert run("tools", "--key", "tg_secret").code == 2


@pytest.mark.parametrize(
    ("status", "body"), [(200, b"<html>hello</html>"), (404, b"not here"), (502, b'{"error": "bad gateway"}')]
)
def test_another_program_on_the_port_is_recognised(
    gateway: FakeGateway, run: Run, status: int, body: bytes
) -> None:
    gateway.respond("GET /api/v1/mcp/tools", body, status)

    ran = run("tools")

    assert ran.code == 4
    assert "is not a Toolgate gateway" in ran.err


@pytest.mark.parametrize("url", ["127.0.0.1:8080", "ftp://x", "http://"])
def test_an_address_that_is_none_is_a_usage_error(run: Run, url: str) -> None:
    assert run("tools", "--url", url).code == 2


def test_a_proxy_in_the_environment_never_sees_a_call_to_this_machine(
    gateway: FakeGateway, run: Run, monkeypatch: pytest.MonkeyPatch, dead_url: str
) -> None:
    gateway.respond("GET /api/v1/mcp/tools", tools())
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, dead_url)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)

    assert run("tools").code == 0


def test_xss_3_an_error_message_is_escaped(gateway: FakeGateway, run: Run) -> None:
    gateway.refuse("GET /api/v1/mcp/tools", "internal", "\x1b[2Jgone\u202e", hint="\x07", status=500)

    assert run("tools").err == "error: \\x1b[2Jgone\\u202e\n  try: \\x07\n"


def test_a_mistyped_command_is_a_usage_error_with_a_suggestion(run: Run) -> None:
    ran = run("tol")

    assert ran.code == 2
    assert "Did you mean" in ran.err


@pytest.mark.parametrize(
    "words",
    [
        (),
        ("up",),
        ("servers",),
        ("tasks",),
        ("profiles",),
        ("keys",),
        ("tools",),
        ("explain",),
        ("plan",),
        ("lint",),
        ("reload",),
        ("connect",),
        ("doctor",),
        ("tokens",),
    ],
)
def test_every_command_has_help_that_fits_80_columns(run: Run, words: tuple[str, ...]) -> None:
    ran = run(*words, "--help")

    assert ran.code == 0
    assert max(len(line) for line in ran.out.splitlines()) <= 80
