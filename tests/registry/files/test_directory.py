"""Reading a directory of server files: which files count, what is said about the others, and where."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.registry.server_files import body, save
from toolgate.errors import NotFound
from toolgate.model.servers import ServerBudgets, ServerRecord, StdioLaunch
from toolgate.registry.files.directory import (
    DirectoryScan,
    FileProblem,
    ServerFile,
    fingerprint,
    scan_directory,
)
from toolgate.registry.records.codec import parse_server


def good(file: str, server_id: str, **more: Any) -> ServerFile:
    return ServerFile(file=file, record=parse_server(body(server_id, **more)))


@pytest.mark.requirement("002-058")
def test_a_toml_and_a_json_file_are_a_server_each(tmp_path: Path) -> None:
    (tmp_path / "fs.toml").write_text(
        """\
version = 1
server_id = "fs"
transport = "stdio"
allowed_tools = ["read_*"]

[stdio]
command = "fs"
env_from = ["HOME_URL"]

[budgets]
tool_timeout_ms = 8000
"""
    )
    save(tmp_path / "git.json", server_id="git")

    scan = scan_directory(tmp_path)

    stdio = {"command": "fs", "env_from": ["HOME_URL"]}
    budgets = {"tool_timeout_ms": 8000}
    assert scan == DirectoryScan(
        servers=(
            good("fs.toml", "fs", stdio=stdio, allowed_tools=["read_*"], budgets=budgets),
            good("git.json", "git"),
        ),
        problems=(),
        warnings=(),
    )


@pytest.mark.requirement("002-061")
def test_the_file_of_the_requirement_document_is_read_unchanged(tmp_path: Path) -> None:
    (tmp_path / "fs.toml").write_text(
        """\
version = 1
server_id = "fs"
display_name = "Filesystem"
transport = "stdio"
tool_namespace = "mcp.fs"
allowed_tools = ["read_*", "search_*"]

[stdio]
command = "uvx"
args = ["xxx@latest"]

