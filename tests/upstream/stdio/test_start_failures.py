"""A failed start shows its cause, and a hint that says what to do about it."""

from textwrap import dedent

import pytest

from tests.upstream.stdio_stage import command
from toolgate.upstream.stdio.connector import MAX_CAUSE_CHARS, find_cause, suggest_fix

NODE = """
    node:internal/modules/cjs/loader:1423
      throw err;
      ^

    Error: Cannot find module '/srv/server.js'
        at Module._resolveFilename (node:internal/modules/cjs/loader:1420:15)
        at node:internal/main/run_main_module:36:49 {
      code: 'MODULE_NOT_FOUND',
      requireStack: []
    }

    Node.js v24.1.0
"""
NPM = """
    npm warn exec The following package was not found and will be installed: no-such-server
    npm error code E404
    npm error 404 Not Found - GET https://packages.example/no-such-server - Not found
    npm error 404
    npm error 404  The requested resource 'no-such-server@*' could not be found
    npm error A complete log of this run can be found in: /home/u/.npm/_logs/x.log
"""
NPM_CERTIFICATE = """
    npm error code UNABLE_TO_GET_ISSUER_CERT_LOCALLY
    npm error errno UNABLE_TO_GET_ISSUER_CERT_LOCALLY
    npm error request to https://packages.example/x failed, reason: unable to get local issuer certificate
    npm error A complete log of this run can be found in: /home/u/.npm/_logs/x.log
"""
UV = """
      × No solution found when resolving tool dependencies:
      ╰─▶ Because no-such-server was not found in the package registry and you
          require no-such-server, we can conclude that your requirements are
          unsatisfiable.
"""
UV_NETWORK = """
    error: Failed to fetch: `https://packages.example/simple/mcp-server-git/`
      Caused by: Request failed after 3 retries
      Caused by: dns error: failed to lookup address information: Name or service not known
"""
PYTHON = """
    Traceback (most recent call last):
      File "/srv/server.py", line 1, in <module>
        import nothing
    ModuleNotFoundError: No module named 'nothing'
"""
GROUP = """
      + Exception Group Traceback (most recent call last):
      |   File "/srv/server.py", line 9, in main
      | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
      +-+---------------- 1 ----------------
        | Traceback (most recent call last):
        |   File "/srv/server.py", line 4, in connect
        | app.db.ConnectError: no database at /srv/data
        +------------------------------------
"""
DOCKER = """
    docker: Error response from daemon: pull access denied for no/such, repository does not exist

    Run 'docker run --help' for more information
"""


@pytest.mark.parametrize(
    ("stderr", "cause"),
    [
        pytest.param(NODE, "Error: Cannot find module '/srv/server.js'", id="node"),
        pytest.param(
            NPM,
            "npm error 404 Not Found - GET https://packages.example/no-such-server - Not found",
            id="npm",
        ),
        pytest.param(
            UV,
            "No solution found when resolving tool dependencies: Because no-such-server was not found in the "
            "package registry and you require no-such-server, we can conclude that your requirements are "
            "unsatisfiable.",
            id="uv",
        ),
        pytest.param(
            UV_NETWORK,
            "error: Failed to fetch: `https://packages.example/simple/mcp-server-git/` Caused by: Request "
            "failed after 3 retries Caused by: dns error: failed to lookup address information: Name or "
            "service not known",
            id="uv without network",
        ),
        pytest.param(PYTHON, "ModuleNotFoundError: No module named 'nothing'", id="python"),
        pytest.param(GROUP, "app.db.ConnectError: no database at /srv/data", id="a group of exceptions"),
        pytest.param(
            DOCKER,
            "docker: Error response from daemon: pull access denied for no/such, repository does not exist",
            id="docker",
        ),
        pytest.param(
            "2026-01-01 10:00:00 ERROR no database at db:5432\n2026-01-01 10:00:01 INFO shutting down\n",
            "2026-01-01 10:00:00 ERROR no database at db:5432",
            id="a log that goes on after the error",
        ),
        pytest.param(
            'level=info msg="starting"\nlevel=error msg="no token"\nlevel=info msg="bye"\n',
            'level=error msg="no token"',
            id="a log of names and values",
        ),
        pytest.param(
            "usage: server [-h] path\nserver: error: the following arguments are required: path\nsee -h\n",
            "server: error: the following arguments are required: path",
            id="a parser of arguments",
        ),
        pytest.param(
            "flag provided but not defined: -x\nUsage of ./server:\n  -port int\n    \tport (default 80)\n",
            "flag provided but not defined: -x",
            id="help after the error",
        ),
        pytest.param("usage: server DIR\n\x1b[31mDIR is missing\x1b[0m\n", "DIR is missing", id="any other"),
        pytest.param("}\n", "}", id="nothing but an end"),
        pytest.param("", "", id="nothing"),
    ],
)
def test_the_cause_is_the_line_that_says_what_went_wrong(stderr: str, cause: str) -> None:
    assert find_cause(dedent(stderr)) == cause


