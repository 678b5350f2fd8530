"""What holds for every command of the reference: its help, its options, its requests and its exit codes."""

import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Ran, Run
from tests.cli.fake_gateway import FakeGateway
from tests.cli.typed_commands import TYPED, walk_commands, write_files
from tests.docs.documents import document
from toolgate.cli.command import ExitCode
from toolgate.cli.root import SECTIONS

COMMANDS = walk_commands()
OF_A_GATEWAY = [name for name, one in TYPED.items() if one.request]
TELLS_INSTEAD = {"doctor"}
"""Reports a gateway that fails as a finding."""
PRINTS_A_SCRIPT = {"completion"}
EVERY = pytest.mark.parametrize("name", COMMANDS)
ANY_COLOR = re.compile("\x1b\\[(?:[0-9;]*;)?[34][0-9][;m]")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with all files that commands name, and no context of the user."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    write_files(tmp_path)
    return tmp_path


def words_of(name: str, files: Path, url: str, *more: str) -> list[str]:
    """`name` as it is typed."""
    return [*name.split(), *TYPED[name].words.format(tmp=files, url=url).split(), *more]


def test_the_reference_and_the_commands_that_tests_type_are_the_same() -> None:
    titles = re.findall(r"^### `toolgate (.+)`$", document("docs/reference/cli.md").text, re.MULTILINE)
    documented = {re.match(r"[a-z -]*[a-z]", title)[0] for title in titles}  # type: ignore[index]

    assert documented == set(COMMANDS) == set(TYPED)


@EVERY
def test_a_command_sends_the_request_that_it_is_for_and_heeds_no_color(
    gateway: FakeGateway, run: Run, files: Path, monkeypatch: pytest.MonkeyPatch, *, name: str
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("NO_COLOR", "1")

    ran = run(*words_of(name, files, gateway.url))

    first = [f"{asked.method} {asked.path}" for asked in gateway.asked[:1]]
    assert (first, ran.code) == ([TYPED[name].request] if TYPED[name].request else [], TYPED[name].code)
    assert not ANY_COLOR.search(ran.out + ran.err)


@pytest.mark.parametrize("name", sorted({*OF_A_GATEWAY} - TELLS_INSTEAD))
def test_an_unreachable_gateway_is_exit_code_4_and_a_rejected_key_3_in_json_too(
    gateway: FakeGateway, run: Run, files: Path, monkeypatch: pytest.MonkeyPatch, *, name: str
) -> None:
    method, _, path = TYPED[name].request.partition(" ")
    gateway.refuse(f"{method} {path}", "unauthenticated", "no key", status=401)

    rejected = run(*words_of(name, files, gateway.url, "--json"))
    with socket.create_server(("127.0.0.1", 0)) as server:
        closed = f"http://127.0.0.1:{server.getsockname()[1]}"
    monkeypatch.setenv("TOOLGATE_URL", closed)
    unreachable = run(*words_of(name, files, closed, "--json"))

    assert (rejected.code, error_of(rejected)) == (ExitCode.AUTH, "unauthenticated")
    assert (unreachable.code, error_of(unreachable)) == (ExitCode.UNREACHABLE, "unreachable")


def error_of(ran: Ran) -> Any:
    """The code of the one error that a command printed as JSON."""
    return json.loads(ran.err.splitlines()[-1])["error"]["code"]


@EVERY
def test_help_begins_with_a_sentence_and_fits_80_and_40_columns(
    run: Run, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    ran = run(*name.split(), "--help")
    monkeypatch.setenv("COLUMNS", "40")
    narrow = run(*name.split(), "--help")

    sentence = ran.out.split("\n\n")[1]
    assert (ran.code, ran.err) == (0, "")
    assert re.search(r"[.](\s|$)", sentence), sentence
    assert [line for line in ran.lines if len(line) > 80] == []
    # Examples are copied as they are, and a name keeps its value; everything else wraps between words.
    assert [one for one in narrow.lines if len(one) > 40 and not one.startswith("  ")] == []


@EVERY
def test_every_option_and_argument_is_explained(name: str) -> None:
    unexplained = [
        one.opts[0] for one in COMMANDS[name].params if not one.hidden and len((one.help or "").split()) <= 3
    ]

    assert unexplained == []


@EVERY
def test_a_command_prints_json(name: str) -> None:
    options = {option for one in COMMANDS[name].params for option in one.opts}

    assert ("--json" in options) == (name not in PRINTS_A_SCRIPT)


def test_errors_have_colors_unless_no_color_is_set(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    colored = run("tools", "--task")
    monkeypatch.setenv("NO_COLOR", "1")

    assert ANY_COLOR.search(colored.err)
    assert not ANY_COLOR.search(run("tools", "--task").err)


@pytest.mark.parametrize("words", [(), ("--help",), ("-h",)])
def test_all_commands_are_listed_on_one_screen(run: Run, words: tuple[str, ...]) -> None:
    ran = run(*words)

    listed = [name for section in SECTIONS.values() for name in section]
    assert (ran.code, len(ran.lines) <= 50) == (0, True)
    assert max(map(len, ran.lines)) <= 80
    assert [name for name in listed if not re.search(rf"(^| ) {name}  +[A-Z]", ran.out, re.MULTILINE)] == []


def test_the_list_of_commands_fits_40_columns(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")

    assert max(map(len, run("--help").lines)) <= 40


@pytest.mark.parametrize("noun", ["servers", "keys", "skills", "modules"])
def test_a_noun_alone_prints_its_verbs(run: Run, noun: str) -> None:
    ran = run(noun)

    assert (ran.code, ran.out) == (0, run(noun, "--help").out)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("serverz",), "no such command `serverz`. Did you mean `servers`?"),
        (("servers", "gett"), "no such command `gett`. Did you mean `get`?"),
        (("servers", "get"), "missing argument `SERVER`"),
        (("tools", "--taks", "x"), "no such option: --taks (Possible options: --task, --tools)"),
        (("tokens", "--since", "7"), "`7` is not a duration"),
        (("profiles", "rollout", "x", "--share", "200"), "invalid value for `--share`:"),
    ],
)
def test_a_slip_is_an_error_with_a_hint(run: Run, words: tuple[str, ...], message: str) -> None:
    ran = run(*words)
    as_json = run(*words, "--json")

    first, hint = ran.err.splitlines()
    assert (ran.code, ran.out, hint[:7]) == (ExitCode.USAGE, "", "  try: ")
    assert first.startswith(f"error: {message}")
    assert json.loads(as_json.err)["error"]["message"] == first.removeprefix("error: ")
