"""What the operator demands of every record, any caller that writes it."""

from typing import Any

import pytest

from toolgate.errors import InvalidRecord, PlanRequired
from toolgate.govern.operator_policy import OperatorPolicy, check_operator_policy, check_plan
from toolgate.registry.records.codec import parse_record
from toolgate.upstream.http.egress import Egress


def server(**launch: Any) -> Any:
    transport = "stdio" if "stdio" in launch else "streamable_http"
    return parse_record("server", "s", {"server_id": "s", "transport": transport, **launch})


@pytest.mark.parametrize(
    ("patterns", "command", "is_allowed"),
    [
        pytest.param(("npx",), "npx", True, id="named"),
        pytest.param(("npx",), "npx2", False, id="not named"),
        pytest.param(("npx",), "/tmp/npx", False, id="a path is not the program on the PATH"),
        pytest.param(("npx",), "./npx", False, id="nor is a relative one"),
        pytest.param(("mcp-server-*",), "mcp-server-git", True, id="by pattern"),
        pytest.param(("mcp-server-*",), "mcp-server-x/../../bin/sh", False, id="a star climbs nowhere"),
        pytest.param(("/opt/mcp/*",), "/opt/mcp/git", True, id="a directory"),
        pytest.param(("/opt/mcp/*",), "/opt/mcp/../../bin/sh", False, id="but not out of it"),
        pytest.param(("/opt/mcp/*",), "/opt/mcp-evil/git", False, id="nor next to it"),
        pytest.param(("*",), "/bin/sh", True, id="a star alone allows any"),
        pytest.param((), "npx", False, id="nothing listed, nothing allowed"),
        pytest.param(("npx",), "${ENV:COMMAND}", False, id="what a reference is for is not known"),
        pytest.param(("/opt/*",), "/opt/${ENV:NO:-..}/bin/sh", False, id="nor is it within a path"),
        pytest.param(("mcp-*",), "mcp-${ENV:NAME}", False, id="nor within a name"),
    ],
)
def test_a_server_is_started_by_an_allowed_command_only(
    patterns: tuple[str, ...], command: str, is_allowed: bool
) -> None:
    record = server(stdio={"command": command})
    terms = OperatorPolicy(allowed_commands=patterns)

    if is_allowed:
        check_operator_policy(terms, record)
    else:
        with pytest.raises(InvalidRecord, match=r"stdio\.command"):
            check_operator_policy(terms, record)


@pytest.mark.parametrize(
    ("patterns", "command", "is_allowed"),
    [
        pytest.param(("./*",), "./server", True, id="a program in its files"),
        pytest.param(("./*",), "./bin/server", True, id="in a directory among them"),
        pytest.param(("./*",), "./../../bin/sh", False, id="but not out of them"),
        pytest.param(("./*",), "/bin/sh", False, id="nor elsewhere"),
        pytest.param(("./*",), "sh", False, id="nor on the PATH"),
        pytest.param(("python3",), "./server", False, id="not unless it is listed"),
        pytest.param(("server",), "./server", False, id="a name is a program on the PATH"),
        pytest.param(("*",), "./server", True, id="a star alone allows any"),
    ],
)
def test_a_package_runs_a_program_of_its_own_only_where_that_is_allowed(
    patterns: tuple[str, ...], command: str, is_allowed: bool
) -> None:
    ref = {"version": "1.0.0", "sha256": "0" * 64}
    terms = OperatorPolicy(allowed_commands=patterns)

    if is_allowed:
        check_operator_policy(terms, server(stdio={"command": command}, package=ref))
    else:
        with pytest.raises(InvalidRecord, match=r"stdio\.command"):
            check_operator_policy(terms, server(stdio={"command": command}, package=ref))


def test_a_program_in_a_package_is_nothing_for_a_server_without_one() -> None:
    """It would be found from the working directory, which the record names."""
    terms = OperatorPolicy(allowed_commands=("./*",))

    with pytest.raises(InvalidRecord, match=r"stdio\.command"):
        check_operator_policy(terms, server(stdio={"command": "./sh", "cwd": "/bin"}))


@pytest.mark.parametrize("name", ["PATH", "LD_PRELOAD", "LD_LIBRARY_PATH", "LD_AUDIT"])
def test_a_variable_that_makes_another_program_of_an_allowed_one_is_refused(name: str) -> None:
    record = server(stdio={"command": "npx", "env": {name: "/tmp/evil"}})

    with pytest.raises(InvalidRecord, match=rf"stdio\.env\.{name}"):
        check_operator_policy(OperatorPolicy(allowed_commands=("npx",)), record)
    check_operator_policy(OperatorPolicy(allowed_commands=("*",)), record)


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1/mcp",
        "http://10.0.0.1/mcp",
        "http://169.254.169.254/latest",
        "http://[::1]/mcp",
        "http://[::ffff:127.0.0.1]/mcp",
        "http://0.0.0.0/mcp",
        "http://2130706433/mcp",
        "http://0x7f.1/mcp",
        "http://0177.0.0.1/mcp",
    ],
)
def test_ssr_1_a_private_address_in_any_spelling_is_not_stored_where_private_egress_is_off(url: str) -> None:
    with pytest.raises(InvalidRecord):
        check_operator_policy(OperatorPolicy(egress=Egress(allow_private=False)), server(http={"url": url}))


def test_ssr_1_an_authorization_server_must_be_where_servers_may_be() -> None:
    oauth = {
        "grant": "authorization_code",
        "client_id": "toolgate",
        "issuer": "https://login.example.org",
    }
    terms = OperatorPolicy(egress=Egress(allow_private=False, allowed_hosts=["*.example.com"]))

    with pytest.raises(InvalidRecord, match=r"http\.oauth\.issuer.*allowed_upstream_hosts"):
        check_operator_policy(terms, server(http={"url": "https://a.example.com/mcp", "oauth": oauth}))
    with pytest.raises(InvalidRecord, match=r"http\.url.*allowed_upstream_hosts"):
        check_operator_policy(terms, server(http={"url": "https://a.example.org/mcp"}))


def test_an_address_behind_a_reference_is_left_to_the_moment_of_connecting() -> None:
    check_operator_policy(
        OperatorPolicy(egress=Egress(allow_private=False)), server(http={"url": "https://${ENV:HOST}/mcp"})
    )


def test_a_plan_is_demanded_of_what_a_plan_can_show() -> None:
    terms = OperatorPolicy(requires_plan=True)

    for kind in ("server", "task", "profile"):
        with pytest.raises(PlanRequired):
            check_plan(terms, kind, None)
        check_plan(terms, kind, "some plan")
    check_plan(terms, "key", None)
    check_plan(OperatorPolicy(), "task", None)
