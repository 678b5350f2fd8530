"""Client registration for logins, and the scopes that logins request."""

from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from tests.upstream.http_links import RecordingListener, call
from tests.upstream.oauth.authority import REDIRECT, OAuthWorld, authorizer, open_oauth_world
from tests.upstream.oauth.login_stage import LoginStage, personal
from toolgate.errors import LoginRequired, ServerUnavailable, ToolgateError
from toolgate.model.servers import ServerRecord
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.endpoint import EndpointResolver
from toolgate.upstream.http.responses import MAX_SCOPES, NO_CHALLENGE, BearerChallenge, parse_challenge
from toolgate.upstream.http.streamable import StreamableConnector
from toolgate.upstream.oauth.authority import CLIENT_DOCUMENT, describe_client
from toolgate.upstream.oauth.connector import OAuthConnector
from toolgate.upstream.oauth.grants import GrantFiles, LoginKey

pytestmark = pytest.mark.anyio

OWN_URL = f"https://gateway.example{CLIENT_DOCUMENT}"


@pytest.fixture
def grants(tmp_path: Path) -> GrantFiles:
    return GrantFiles(tmp_path)


def unregistered(world: OAuthWorld, **fields: Any) -> ServerRecord:
    """A record without a client. Its authorization server registers clients unless a test overrides that."""
    register = {"registration_endpoint": f"{world.authority.issuer}/register"}
    world.authority.metadata = {**register, **world.authority.metadata}
    return personal(world, client_id=None, **fields)


def parse_query(url: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(url).query))


# Registering


async def test_the_gateway_registers_itself_for_each_login_and_renews_as_who_it_was(
    tmp_path: Path, grants: GrantFiles
) -> None:
    async with open_oauth_world() as world:
        world.authority.metadata = {"client_id_metadata_document_supported": None}
        world.authority.response = {"refresh_token": "first"}
        record = unregistered(world)
        for _ in range(2):
            await LoginStage(grants, OWN_URL).log_in(world, record)
        # As after a restart: what was registered is in the file.
        await authorizer(GrantFiles(tmp_path)).token(record, rejected="token-2-of-many")

    assert world.authority.registrations[0] == {
        "client_name": "Toolgate",
        "application_type": "native",
        "redirect_uris": [REDIRECT],
        "grant_types": ["authorization_code", "refresh_token"],
        "response_types": ["code"],
        "token_endpoint_auth_method": "none",
    }
    assert world.authority.clients == [("registered-1", None), ("registered-2", None), ("registered-2", None)]


@pytest.mark.parametrize("method", ["client_secret_basic", "client_secret_post"])
async def test_one_that_was_given_a_secret_shows_it_where_it_got_it(method: str, grants: GrantFiles) -> None:
    async with open_oauth_world() as world:
        world.authority.metadata = {
            "client_id_metadata_document_supported": None,
            "token_endpoint_auth_methods_supported": [method],
        }
        world.authority.registered = {"client_secret": "given", "token_endpoint_auth_method": method}
        await LoginStage(grants).log_in(world, unregistered(world))

    assert world.authority.registrations[0]["token_endpoint_auth_method"] == method
    assert world.authority.clients == [("registered-1", "given")]
    assert "given" not in repr(grants.get(LoginKey("there")))


async def test_an_authorization_server_that_reads_it_is_given_the_url_of_our_own_metadata(
    grants: GrantFiles,
) -> None:
    async with open_oauth_world() as world:
        record = unregistered(world)
        await LoginStage(grants, OWN_URL).log_in(world, record)
        await authorizer(grants, own_url=OWN_URL).token(record)

    assert (world.authority.clients, world.authority.registrations) == ([(OWN_URL, None)], [])
    assert describe_client(OWN_URL)["redirect_uris"] == ["http://127.0.0.1/callback"]


@pytest.mark.parametrize(
    ("metadata", "registered", "content"),
    [
        pytest.param(
            {"registration_endpoint": None}, {}, "register a client there", id="it registers no client"
        ),
        pytest.param({}, {"client_id": None}, "names no client", id="it names none"),
        pytest.param(
            {}, {"client_id": "a\r\nb"}, "cannot be sent in a request", id="it names one that breaks lines"
        ),
        pytest.param(
            {},
            {"token_endpoint_auth_method": "private_key_jwt"},
            "a kind of client",
            id="it wants a proof we lack",
        ),
        pytest.param(
            {},
            {"token_endpoint_auth_method": "client_secret_post"},
            "a kind of client",
            id="it gives no secret",
        ),
        pytest.param(
            {"registration_endpoint": "http://there.example/register"},
            {},
            "an address that is not allowed",
            id="without TLS",
        ),
    ],
)
async def test_without_a_client_there_is_no_login(
    grants: GrantFiles, metadata: dict[str, Any], registered: dict[str, Any], content: str
) -> None:
    async with open_oauth_world() as world:
        world.authority.metadata = {"client_id_metadata_document_supported": None, **metadata}
        world.authority.registered = registered
        with pytest.raises(ServerUnavailable, match=content):
            await LoginStage(grants).begin(unregistered(world))


async def test_a_client_that_an_operator_named_is_not_used_where_the_record_names_none_any_more(
    grants: GrantFiles,
) -> None:
    async with open_oauth_world() as world:
        stage = LoginStage(grants)
        await stage.log_in(world, personal(world))
        await stage.logins.tidy({"there": unregistered(world)}, lambda _: True)

    assert list(grants) == []


