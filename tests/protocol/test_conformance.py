"""The official conformance suite through a real gateway: servers of both eras behind it, clients before."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.eventually import eventually
from tests.protocol.exceptions import EXCEPTIONS, SCENARIOS, UNSCORED
from tests.protocol.forked import forking
from tests.protocol.sandwich import ERA, EVERYTHING, GATEWAY
from tests.protocol.serving import FIXTURES, serving
from tests.protocol.suite import HANDSHAKE, STATELESS, check_client, check_server
from tests.scenarios.gateway import Gateway, Site, running


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with both fixtures behind it, and all they have allowed."""
    site = Site(tmp_path_factory.mktemp("site"))
    with ExitStack() as stack:
        for name in FIXTURES:
            url = stack.enter_context(serving(name, site.root / name))
            record = {"transport": "streamable_http", "http": {"url": url}, "allowed_tools": EVERYTHING}
            site.place(site.server(name, **record))
        found = stack.enter_context(running(site))
        eventually(lambda: all(found.health(name)["state"] == "connected" for name in FIXTURES), 120)
        yield found


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The command of the client that the suite starts."""
    with forking("tests.protocol.sandwich", tmp_path_factory.mktemp("client")) as command:
        yield command


def show(objections: list[str]) -> None:
    """Fails with all of them, if there are any: a comparison would show the first few."""
    if objections:
        pytest.fail("\n".join(objections), pytrace=False)


@pytest.mark.parametrize(("name", "revision"), EXCEPTIONS)
def test_fuz_14_a_server_behind_the_gateway_conforms(
    gateway: Gateway, name: str, revision: str, tmp_path: Path
) -> None:
    findings = check_server(f"{gateway.url}/mcp/s/{name}", revision, tmp_path)
    excepted = EXCEPTIONS[name, revision] | UNSCORED[revision]
    objections = [f"{scenario}: {words}" for scenario, found in findings.items() for words in found]
    stale = [scenario for scenario in excepted if not findings[scenario]]

    show([words for words in objections if words.split(":")[0] not in excepted])
    assert (stale, len(findings)) == ([], SCENARIOS[revision])


BOTH = ("legacy", "modern")
CLIENT_SCENARIOS = {
    (HANDSHAKE, "initialize"): ("legacy",),
    (HANDSHAKE, "tools_call"): BOTH,
    (HANDSHAKE, "elicitation-sep1034-client-defaults"): BOTH,
    (HANDSHAKE, "sse-retry"): BOTH,
    (HANDSHAKE, "json-schema-2020-12-preservation"): ("legacy",),
    (STATELESS, "tools_call"): BOTH,
    (STATELESS, "request-metadata"): ("modern",),
    (STATELESS, "http-standard-headers"): BOTH,
    (STATELESS, "http-custom-headers"): BOTH,
    (STATELESS, "http-invalid-tool-headers"): ("modern",),
    (STATELESS, "json-schema-ref-no-deref"): ("modern",),
    (STATELESS, "sep-2322-client-request-state"): BOTH,
    (STATELESS, "json-schema-2020-12-preservation"): BOTH,
}
"""With the eras of the clients before the gateway: both, where the gateway has to work for it."""


@pytest.mark.parametrize(
    ("wanted", "era"),
    [
        pytest.param(wanted, era, id=f"{'-'.join(wanted)}-{era}")
        for wanted, eras in CLIENT_SCENARIOS.items()
        for era in eras
    ],
)
def test_the_gateway_conforms_as_a_client(
    gateway: Gateway, client: str, wanted: tuple[str, str], era: str, tmp_path: Path
) -> None:
    revision, scenario = wanted
    findings = check_client(client, scenario, revision, tmp_path, {GATEWAY: gateway.url, ERA: era})

    show(findings[scenario])
