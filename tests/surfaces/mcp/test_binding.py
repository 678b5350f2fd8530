"""What a URL asks for, and which URLs have no single reading."""

import pytest

from toolgate.errors import InvalidRequest, NotFound
from toolgate.gateway.scope.caller import Caller, Mode
from toolgate.model.principals import Principal
from toolgate.policy.layers import SessionRequest
from toolgate.surfaces.mcp.exchange import is_mcp_path, parse_caller

ADA = Principal(id="ada", role="agent")


def caller(
    task_id: str | None = None,
    only_server: str | None = None,
    request: SessionRequest = SessionRequest(),  # noqa: B008
    mode: Mode = "list",
) -> Caller:
    return Caller(ADA, task_id, request, only_server, mode)


@pytest.mark.parametrize(
    ("path", "query", "expected"),
    [
        pytest.param("/api/mcp", b"", caller(), id="everything the key may see"),
        pytest.param("/mcp", b"", caller(), id="the alias"),
        pytest.param("/api/mcp/", b"", caller(), id="a trailing slash"),
        pytest.param("/api/mcp/t/review", b"", caller("review"), id="a task by path"),
        pytest.param("/api/mcp", b"task=review", caller("review"), id="a task by query"),
        pytest.param(
            "/api/mcp/s/git", b"", caller(None, "git", SessionRequest(servers=("git",))), id="one server"
        ),
        pytest.param(
            "/api/mcp", b"servers=b,a", caller(request=SessionRequest(servers=("a", "b"))), id="servers"
        ),
        pytest.param("/api/mcp", b"servers=", caller(request=SessionRequest(servers=())), id="no server"),
        pytest.param("/api/mcp", b"tools=", caller(request=SessionRequest(tools=())), id="sco-4 no tool"),
        pytest.param(
            "/api/mcp", b"profile=web", caller(request=SessionRequest(profile="web")), id="a profile"
        ),
        pytest.param("/api/mcp", b"mode=list", caller(), id="a list, which is usual"),
        pytest.param("/api/mcp", b"mode=find", caller(mode="find"), id="tools to be found"),
        pytest.param("/api/mcp/find", b"", caller(mode="find"), id="the same by path"),
        pytest.param("/mcp/find/", b"", caller(mode="find"), id="the same at the alias"),
        pytest.param("/api/mcp/t/review", b"mode=find", caller("review", mode="find"), id="those of a task"),
    ],
)
def test_a_url_has_one_reading(path: str, query: bytes, expected: Caller) -> None:
    assert parse_caller(ADA, path, query) == expected


def test_tools_by_door_name_and_by_bare_name() -> None:
    request = parse_caller(ADA, "/api/mcp", b"tools=git.status,now").request

    assert set(request.tools or ()) == {"git/status", "now"}


@pytest.mark.parametrize(
    "query",
    [
        pytest.param(b"tools=a&tools=b", id="sco-10 twice"),
        pytest.param(b"tools=a&TOOLS=b", id="sco-10 other case"),
        pytest.param(b"TOOLS=b", id="sco-10 other case alone"),
        pytest.param(b"tools[]=b", id="sco-10 brackets"),
        pytest.param(b"tools=a%00b", id="sco-11 nul"),
        pytest.param(b"tools=a%0Ab", id="fuz-6 newline"),
        pytest.param(b"tools=a,,b", id="empty item"),
        pytest.param(b"tools=a%20b", id="space"),
        pytest.param(b"servers=Git", id="not a server id"),
        pytest.param(b"servers=a__b", id="sco-7 separator in a server id"),
        pytest.param(b"task=..%2Fx", id="path in a task"),
        pytest.param(b"tools=%ff", id="not utf-8"),
        pytest.param(b"tools", id="no value"),
        pytest.param(b"mode=all", id="no mode"),
        pytest.param(b"mode=find&mode=list", id="two modes"),
        pytest.param(b"tools=" + b"a" * 20_000, id="too long"),
    ],
)
def test_a_query_with_no_or_two_readings_is_refused(query: bytes) -> None:
    with pytest.raises(InvalidRequest):
        parse_caller(ADA, "/api/mcp", query)


@pytest.mark.parametrize("encoded", [b"a%252Cb", b"a;b", "a，b".encode()])
def test_sco_11_other_separators_do_not_separate(encoded: bytes) -> None:
    try:
        tools = parse_caller(ADA, "/api/mcp", b"tools=" + encoded).request.tools
    except InvalidRequest:
        tools = ("refused",)

    assert len(tools or ()) == 1


def test_a_task_in_path_and_query_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        parse_caller(ADA, "/api/mcp/t/a", b"task=b")


def test_a_single_server_path_and_a_query_that_leaves_it_out_is_refused() -> None:
    with pytest.raises(InvalidRequest):
        parse_caller(ADA, "/api/mcp/s/git", b"servers=time")


@pytest.mark.parametrize(
    "path", ["/api/mcp/x", "/api/mcp/s", "/api/mcp/s/a/b", "/api/mcp/s/A", "/api/mcp/t/", "/mcp/find/x"]
)
def test_a_path_that_names_nothing_is_not_found(path: str) -> None:
    with pytest.raises(NotFound):
        parse_caller(ADA, path, b"")


def test_paths_of_the_door() -> None:
    paths = ["/api/mcp", "/api/mcp/s/a", "/mcp", "/mcp/t/x", "/api/mcpx", "/api", "/mcps"]

    assert [is_mcp_path(path) for path in paths] == [True, True, True, True, False, False, False]
