"""Which commands download a server before they run it, and how long their start may take."""

import pytest

from toolgate.model.servers import (
    HttpEndpoint,
    ServerRecord,
    StdioLaunch,
    choose_start_timeout,
    describe_download,
    find_runner,
)


def starting(line: str, **fields: int) -> ServerRecord:
    command, *args = line.split(" ")
    stdio = StdioLaunch(command=command, args=tuple(args))
    return ServerRecord(server_id="s", transport="stdio", stdio=stdio, **fields)  # type: ignore[arg-type]


def script(shell: str, *words: str) -> ServerRecord:
    return ServerRecord(
        server_id="s", transport="stdio", stdio=StdioLaunch(command=shell, args=("-c", *words))
    )


@pytest.mark.parametrize(
    ("record", "runner"),
    [
        (starting("npx -y @modelcontextprotocol/server-memory"), "npx"),
        (starting("/opt/node/bin/npx some-server"), "npx"),
        (starting("npx.cmd some-server"), "npx"),
        (starting("uvx mcp-server-git"), "uvx"),
        (starting("bunx some-server"), "bunx"),
        (starting("pipx run some-server"), "pipx"),
        (starting("docker run -i --rm some/image"), "docker"),
        (starting("pnpm dlx some-server"), "pnpm dlx"),
        (starting("yarn --silent dlx some-server"), "yarn dlx"),
        (starting("npm exec some-server"), "npm exec"),
        (starting("uv tool run mcp-server-git"), "uv tool run"),
        (starting("uv run --with mcp server.py"), "uv run"),
        (starting("env A=1 uvx mcp-server-git"), "uvx"),
        (script("/bin/sh", "exec npx some-server"), "npx"),
        (starting("env"), None),
        (script("sh", ""), None),
        (script("sh", "env " * 3_000 + "npx x"), "npx"),
        (starting("python -m server npx"), None),
        (starting("uv pip install x"), None),
        (starting("my-npx"), None),
        (
            ServerRecord(server_id="s", transport="streamable_http", http=HttpEndpoint(url="https://npx")),
            None,
        ),
    ],
    ids=lambda one: None if isinstance(one, ServerRecord) else str(one),
)
def test_a_package_runner_is_known_by_its_command(record: ServerRecord, runner: str | None) -> None:
    assert find_runner(record) == runner


def test_a_start_may_take_what_the_record_says_else_what_its_command_needs() -> None:
    times = [
        choose_start_timeout(starting("npx x", start_timeout_s=20), 10.0),
        choose_start_timeout(starting("npx x"), 10.0),
        choose_start_timeout(starting("serve", start_timeout_s=20), 10.0),
        choose_start_timeout(starting("serve"), 10.0),
        choose_start_timeout(starting("npx x"), 600.0),
    ]

    assert times == [20.0, 300.0, 20.0, 10.0, 600.0]


def test_a_container_is_pulled_and_a_package_downloaded() -> None:
    assert describe_download("docker") == "docker is pulling the image"
    assert describe_download("uvx") == "uvx is downloading packages"
