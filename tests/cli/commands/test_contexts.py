"""`login`, `logout` and `contexts`: which gateway a command calls, with which key, and who can read that."""

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.fake_gateway import FakeGateway, open_fake_gateway
from tests.cli.terminal import Reply, converse
from toolgate.cli.command import ExitCode, UsageError
from toolgate.cli.contexts import (
    Contexts,
    GatewayContext,
    GatewayTarget,
    encode_contexts,
    find_contexts_file,
    is_same_address,
    load_contexts,
    resolve_target,
    url_option,
)

ME = {"principal": "ada", "role": "admin", "by": "key", "version": "1"}
LOCAL = "http://127.0.0.1:8080"
PROD, DEV = "https://prod.example", "https://dev.example"
SAVED = Contexts(
    by_name={
        "prod": GatewayContext(url=PROD, key="prod-key"),
        "dev": GatewayContext(url=DEV, key="dev-key"),
        "open": GatewayContext(url=LOCAL),
    },
    current="dev",
)


def write_contexts(saved: Contexts) -> Path:
    """The file where the commands of a test look for it."""
    file = find_contexts_file(os.environ)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(encode_contexts(saved), "utf-8")
    file.chmod(0o600)
    return file


@pytest.fixture
def me(run: Run, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A gateway that knows its caller, and that the environment does not name."""
    monkeypatch.delenv("TOOLGATE_URL", raising=False)
    with open_fake_gateway() as gateway:
        gateway.respond("GET /api/v1/me", ME)
        gateway.respond("GET /admin/api/mcp/servers", {"servers": []})
        yield gateway


def key_of(gateway: FakeGateway) -> str | None:
    """The key of the last request."""
    return gateway.last.headers.get("authorization")


def key_file(tmp_path: Path, key: str = "tg_secret") -> Path:
    file = tmp_path / "key"
    file.write_text(f"{key}\n", "utf-8")
    return file


@pytest.mark.parametrize(
    ("choice", "environ", "expected"),
    [
        pytest.param({}, {}, (DEV, "dev-key"), id="the current context"),
        pytest.param({}, {"TOOLGATE_CONTEXT": "prod"}, (PROD, "prod-key"), id="TOOLGATE_CONTEXT"),
        pytest.param({}, {"TOOLGATE_CONTEXT": "open"}, (LOCAL, None), id="a context without a key"),
        pytest.param(
            {"context": "prod"}, {"TOOLGATE_CONTEXT": "open"}, (PROD, "prod-key"), id="--context before it"
        ),
        pytest.param({}, {"TOOLGATE_URL": "http://x"}, ("http://x", None), id="TOOLGATE_URL, no key for it"),
        pytest.param(
            {"context": "prod"}, {"TOOLGATE_URL": "http://x"}, ("http://x", None), id="it is before --context"
        ),
        pytest.param({}, {"TOOLGATE_KEY": "own"}, (DEV, "own"), id="TOOLGATE_KEY before that of a context"),
        pytest.param(
            {"context": "prod"}, {"TOOLGATE_KEY": "own"}, (PROD, "own"), id="also before that of --context"
        ),
        pytest.param({}, {"TOOLGATE_URL": "", "TOOLGATE_KEY": " "}, (DEV, "dev-key"), id="empty variables"),
        pytest.param({"url": "http://y"}, {"TOOLGATE_URL": "http://x"}, ("http://y", None), id="--url first"),
        pytest.param({"url": f"{DEV}/"}, {}, (f"{DEV}/", "dev-key"), id="--url of the current context"),
        pytest.param(
            {"url": PROD, "context": "prod"}, {}, (PROD, "prod-key"), id="--url and its own context"
        ),
        pytest.param({"url": "http://dev.example"}, {}, ("http://dev.example", None), id="another scheme"),
        pytest.param({"url": f"{DEV}:8443"}, {}, (f"{DEV}:8443", None), id="another port"),
        pytest.param({"url": f"{DEV}/a"}, {}, (f"{DEV}/a", None), id="another path"),
        pytest.param({"has_key": True}, {}, (DEV, None), id="--key-file before all keys of contexts"),
        pytest.param(
            {"url": "http://y"}, {"TOOLGATE_CONTEXT": "gone"}, ("http://y", None), id="a context not needed"
        ),
    ],
)
def test_the_gateway_and_its_key_come_from_the_first_that_names_them(
    run: Run, choice: dict[str, Any], environ: dict[str, str], expected: tuple[str, str | None]
) -> None:
    write_contexts(SAVED)

    target = resolve_target({**os.environ, "TOOLGATE_URL": "", **environ}, **choice)

    assert (target.url, target.key) == expected


def test_without_contexts_the_gateway_is_on_this_machine(run: Run) -> None:
    assert resolve_target({"XDG_CONFIG_HOME": os.environ["XDG_CONFIG_HOME"]}) == (GatewayTarget(url=LOCAL))


@pytest.mark.parametrize(
    ("choice", "environ"),
    [
        pytest.param({"context": "gone"}, {}, id="--context"),
        pytest.param({"context": "gone", "url": LOCAL, "has_key": True}, {}, id="--context next to --url"),
        pytest.param({}, {"TOOLGATE_CONTEXT": "gone"}, id="TOOLGATE_CONTEXT"),
    ],
)
def test_a_context_that_does_not_exist_is_an_error_and_no_other_is_used(
    run: Run, choice: dict[str, Any], environ: dict[str, str]
) -> None:
    write_contexts(SAVED)

    with pytest.raises(UsageError, match="no context `gone`"):
        resolve_target({**os.environ, "TOOLGATE_URL": "", **environ}, **choice)


def test_a_command_calls_the_gateway_of_its_context_with_the_key_of_that(me: FakeGateway, run: Run) -> None:
    write_contexts(Contexts(by_name={"here": GatewayContext(url=me.url, key="tg_here")}))

    assert run("servers", "list", "--context", "here").code == 0
    assert key_of(me) == "Bearer tg_here"


def test_the_key_of_a_context_is_not_sent_to_another_address(
    me: FakeGateway, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_contexts(
        Contexts(by_name={"away": GatewayContext(url=PROD, key="tg_away")}, current="away"),
    )

    by_option = run("servers", "list", "--url", me.url)
    monkeypatch.setenv("TOOLGATE_URL", me.url)
    by_variable = run("servers", "list", "--context", "away")

    assert [one.headers.get("authorization") for one in me.asked] == [None, None]
    assert by_option.err == ""
    assert by_variable.err == f"warning: `{me.url}` is used, and not context `away`\n"


def test_top_does_not_send_the_key_of_a_context_to_nodes(me: FakeGateway, run: Run) -> None:
    write_contexts(Contexts(by_name={"here": GatewayContext(url=me.url, key="tg_here")}, current="here"))

    ran = run("top", "--once", "--node", "http://127.0.0.1:9")

    assert (ran.code, me.asked) == (ExitCode.USAGE, [])
    assert "the key of context `here` is not sent to `http://127.0.0.1:9`" in ran.err


def test_login_checks_the_key_saves_it_for_its_owner_and_makes_it_current(
    me: FakeGateway, run: Run, tmp_path: Path
) -> None:
    ran = run("login", me.url, "--context", "prod", "--key-file", str(key_file(tmp_path)))
    file = find_contexts_file(os.environ)

    assert (ran.code, key_of(me)) == (0, "Bearer tg_secret")
    assert ran.lines[0] == f"✓ logged in to {me.url} as ada, role admin"
    assert ran.lines[1] == "  saved as context prod, which is now current"
    assert "tg_secret" not in ran.out + ran.err
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert load_contexts(file) == Contexts(
        by_name={"prod": GatewayContext(url=me.url, key="tg_secret")}, current="prod"
    )
    assert run("servers", "list").code == 0
    assert key_of(me) == "Bearer tg_secret"


def test_login_for_programs_says_who_and_not_the_key(
    me: FakeGateway, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOOLGATE_KEY", "tg_secret")

    ran = run("login", f"{me.url}/", "--json")

    assert ran.json == {
        "context": "local",
        "url": me.url,
        "file": str(find_contexts_file(os.environ)),
        "principal": "ada",
        "role": "admin",
        "by": "key",
        "warnings": [],
    }


def test_a_key_that_the_gateway_refuses_is_not_saved(me: FakeGateway, run: Run, tmp_path: Path) -> None:
    me.refuse("GET /api/v1/me", "unauthenticated", "unknown key", status=401)

    ran = run("login", me.url, "--key-file", str(key_file(tmp_path)))

    assert ran.code == ExitCode.AUTH
    assert not find_contexts_file(os.environ).exists()
    assert "tg_secret" not in ran.out + ran.err


def test_at_a_node_the_key_is_checked_and_its_owner_not_known(
    me: FakeGateway, run: Run, tmp_path: Path
) -> None:
    me.refuse("GET /api/v1/me", "not_found", "no such route", status=404)
    me.respond("GET /api/v1/mcp/health", {"servers": {}})

    ran = run("login", me.url, "--key-file", str(key_file(tmp_path)))

    assert ran.lines[0] == f"✓ logged in to {me.url}"
    assert (me.last.path, key_of(me)) == ("/api/v1/mcp/health", "Bearer tg_secret")


def test_on_this_machine_a_gateway_is_used_without_a_key(me: FakeGateway, run: Run) -> None:
    ran = run("login", me.url)

    assert (ran.code, key_of(me)) == (0, None)
    assert load_contexts(find_contexts_file(os.environ)).by_name["local"] == GatewayContext(url=me.url)


def test_elsewhere_a_key_is_needed_and_scripts_read_how_to_give_it(run: Run) -> None:
    ran = run("login", PROD)

    assert ran.code == ExitCode.USAGE
    assert "give --key-file or set TOOLGATE_KEY" in ran.err


def test_in_a_terminal_the_key_is_asked_for_and_never_shown(me: FakeGateway, run: Run) -> None:
    config = {"XDG_CONFIG_HOME": os.environ["XDG_CONFIG_HOME"]}

    ended = converse(["login", me.url], [Reply("key for", "tg_typed", is_hidden=True)], config)

    assert ended.code == 0, ended.screen
    assert "tg_typed" not in ended.screen
    assert key_of(me) == "Bearer tg_typed"
    assert load_contexts(find_contexts_file(os.environ)).by_name["local"].key == "tg_typed"


def test_logging_in_again_needs_the_name_only(me: FakeGateway, run: Run, tmp_path: Path) -> None:
    write_contexts(Contexts(by_name={"prod": GatewayContext(url=me.url, key="tg_old")}))

    ran = run("login", "--context", "prod", "--key-file", str(key_file(tmp_path, "tg_new")))

    assert ran.code == 0
    assert load_contexts(find_contexts_file(os.environ)).by_name["prod"].key == "tg_new"


def test_a_name_that_was_not_given_never_replaces_another_gateway(
    me: FakeGateway, run: Run, tmp_path: Path
) -> None:
    write_contexts(Contexts(by_name={"local": GatewayContext(url=LOCAL, key="tg_local")}))

    ran = run("login", me.url, "--key-file", str(key_file(tmp_path)))

    assert (ran.code, me.asked) == (ExitCode.USAGE, [])
    assert f"context `local` is for `{LOCAL}`" in ran.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param(("ftp://x",), "is not the address of a gateway", id="scheme"),
        pytest.param(("https://x:port",), "is not the address of a gateway", id="port"),
        pytest.param(("https://x\u202e",), "is not the address of a gateway", id="invisible"),
        pytest.param(("https://ada:pw@x",), "no user, query or fragment", id="user"),
        pytest.param(("https://x?a=b",), "no user, query or fragment", id="query"),
        pytest.param(("https://x", "--context", "a b"), "invalid context name `a b`", id="name"),
        pytest.param(("https://x", "--key-file", "/none"), "cannot read the key file", id="key file"),
    ],
)
def test_what_cannot_be_logged_in_to_is_refused(run: Run, words: tuple[str, ...], message: str) -> None:
    ran = run("login", *words)

    assert ran.code == ExitCode.USAGE
    assert message in ran.err
    assert not find_contexts_file(os.environ).exists()


def test_a_key_with_a_line_break_in_it_is_refused_and_not_shown(run: Run, tmp_path: Path) -> None:
    ran = run("login", PROD, "--key-file", str(key_file(tmp_path, "tg_one\ntg_two")))

    assert ran.code == ExitCode.USAGE
    assert "tg_" not in ran.err


def test_a_file_that_others_can_read_is_refused(me: FakeGateway, run: Run) -> None:
    file = write_contexts(SAVED)
    file.chmod(0o640)

    ran = run("servers", "list", "--url", me.url)

    assert (ran.code, me.asked) == (ExitCode.USAGE, [])
    assert f"others can read `{file}`" in ran.err
    assert f"chmod 600 {file}" in ran.err


def test_with_address_and_key_from_elsewhere_the_file_is_not_read(
    me: FakeGateway, run: Run, tmp_path: Path
) -> None:
    write_contexts(SAVED).chmod(0o640)

    assert run("servers", "list", "--url", me.url, "--key-file", str(key_file(tmp_path))).code == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("current = 1 2", "line 1", id="not TOML"),
        pytest.param('current = "gone"\n', "`current` is not the name", id="current"),
        pytest.param("other = 1\n", "and nothing else", id="other"),
        pytest.param('[contexts.a]\nkey = "tg_secret"\n', "needs `url`", id="no url"),
        pytest.param('[contexts.a]\nurl = "http://x"\nkey = 3\n', "are text", id="not text"),
        pytest.param('[contexts.a]\nurl = "http://x"\ntoken = "tg_secret"\n', "nothing else", id="token"),
    ],
)
def test_a_file_of_another_form_is_refused_with_the_place_and_without_its_keys(
    run: Run, text: str, reason: str
) -> None:
    file = write_contexts(SAVED)
    file.write_text(text, "utf-8")

    ran = run("contexts", "list")

    assert ran.code == ExitCode.USAGE
    assert reason in ran.err
    assert "tg_secret" not in ran.err


def test_contexts_are_listed_without_their_keys(run: Run) -> None:
    write_contexts(SAVED)

    table, lines = run("contexts", "list"), run("contexts", "list", "--json")

    assert table.lines == [
        "   CONTEXT  URL                    KEY",
        "*  dev      https://dev.example    saved",
        "   open     http://127.0.0.1:8080  none",
        "   prod     https://prod.example   saved",
    ]
    assert "-key" not in table.out + lines.out


def test_another_context_is_used_and_deleted(run: Run) -> None:
    file = write_contexts(SAVED)

    assert run("contexts", "use", "prod").lines == ["✓ context prod is now current: https://prod.example"]
    assert load_contexts(file).current == "prod"
    assert run("contexts", "delete", "dev").lines == [
        "✓ context dev and its key are removed from this machine"
    ]
    assert load_contexts(file) == Contexts(
        by_name={name: one for name, one in SAVED.by_name.items() if name != "dev"}, current="prod"
    )
    assert run("contexts", "use", "dev").code == ExitCode.USAGE
    assert run("contexts", "delete", "dev").code == ExitCode.USAGE


def test_logout_removes_the_current_context_or_the_named_one(run: Run) -> None:
    file = write_contexts(SAVED)

    named = run("logout", "prod", "--json").json
    current = run("logout")

    assert named == {"deleted": "prod", "current": "dev"}
    assert current.lines == ["✓ context dev and its key are removed from this machine; no context is current"]
    assert "-key" not in file.read_text("utf-8")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert run("logout").code == ExitCode.USAGE


def test_the_file_is_below_the_configuration_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/ada")

    assert find_contexts_file({"XDG_CONFIG_HOME": "/etc/x"}) == Path("/etc/x/toolgate/contexts.toml")
    assert find_contexts_file({}) == Path("/home/ada/.config/toolgate/contexts.toml")
    assert find_contexts_file({"XDG_CONFIG_HOME": "x"}) == Path("/home/ada/.config/toolgate/contexts.toml")


def test_the_key_is_in_no_representation() -> None:
    context = GatewayContext(url=PROD, key="tg_secret")

    assert "tg_secret" not in repr(Contexts(by_name={"a": context}))
    assert "tg_secret" not in repr(GatewayTarget(url=PROD, key="tg_secret"))


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        pytest.param("https://x", "https://X:443/", True, id="the same"),
        pytest.param("https://x", "http://x", False, id="scheme"),
        pytest.param("https://x", "https://x.evil", False, id="host"),
        pytest.param("https://x", "https://x@evil", False, id="user"),
        pytest.param("https://x", "https://x:port", False, id="no port"),
    ],
)
def test_two_addresses_are_the_same_if_requests_go_to_the_same_place(
    one: str, other: str, *, expected: bool
) -> None:
    assert is_same_address(one, other) is expected


def test_a_suggested_command_names_the_gateway_unless_it_is_the_current_one(run: Run) -> None:
    assert url_option(LOCAL) == ""
    assert url_option(PROD) == f" --url {PROD}"

    write_contexts(SAVED)

    assert url_option(DEV) == ""
    assert url_option(LOCAL) == f" --url {LOCAL}"
