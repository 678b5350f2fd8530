"""SEC-9: which of the values a server was started with are kept out of what it says."""

import pytest

from toolgate.model.servers import HttpEndpoint, StdioLaunch
from toolgate.redaction.credentials import (
    CredentialMask,
    collect_child_credentials,
    collect_endpoint_credentials,
)
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
    server_info = ServerInfo(
        revision="legacy", version="2025-11-25", instructions="Log in with s3cr3t-value first."
    )

    assert Redactor(["s3cr3t-value"]).mask_info(server_info).instructions == "Log in with [redacted] first."


def test_a_mask_learns_the_newest_token_and_keeps_the_credentials_of_the_start() -> None:
    mask = CredentialMask(["of-the-start", "short"])
    mask.learn("first-token")
    mask.learn("second-token")

    assert (
        mask.text("of-the-start first-token second-token short") == "[redacted] first-token [redacted] short"
    )
    assert not mask.is_empty
    assert CredentialMask(["short"]).is_empty


def test_a_proxy_gives_its_password_encoded_and_decoded() -> None:
    env = {"HTTPS_PROXY": "http://ada:p%40ss-word@proxy:8080"}

    found = collect_child_credentials(
        StdioLaunch(command="x"), env, url_variables=("HTTPS_PROXY", "NO_PROXY")
    )

    assert found == ["ada:p%40ss-word@proxy", "ada:p%40ss-word", "p%40ss-word", "p@ss-word"]


def test_every_part_of_a_resolved_url_may_be_a_credential() -> None:
    endpoint = HttpEndpoint(url="https://h/${ENV:PATH}?q=${ENV:Q}")

    found = collect_endpoint_credentials(endpoint, "https://h/a-path?q=a+b%20c&empty=#x", {})

    assert {"a-path", "a b c"} <= set(found)
