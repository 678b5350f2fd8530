"""The official conformance suite where a server wants authorization: the gateway is the OAuth client."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.protocol.authorized import GATEWAY, SECRETS
from tests.protocol.forked import forking
from tests.protocol.suite import HANDSHAKE, STATELESS, check_clients
from tests.scenarios.gateway import Gateway, Site, running

SUITES = {("auth", HANDSHAKE): 14, ("auth", STATELESS): 14, ("draft", STATELESS): 11, ("extensions", ""): 6}
"""By the suite's own names: how many of its scenarios are about authorization. The last are not required."""
EXCEPTIONS = {
    "auth/client-credentials-jwt": "a client proves itself by a secret, not by a key",
    "auth/enterprise-managed-authorization": "no identity is exchanged for a token",
    "auth/wif-jwt-bearer": "no identity is exchanged for a token",
    "auth/dpop": "tokens are shown as they are, without a proof of possession",
    "auth/dpop-nonce": "tokens are shown as they are, without a proof of possession",
}
"""All of them extensions. One that no longer applies fails."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    environ = {variable: secret for secret, variable in SECRETS.items()}
    with running(Site(tmp_path_factory.mktemp("site")), environ=environ) as found:
        yield found


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The command of the client that the suite starts."""
    with forking("tests.protocol.authorized", tmp_path_factory.mktemp("client")) as command:
        yield command


@pytest.mark.parametrize(("suite", "revision"), SUITES)
def test_the_gateway_conforms_as_a_client_that_needs_authorization(
    gateway: Gateway, client: str, suite: str, revision: str, tmp_path: Path
) -> None:
    found = check_clients(client, suite, revision, tmp_path, {GATEWAY: gateway.url})
    findings = {scenario: words for scenario, words in found.items() if scenario.startswith("auth/")}
    objections = {scenario: words for scenario, words in findings.items() if words}
    unexpected = {scenario: words for scenario, words in objections.items() if scenario not in EXCEPTIONS}
    stale = [scenario for scenario in EXCEPTIONS if scenario in findings and scenario not in objections]

    assert unexpected == {}
    assert (stale, len(findings)) == ([], SUITES[suite, revision])