# Requested scopes


@pytest.mark.parametrize(
    ("challenge", "metadata", "scopes", "expected"),
    [
        pytest.param("", ([], []), (), None, id="no scopes anywhere"),
        pytest.param('Bearer scope="a b"', (["c"], []), (), "a b", id="the server's 401"),
        pytest.param("", (["c", "d"], []), (), "c d", id="the server's metadata"),
        pytest.param('Bearer scope="a"', ([], []), ("mine",), "mine", id="the record before all"),
        pytest.param(
            "", ([], ["offline_access"]), ("a",), "a offline_access", id="one that lets tokens be renewed"
        ),
        pytest.param("", ([], ["offline_access"]), (), None, id="but not that one alone"),
    ],
)
async def test_scopes_are_the_records_or_what_the_server_wants(
    grants: GrantFiles,
    challenge: str,
    metadata: tuple[list[str], list[str]],
    scopes: tuple[str, ...],
    expected: str | None,
) -> None:
    of_server, of_authority = metadata
    async with open_oauth_world() as world:
        world.challenge = challenge
        world.resource = {**(world.resource or {}), "scopes_supported": of_server}
        world.authority.metadata = {"scopes_supported": of_authority}
        url = await LoginStage(grants).begin(personal(world, scopes=scopes))

    assert parse_query(url).get("scope") == expected


async def test_a_login_with_more_scopes_requests_the_earlier_ones_too(grants: GrantFiles) -> None:
    async with open_oauth_world() as world:
        world.challenge = 'Bearer scope="basic"'
        stage = LoginStage(grants)
        await stage.log_in(world, personal(world))
        world.challenge = ""
        more = parse_query(await stage.begin(personal(world), scopes=("write",)))
        again = parse_query(await stage.begin(personal(world)))

    assert (more["scope"], again.get("scope")) == ("write basic", None)


@pytest.mark.parametrize(
    ("named", "is_followed"),
    [("{own}/elsewhere.json", True), ("http://127.0.0.1:9/elsewhere.json", False), ("nonsense", False)],
)
async def test_a_401_names_where_the_server_speaks_of_itself_at_its_own_address_only(
    grants: GrantFiles, named: str, is_followed: bool
) -> None:
    async with open_oauth_world() as world:
        own = world.serving.url.removesuffix("/mcp")
        world.place = "/elsewhere.json"
        world.challenge = f'Bearer resource_metadata="{named.format(own=own)}"'
        try:
            await LoginStage(grants).begin(personal(world))
            found = True
        except ServerUnavailable as exc:
            assert "set `oauth.issuer`" in str(exc)
            found = False

    assert found == is_followed


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (
            'bearer error="insufficient_scope", scope="a  b a"',
            BearerChallenge(error="insufficient_scope", scopes=("a", "b")),
        ),
        (
            'Bearer resource_metadata="https://x/y", realm="a, scope=b"',
            BearerChallenge(resource_metadata="https://x/y"),
        ),
        ('Bearer scope="a\\"b ok"', BearerChallenge(scopes=("ok",))),
        ('Basic scope="a"', NO_CHALLENGE),
        ("Bearer", NO_CHALLENGE),
        ("", NO_CHALLENGE),
        (f'Bearer scope="{"a" * 9_000}"', NO_CHALLENGE),
    ],
)
def test_a_challenge_is_read_for_what_it_says(header: str, expected: BearerChallenge) -> None:
    assert parse_challenge(header) == expected


def test_a_challenge_wants_only_so_much() -> None:
    words = " ".join(f"s{n}" for n in range(MAX_SCOPES * 2))

    assert len(parse_challenge(f'Bearer scope="{words}"').scopes) == MAX_SCOPES


# Wanting more in the middle


@pytest.mark.parametrize(
    ("grant", "owner", "kind", "hint"),
    [
        (
            "authorization_code",
            "key:ada",
            LoginRequired,
            "log in again with `toolgate servers login there --scope write --scope '$(rm)'`",
        ),
        ("authorization_code", "", ServerUnavailable, "have an administrator log in again with"),
        ("client_credentials", "", ServerUnavailable, "`oauth.scopes` of the server's record"),
    ],
)
async def test_a_token_that_may_not_do_it_says_what_would(
    grants: GrantFiles, grant: Any, owner: str, kind: type[ToolgateError], hint: str
) -> None:
    async with open_oauth_world() as world:
        world.wanted = 'Bearer error="insufficient_scope", scope="write $(rm)"'
        record = (
            personal(world, per_principal=bool(owner)) if grant == "authorization_code" else world.record()
        )
        tokens = authorizer(grants)
        if grant == "authorization_code":
            record = record.owned_by(owner)
            stage = LoginStage(grants)
            await stage.finish(world.authority.negotiate(await stage.begin(record)), owner=owner)
        inner = StreamableConnector(EndpointResolver(Secrets({}), Egress(allow_private=True)))
        link = await OAuthConnector(inner, tokens)(record, RecordingListener(), known_revision=None)
        forms = len(world.authority.forms)
        with pytest.raises(kind) as refused:
            await call(link, 1)
        await link.aclose()

    assert hint in refused.value.hint
    assert refused.value.data == {"status": 403, "scopes": ["write", "$(rm)"]}
    # A server's word gets it no other token, whatever its price.
    assert len(world.authority.forms) == forms
