"""`toolgate call`: what is sent to the gateway, and how the result is printed."""

import base64
import io
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run
from tests.cli.fake_gateway import Asked, FakeGateway
from tests.cli.responses import tools
from tests.cli.terminal import converse
from toolgate.cli.command import ExitCode

CALL = "POST /api/v1/mcp/call"
DEFINITION = {
    "name": "git.git_log",
    "description": "Shows the log.",
    "inputSchema": {
        "type": "object",
        "properties": {
            "repo_path": {"type": "string", "description": "Where it is."},
            "max_count": {"type": "integer", "default": 10},
        },
        "required": ["repo_path"],
    },
    "annotations": {"readOnlyHint": True, "destructiveHint": False},
}
PNG = b"\x89PNG\r\n\x1a\n"
IMAGE = {"type": "image", "mimeType": "image/png", "data": base64.b64encode(PNG).decode()}


def text(*texts: str) -> list[dict[str, str]]:
    return [{"type": "text", "text": one} for one in texts]


def answer(content: list[Any], **result: Any) -> dict[str, Any]:
    return {
        "result": {"content": content, **result},
        "is_error": result.get("isError", False),
        "duration_ms": 3,
        "request_id": "r1",
    }


def offer(gateway: FakeGateway, called: Any) -> None:
    """The gateway has the tool `git.git_log`, and a call of it answers `called`."""
    described = {
        "git.git_log": answer(text("as JSON"), structuredContent=DEFINITION),
    }

    def respond(asked: Asked) -> Any:
        if asked.body["name"] != "describe_tool":
            return called
        name = asked.body["arguments"]["name"]
        return described.get(name, answer(text(f"Unknown tool: {name}"), isError=True))

    gateway.respond(CALL, respond)
    gateway.respond("GET /api/v1/mcp/tools", tools("git.git_log", "git.git_show"))


def test_a_call_sends_typed_arguments_for_the_scope_of_the_url(gateway: FakeGateway, run: Run) -> None:
    offer(gateway, answer(text("commit 1")))

    ran = run("call", "git.git_log", "repo_path=.", "max_count=3", "--task", "review", "--mode", "list")
    described, called = gateway.asked

    assert (ran.code, ran.out, ran.err) == (0, "commit 1\n", "")
    assert described.query == {"task": "review", "mode": "find"}
    assert called.query == {"task": "review", "mode": "list"}
    assert called.body == {"name": "git.git_log", "arguments": {"repo_path": ".", "max_count": 3}}


def test_describe_shows_the_arguments_and_calls_nothing(gateway: FakeGateway, run: Run) -> None:
    offer(gateway, None)

    ran = run("call", "git.git_log", "--describe")

    assert len(gateway.asked) == 1
    assert ran.lines == [
        "git.git_log",
        "Shows the log.",
        "",
        "hints: readOnlyHint",
        "",
        "ARGUMENT   TYPE     DEFAULT     DESCRIPTION",
        "repo_path  string   (required)  Where it is.",
        "max_count  integer  10",
    ]
    assert run("call", "git.git_log", "--describe", "--json").json == DEFINITION


@pytest.mark.parametrize(
    ("words", "message"),
    [
        pytest.param((), "`git.git_log` needs `repo_path` (string, Where it is.)", id="missing"),
        pytest.param(("repo_path=.", "max_count=x"), "invalid value of `max_count`: `x`", id="type"),
        pytest.param(("repo_path=.", "max_cuont=1"), "did you mean `max_count`?", id="slip"),
        pytest.param(("repo_path",), "`repo_path` is not NAME=VALUE", id="no value"),
        pytest.param(("=x",), "`=x` is not NAME=VALUE", id="no name"),
        pytest.param(("repo_path=@/none",), "cannot read `/none`", id="no file"),
        pytest.param(("repo_path=.", "--out", "/none/x"), "there is no directory `/none`", id="no directory"),
    ],
)
def test_nothing_is_called_with_arguments_that_cannot_be(
    gateway: FakeGateway, run: Run, words: tuple[str, ...], message: str
) -> None:
    offer(gateway, answer(text("called")))

    ran = run("call", "git.git_log", *words)

    assert ran.code == ExitCode.USAGE
    assert message in ran.err
    assert [one.body["name"] for one in gateway.asked] in ([], ["describe_tool"])