[budgets]
tool_timeout_ms = 8000
max_concurrency = 8
max_tool_output_bytes = 65536
"""
    )

    scan = scan_directory(tmp_path, strict=True)

    assert (scan.problems, scan.warnings) == ((), ())
    assert [one.record for one in scan.servers] == [
        ServerRecord(
            server_id="fs",
            display_name="Filesystem",
            transport="stdio",
            stdio=StdioLaunch(command="uvx", args=("xxx@latest",)),
            tool_namespace="mcp.fs",
            allowed_tools=("read_*", "search_*"),
            budgets=ServerBudgets(tool_timeout_ms=8000, max_concurrency=8, max_tool_output_bytes=65536),
        )
    ]


def test_an_empty_directory_is_no_server(tmp_path: Path) -> None:
    assert scan_directory(tmp_path) == DirectoryScan(servers=(), problems=(), warnings=())


@pytest.mark.parametrize("name", ["missing", "file"])
def test_a_directory_that_cannot_be_read_is_an_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(NotFound, match=name):
        scan_directory(tmp_path / name)
    with pytest.raises(NotFound, match=name):
        fingerprint(tmp_path / name)


@pytest.mark.requirement("002-058", "002-059", "002-060")
def test_fil_1_what_is_not_a_plain_file_is_ignored_with_one_warning_each(tmp_path: Path) -> None:
    directory = tmp_path / "registry"
    directory.mkdir()
    save(tmp_path / "outside.json", server_id="outside")
    save(directory / "fs.json", server_id="fs")
    (directory / "link.json").symlink_to(tmp_path / "outside.json")
    (directory / "passwd.toml").symlink_to("/etc/passwd")
    (directory / "dangling.toml").symlink_to("nowhere")
    os.mkfifo(directory / "pipe.toml")
    (directory / "folder.toml").mkdir()
    (directory / f"{'a' * 240}.toml").write_text("")
    (directory / "new\nline.toml").write_text("")
    save(directory / ".hidden.json", server_id="hidden")
    save(directory / "fs.json~", server_id="old")
    save(directory / ".fs.json.swp", server_id="old")
    save(directory / "fs.json.tmp", server_id="old")
    save(directory / "#fs.json#", server_id="old")
    (directory / "README.md").write_text("not a server")
    (directory / "sub").mkdir()
    save(directory / "sub" / "deep.json", server_id="deep")

    scan = scan_directory(directory)

    unseen = "named with more than 128 characters, or with unprintable ones"
    assert scan.servers == (good("fs.json", "fs"),)
    assert scan.problems == ()
    assert list(scan.warnings) == [
        "#fs.json#: ignored because it is a temporary file",
        ".fs.json.swp: ignored because it is a hidden file",
        ".hidden.json: ignored because it is a hidden file",
        f"{'a' * 64}…: ignored because it is {unseen}",
        "dangling.toml: ignored because it is a symbolic link",
        "folder.toml: ignored because it is not a regular file",
        "fs.json.tmp: ignored because it is a temporary file",
        "fs.json~: ignored because it is a temporary file",
        "link.json: ignored because it is a symbolic link",
        f"new?line.toml: ignored because it is {unseen}",
        "passwd.toml: ignored because it is a symbolic link",
        "pipe.toml: ignored because it is not a regular file",
    ]


def test_folders_are_read_when_asked_but_neither_hidden_nor_linked_ones(tmp_path: Path) -> None:
    for folder in ("a", "b/c", ".git", "z"):
        (tmp_path / folder).mkdir(parents=True)
    save(tmp_path / "a" / "one.json", server_id="one")
    save(tmp_path / "b" / "c" / "two.json", server_id="two")
    save(tmp_path / ".git" / "three.json", server_id="three")
    (tmp_path / "z" / "loop").symlink_to(tmp_path)

    scan = scan_directory(tmp_path, recursive=True)

    assert [server.file for server in scan.servers] == ["a/one.json", "b/c/two.json"]
    assert scan.warnings == ()


@pytest.mark.requirement("002-064")
def test_files_are_taken_in_order_of_their_names_and_the_last_of_two_wins(tmp_path: Path) -> None:
    save(tmp_path / "b.json", server_id="fs", display_name="second")
    save(tmp_path / "a.json", server_id="fs", display_name="first")
    save(tmp_path / "c.json", server_id="git")

    scan = scan_directory(tmp_path)

    assert scan.servers == (good("b.json", "fs", display_name="second"), good("c.json", "git"))
    assert scan.warnings == ("b.json: duplicate server `fs`, also in a.json; this file wins",)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        pytest.param(
            "x.toml",
            b'server_id = "fs"\ntransport = \n',
            FileProblem(file="x.toml", line=2, message="is not TOML: Invalid value", claimed_id="fs"),
            id="broken TOML",
        ),
        pytest.param(
            "x.json",
            b'{\n"server_id": "fs",\n"transport": stdio}',
            FileProblem(file="x.json", line=3, message="is not JSON: Expecting value", claimed_id="fs"),
            id="broken JSON",
        ),
        pytest.param(
            "x.toml",
            b'server_id = "fs"\ntransport = "stdio"\nstdio.command = "x"\n\n[budgets]\nmax_concurrency = 0\n',
            FileProblem(
                file="x.toml",
                line=6,
                message="`budgets.max_concurrency`: input should be greater than or equal to 1",
                claimed_id="fs",
            ),
            id="a wrong field",
        ),
        pytest.param(
            "x.json",
            b'{"server_id": "fs", "transport": "stdio", "stdio": {"command": ["x"]}}',
            FileProblem(
                file="x.json",
                line=1,
                message="`stdio.command`: input should be a valid string",
                claimed_id="fs",
            ),
            id="a wrong field on one line",
        ),
        pytest.param(
            "x.json",
            b'{"server_id": "fs",\n "transport": "stdio"}',
            FileProblem(file="x.json", message="transport `stdio` needs `stdio`", claimed_id="fs"),
            id="a field that is missing has no line",
        ),
        pytest.param(
            "x.json",
            b'{"server_id": "a", "server_id": "b"}',
            FileProblem(
                file="x.json", message="cannot be parsed: an object has a duplicate member", claimed_id="a"
            ),
            id="a member twice",
        ),
        pytest.param(
            "x.json",
            b'{"server_id": "a", "idle_timeout_s": NaN}',
            FileProblem(file="x.json", message="cannot be parsed: `NaN` is not JSON", claimed_id="a"),
            id="NaN",
        ),
        pytest.param(
            "x.json",
            b'{"mcpServers": {"fs": {"command": "fs"}}}',
            FileProblem(
                file="x.json",
                message="is a file of another program; run `toolgate servers import` to import it",
            ),
            id="the file of a client",
        ),
        pytest.param(
            "x.json",
            b"[]",
            FileProblem(file="x.json", line=1, message="does not contain exactly one object"),
            id="a list",
        ),
        pytest.param(
            "x.toml",
            b"",
            FileProblem(file="x.toml", message="`server_id`: is missing; `transport`: is missing"),
            id="empty",
        ),
        pytest.param(
            "x.toml",
            b'server_id = "fs"\n# \xff\n',
            FileProblem(file="x.toml", line=2, message="is not UTF-8"),
            id="not UTF-8",
        ),
        pytest.param(
            "x.json",
            b" " * (1024 * 1024 + 1),
            FileProblem(file="x.json", message="has more than 1048576 bytes"),
            id="too large",
        ),
    ],
)
def test_fil_8_a_bad_file_is_reported_with_its_line_and_the_others_are_read(
    tmp_path: Path, name: str, content: bytes, expected: FileProblem
) -> None:
    (tmp_path / name).write_bytes(content)
    save(tmp_path / "y.json", server_id="git")

    scan = scan_directory(tmp_path)

    assert scan.problems == (expected,)
    assert scan.servers == (good("y.json", "git"),)


def test_deep_nesting_is_a_problem_and_not_a_crash(tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text("[" * 100_000)
    (tmp_path / "y.toml").write_text("a = " + "[" * 100_000)

    assert [problem.file for problem in scan_directory(tmp_path).problems] == ["x.json", "y.toml"]


def test_a_byte_order_mark_is_no_problem(tmp_path: Path) -> None:
    (tmp_path / "fs.json").write_text(json.dumps(body("fs")), "utf-8-sig")

    assert scan_directory(tmp_path).servers == (good("fs.json", "fs"),)


def test_a_problem_says_where_it_is() -> None:
    assert str(FileProblem(file="x.toml", line=3, message="is wrong")) == "x.toml:3: is wrong"
    assert str(FileProblem(file="x.toml", message="is wrong")) == "x.toml: is wrong"


@pytest.mark.requirement("002-066")
def test_an_unknown_field_is_a_warning_or_where_strict_a_problem(tmp_path: Path) -> None:
    save(tmp_path / "fs.json", server_id="fs", colour="red")

    lenient, strict = scan_directory(tmp_path), scan_directory(tmp_path, strict=True)

    assert lenient.servers == (good("fs.json", "fs"),)
    assert lenient.warnings == ("fs.json: unknown field `colour` is ignored",)
    assert strict.servers == ()
    assert [str(problem) for problem in strict.problems] == ["fs.json:1: `colour`: is not a known field"]


@pytest.mark.parametrize("name", [".", "fs.json"])
def test_fil_9_what_anyone_may_write_is_a_warning_or_where_strict_a_problem(
    tmp_path: Path, name: str
) -> None:
    save(tmp_path / "fs.json", server_id="fs")
    (tmp_path / name).chmod(0o777)

    lenient, strict = scan_directory(tmp_path), scan_directory(tmp_path, strict=True)

    assert (len(lenient.warnings), lenient.problems) == (1, ())
    assert "world-writable" in lenient.warnings[0]
    assert (strict.warnings, len(strict.problems)) == ((), 1)


def test_a_fingerprint_changes_with_every_save_that_counts(tmp_path: Path) -> None:
    save(tmp_path / "fs.json", server_id="fs")
    before = fingerprint(tmp_path)
    (tmp_path / "README.md").write_text("nothing to do with it")
    assert fingerprint(tmp_path) == before

    save(tmp_path / "new.json", server_id="fs")
    (tmp_path / "new.json").rename(tmp_path / "fs.json")

    assert fingerprint(tmp_path) != before


def test_strict_refuses_an_id_that_two_files_have(tmp_path: Path) -> None:
    save(tmp_path / "a.json", server_id="git")
    save(tmp_path / "b.json", server_id="git")

    lax, strict = scan_directory(tmp_path), scan_directory(tmp_path, strict=True)

    assert (lax.problems, len(lax.warnings)) == ((), 1)
    assert strict.problems == (FileProblem(file="b.json", message="duplicate server `git`, also in a.json"),)