def test_a_cause_is_short() -> None:
    assert len(find_cause("word " * 1_000)) == MAX_CAUSE_CHARS


def hint(line: str, stderr: str, *, has_read: bool = False, **environment: str) -> str:
    record = command(*line.split(" "))
    return suggest_fix(record, dedent(stderr), environment, has_read=has_read)


WHERE = "where the gateway runs, or in the `env` of the record"


def test_where_a_ca_is_missing_the_hint_names_the_variable() -> None:
    assert hint("npx -y x", NPM_CERTIFICATE) == (
        f"set `NODE_EXTRA_CA_CERTS` to the file with your company's CA, {WHERE}"
    )
    assert hint("uvx x", "invalid peer certificate: UnknownIssuer") == (
        f"set `SSL_CERT_FILE` to the file with your company's CA, {WHERE}"
    )
    assert "`PIP_CERT`" in hint("pipx run x", "SSLError: certificate verify failed")
    assert "`REQUESTS_CA_BUNDLE`" in hint("serve", "requests.exceptions.SSLError: CERTIFICATE_VERIFY_FAILED")
    assert hint("npx x", NPM_CERTIFICATE, NODE_EXTRA_CA_CERTS="/ca.pem") == (
        "the certificate is not signed by a CA in the file that `NODE_EXTRA_CA_CERTS` names: check it"
    )


def test_where_the_network_is_out_of_reach_the_hint_names_the_proxy() -> None:
    assert hint("uvx x", UV_NETWORK) == (
        f"packages cannot be downloaded: set `HTTPS_PROXY` if there is a proxy, {WHERE}"
    )
    assert hint("npx x", "npm error code ECONNREFUSED", https_proxy="http://proxy:3128") == (
        "packages cannot be downloaded through `https_proxy`: check it, and `NO_PROXY`"
    )


def test_a_server_that_ran_and_found_no_one_at_an_address_is_not_notified_of_proxies() -> None:
    own = hint("npx -y server-pg", "Error: connect ECONNREFUSED 127.0.0.1:5432", has_read=True)

    assert own.startswith("run the command yourself: npx -y server-pg;")


def test_any_other_failure_is_to_be_seen_by_running_the_command() -> None:
    notified = 'the last 40 lines of its output are in "toolgate servers get server"'

    assert hint("uvx mcp-server-git", UV) == f"run the command yourself: uvx mcp-server-git; {notified}"
    assert (
        hint("npx -y some-server s3cret", NPM)
        == f"run the command yourself: npx -y some-server …; {notified}"
    )


@pytest.mark.parametrize(
    "arguments", ["--api-key hunter2", "--api-key=hunter2", "TOKEN=hunter2", "kJ8sQ2pLx0VbN7mZ"]
)
def test_the_hint_does_not_repeat_what_may_be_a_secret(arguments: str) -> None:
    shown = hint(f"serve --stdio {arguments}", "")

    assert shown.startswith("run the command yourself: serve --stdio …;")