@pytest.mark.parametrize(("name", "meant"), [("git_show", "git.git_show"), ("git.git_lgo", "git.git_log")])
def test_an_unknown_tool_suggests_the_one_that_is_meant(
    gateway: FakeGateway, run: Run, name: str, meant: str
) -> None:
    offer(gateway, None)

    ran = run("call", name)

    assert ran.code == ExitCode.FAILED
    assert ran.err.startswith(f"error: no tool `{name}` in this scope\n  try: did you mean `{meant}`?")
    assert json.loads(run("call", name, "--json").err)["error"]["code"] == "unknown_tool"


def test_values_come_from_files_and_standard_input(
    gateway: FakeGateway, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offer(gateway, answer([]))
    (tmp_path / "path").write_text("a b\n", "utf-8")
    (tmp_path / "args.json").write_text('{"repo_path": "x", "max_count": 1, "extra": [null]}', "utf-8")

    def sent(*words: str) -> Any:
        assert run("call", "git.git_log", *words).code == 0
        return gateway.last.body["arguments"]

    assert sent(f"repo_path=@{tmp_path / 'path'}") == {"repo_path": "a b\n"}
    assert sent("repo_path=@@ada") == {"repo_path": "@ada"}
    assert sent("--args-json", str(tmp_path / "args.json"), "max_count=2") == {
        "repo_path": "x",
        "max_count": 2,
        "extra": [None],
    }
    monkeypatch.setattr("sys.stdin", io.StringIO("from a pipe"))
    assert sent("repo_path=@-") == {"repo_path": "from a pipe"}
    monkeypatch.setattr("sys.stdin", io.StringIO('{"repo_path": "piped"}'))
    assert sent("--args-json", "-") == {"repo_path": "piped"}


def test_what_json_cannot_say_is_not_sent(gateway: FakeGateway, run: Run, tmp_path: Path) -> None:
    offer(gateway, answer([]))
    (tmp_path / "args.json").write_text('{"repo_path": Infinity}', "utf-8")

    ran = run("call", "git.git_log", "--args-json", str(tmp_path / "args.json"))

    assert ran.code == ExitCode.USAGE
    assert "the arguments are not JSON" in ran.err
    assert len(gateway.asked) == 1


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        pytest.param(answer(text("a", "b\n")), "a\nb\n", id="texts"),
        pytest.param(answer([], structuredContent={"a": 1}), '{\n  "a": 1\n}\n', id="data"),
        pytest.param(
            answer(text('{"a":1}'), structuredContent={"a": 1}), '{\n  "a": 1\n}\n', id="data, as text too"
        ),
        pytest.param(
            answer(text("1", "2"), structuredContent={"result": [1, 2]}),
            '{\n  "result": [\n    1,\n    2\n  ]\n}\n',
            id="a list, as texts too",
        ),
        pytest.param(answer(text("hi"), structuredContent={"result": "hi"}), "hi\n", id="a text, wrapped"),
        pytest.param(answer(text("3"), structuredContent={"result": 3}), "3\n", id="a number, wrapped"),
        pytest.param(
            answer(text("found"), structuredContent={"a": 1}), 'found\n{\n  "a": 1\n}\n', id="both, different"
        ),
        pytest.param(answer([IMAGE]), "image image/png, 8 bytes\n", id="image"),
        pytest.param(
            answer([{"type": "audio", "mimeType": "audio/wav", "data": "%"}]),
            "audio audio/wav, invalid Base64\n",
            id="audio that cannot be read",
        ),
        pytest.param(
            answer([{"type": "resource", "resource": {"uri": "x:y", "text": "inside"}}]),
            "inside\n",
            id="resource",
        ),
        pytest.param(
            answer([{"type": "resource", "resource": {"uri": "x:y", "blob": "AAAA"}}]),
            "file of no type, 3 bytes\n",
            id="resource of bytes",
        ),
        pytest.param(
            answer([{"type": "resource_link", "uri": "x:y", "name": "y\x1b[2J"}]),
            "resource x:y y\\x1b[2J\n",
            id="link",
        ),
        pytest.param(answer([]), "", id="nothing"),
        pytest.param(answer(text("\x1b[31mred"), unknown=1), "\x1b[31mred\n", id="a pipe gets all of it"),
        pytest.param(answer(text("\ud800")), "?\n", id="half a surrogate pair"),
    ],
)
def test_a_result_is_printed_once_as_what_it_is(
    gateway: FakeGateway, run: Run, result: dict[str, Any], expected: str
) -> None:
    offer(gateway, result)

    ran = run("call", "git.git_log", "repo_path=.")

    assert (ran.code, ran.out) == (0, expected)


