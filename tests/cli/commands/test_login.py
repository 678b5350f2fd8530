"""`toolgate servers login`: from the terminal through a browser into a gateway that runs, and back out."""

import json
import threading
import urllib.request
import webbrowser
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest

from tests.cli.conftest import Run
from tests.cli.fake_gateway import FakeGateway
from tests.cli.processes import running
from tests.upstream.oauth.authority import OAuthWorld, world_aside
from toolgate.cli.command import CommandError, ExitCode
from toolgate.cli.commands.servers import LoginCallbackServer

LOGIN = "/api/v1/mcp/servers/there/login"


@pytest.fixture
def servers() -> Iterator[OAuthWorld]:
    """The authorization server and the MCP server, on a loop of their own."""
    with world_aside() as world:
        yield world


def visit(url: str) -> None:
    """What a browser does, without its user."""
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=60) as response:
        assert response.status == 200


def browser(world: OAuthWorld) -> Callable[[str], bool]:
    """A user who agrees."""

    def open_url(url: str) -> bool:
        redirect_uri = dict(parse_qsl(urlsplit(url).query))["redirect_uri"]
        back = f"{redirect_uri}?{urlencode(world.authority.negotiate(url))}"
        threading.Thread(target=visit, args=(back,)).start()
        return True

    return open_url


def test_agreeing_in_the_browser_logs_the_gateway_in(
    run: Run, servers: OAuthWorld, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oauth = {"grant": "authorization_code", "client_id": "gateway"}
    body = {
        "server_id": "there",
        "transport": "streamable_http",
        "allowed_tools": ["*"],
        "http": {"url": servers.serving.url, "oauth": oauth},
    }
    file = tmp_path / "there.json"
    file.write_text(json.dumps(body), "utf-8")
    data = tmp_path / "data"
    with running("up", "--listen", "127.0.0.1:0", "--data", str(data)) as (_, shown):
        monkeypatch.setenv("TOOLGATE_URL", shown["url"])
        monkeypatch.setattr(webbrowser, "open", browser(servers))
        assert run("servers", "apply", "-f", str(file)).code == 0
        before = run("servers", "test", "there")
        logged_in = run("servers", "login", "there")
        after = run("servers", "get", "there")
        ended = run("servers", "logout", "there")

    assert (before.code, "toolgate servers login there" in before.out) == (ExitCode.FAILED, True)
    assert (logged_in.code, ended.code) == (0, 0)
    assert f"logged in at {servers.authority.issuer} until " in after.out
    assert "connected" in after.out
    assert "of-many" not in f"{before}{logged_in}{after}{ended}"
    assert b"of-many" not in b"".join(path.read_bytes() for path in data.iterdir() if path.is_file())
    assert list((data / "logins").iterdir()) == []


def test_the_address_can_be_pasted_where_the_browser_runs_elsewhere(
    run: Run, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.respond(f"POST {LOGIN}", {"authorization_url": "https://login.example/a?b=c", "state": "s"})
    login = {"issuer": "https://login.example", "expires_at_s": None, "renews": False}
    gateway.respond(f"POST {LOGIN}/finish", {"server_id": "there", "login": login})
    monkeypatch.setattr(webbrowser, "open", _never)
    monkeypatch.setattr("typer.prompt", lambda *_args, **_kw: " http://127.0.0.1:9/callback?state=s&code=c ")

    ran = run("servers", "login", "there", "--paste")

    assert (ran.code, gateway.last.body) == (0, {"state": "s", "code": "c"})
    assert "https://login.example/a?b=c" in ran.err


def test_a_login_says_for_whom_it_is_and_what_it_asks_for(
    run: Run, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    gateway.respond(f"POST {LOGIN}", {"authorization_url": "https://login.example/", "state": "s"})
    login = {"issuer": "https://login.example", "expires_at_s": None, "renews": False}
    gateway.respond(f"POST {LOGIN}/finish", {"server_id": "there", "login": login})
    gateway.respond(f"DELETE {LOGIN}", {"server_id": "there", "revoked": False})
    monkeypatch.setattr("typer.prompt", lambda *_args, **_kw: "http://127.0.0.1:9/callback?state=s&code=c")

    assert run("servers", "login", "there", "--paste", "--shared", "--scope", "a", "--scope", "b").code == 0
    out = run("servers", "logout", "there", "--shared")

    begun, finished, ended = gateway.asked
    assert {name: begun.body[name] for name in ("shared", "scopes")} == {"shared": True, "scopes": ["a", "b"]}
    assert finished.body == {"state": "s", "code": "c", "shared": True}
    assert ended.query == {"shared": "true"}
    assert "did not revoke the token" in out.out


@pytest.mark.parametrize(
    ("pasted", "output"),
    [
        ("http://127.0.0.1:9/callback?state=other&code=c", "does not belong to this login"),
        ("nonsense", "does not belong to this login"),
        (f"http://x/?{'a=b&' * 100}", "does not belong to this login"),
        ("http://127.0.0.1:9/callback?state=s&error=access_denied", "refused: access_denied"),
    ],
)
def test_what_is_no_answer_is_not_handed_in(
    run: Run, gateway: FakeGateway, monkeypatch: pytest.MonkeyPatch, pasted: str, output: str
) -> None:
    gateway.respond(f"POST {LOGIN}", {"authorization_url": "https://login.example/", "state": "s"})
    monkeypatch.setattr("typer.prompt", lambda *_args, **_kw: pasted)

    ran = run("servers", "login", "there", "--paste")

    assert (ran.code != 0, output in ran.err) == (True, True)
    assert len(gateway.asked) == 1


def test_answers_to_something_else_are_passed_over() -> None:
    with LoginCallbackServer() as callback:
        path = callback.url

        def visit_all() -> None:
            for query in ("state=forged&code=x", "state=right&code=c"):
                visit(f"{path}?{query}")

        visitor = threading.Thread(target=visit_all)
        visitor.start()
        response = callback.wait("right")
        visitor.join()

    assert response == {"state": "right", "code": "c"}


def test_a_login_times_out() -> None:
    times = iter([0.0, 1_000.0])
    with LoginCallbackServer() as callback, pytest.raises(CommandError, match="no callback from the browser"):
        callback.wait("x", lambda: next(times))


def _never(_url: str) -> bool:
    raise AssertionError("no browser is opened here")
