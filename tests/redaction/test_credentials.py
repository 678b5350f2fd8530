"""SEC-9: which of the values a server was started with are kept out of what it says."""

import pytest

from toolgate.model.servers import HttpEndpoint, StdioLaunch
from toolgate.redaction.credentials import collect_child_credentials, collect_endpoint_credentials
from toolgate.upstream.connection.contract import ServerInfo
from toolgate.upstream.connection.messages import Redactor


@pytest.mark.parametrize(
    ("name", "is_hidden"),
    [
        ("API_TOKEN", True),
        ("DB_PWD", True),
        ("GITLAB_PAT", True),
        ("SENTRY_DSN", True),
        ("PASSPHRASE", True),
        ("MASTERKEY", True),
        ("LOG_LEVEL", False),
        ("GIT_AUTHOR_NAME", False),
    ],
)
def test_what_a_record_hides_by_its_name_a_server_does_not_tell_either(name: str, is_hidden: bool) -> None:
    launch = StdioLaunch(command="x", env={name: "literal value"})
    endpoint = HttpEndpoint(url=f"https://example.com/mcp?{name}=queried", headers={name: "sent"})

    assert (
        collect_child_credentials(launch, {name: "literal value"}, url_variables=())
        == ["literal value"] * is_hidden
    )
    assert set(collect_endpoint_credentials(endpoint, endpoint.url, endpoint.headers)) == (
        {"queried", "sent"} if is_hidden else set()
    )


def test_instructions_that_quote_a_credential_are_shown_without_it() -> None:
    hello = ServerInfo(
        revision="legacy", version="2025-11-25", instructions="Log in with s3cr3t-value first."
    )

    assert Redactor(["s3cr3t-value"]).mask_info(hello).instructions == "Log in with [redacted] first."