def test_programs_get_the_whole_response(gateway: FakeGateway, run: Run) -> None:
    offer(gateway, answer([IMAGE]))

    assert run("call", "git.git_log", "repo_path=.", "--json").json == answer([IMAGE])


def test_a_terminal_gets_text_with_nothing_in_it_that_acts(gateway: FakeGateway, run: Run) -> None:
    offer(gateway, answer(text("one\n\x1b[2Jtwo")))

    ended = converse(["call", "git.git_log", "repo_path=."], [], {})

    assert (ended.code, ended.screen) == (0, "one\n\\x1b[2Jtwo\n")


def test_an_error_of_the_tool_is_on_standard_error_with_exit_code_1(gateway: FakeGateway, run: Run) -> None:
    offer(gateway, answer(text("no such repository"), isError=True))

    ran = run("call", "git.git_log", "repo_path=.")

    assert (ran.code, ran.out) == (ExitCode.FAILED, "")
    assert ran.err == "✗ git.git_log reports an error\nno such repository\n"
    assert run("call", "git.git_log", "repo_path=.", "--json").code == ExitCode.FAILED


def test_a_call_that_needs_approval_says_what_to_do(gateway: FakeGateway, run: Run) -> None:
    error = {"code": "mcp_approval_required", "message": "a person must approve", "hint": "ask one"}
    offer(gateway, {"error": error})
    respond = gateway.responses[CALL][1]

    def refuse(asked: Asked) -> Any:
        gateway.responses[CALL] = (403, refuse)
        return respond(asked)

    gateway.respond(CALL, refuse)

    ran = run("call", "git.git_log", "repo_path=.")

    assert (ran.code, ran.err) == (ExitCode.FAILED, "error: a person must approve\n  try: ask one\n")


def test_files_of_a_result_are_saved_under_names_of_their_own(
    gateway: FakeGateway, run: Run, tmp_path: Path
) -> None:
    offer(gateway, answer([*text("two"), IMAGE, {**IMAGE, "data": "AAAA"}]))
    out = tmp_path / "plot.png"

    ran = run("call", "git.git_log", "repo_path=.", "--out", str(out))

    assert ran.out.splitlines() == [
        "two",
        f"image image/png, 8 bytes, in {out}",
        f"image image/png, 3 bytes, in {tmp_path / 'plot-2.png'}",
    ]
    assert (out.read_bytes(), (tmp_path / "plot-2.png").read_bytes()) == (PNG, b"\0\0\0")


def test_a_result_without_files_is_warned_of_and_makes_none(
    gateway: FakeGateway, run: Run, tmp_path: Path
) -> None:
    offer(gateway, answer(text("only text")))

    ran = run("call", "git.git_log", "repo_path=.", "--out", str(tmp_path / "plot.png"))

    assert (ran.code, ran.out) == (0, "only text\n")
    assert "warning: the result has no image, audio or file" in ran.err
    assert list(tmp_path.iterdir()) == []
