"""A person logs in at the issuer: what a code earns, from whom it is taken, and what is good here."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.gateway.auth.issuer import AUDIENCE, Issuer, serving_issuer
from toolgate.errors import Forbidden, IssuerUnavailable, TooManyAttempts, Unauthenticated
from toolgate.gateway.auth.identity import Identities
from toolgate.gateway.auth.issuer import (
    METADATA_RETRY_S,
    METADATA_TTL_S,
    OidcLogin,
    OidcSettings,
)
from toolgate.gateway.auth.oidc import open_oidc
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.fetch import Fetcher

pytestmark = pytest.mark.anyio

FETCHER = Fetcher(Egress(allow_private=True))
BACK = "http://127.0.0.1:8080/console/login"
VERIFIER = "v" * 43
CHALLENGE = "7w_YNF9DSfIdPf_pRjSq646_kPr-2-o9NAl16JGghdM"
CLIENT = "console"


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with serving_issuer() as found:
        yield found


@asynccontextmanager
async def logging_in(issuer: Issuer, *, max_concurrent: int = 8, **fields: Any) -> AsyncIterator[OidcLogin]:
    """The login of a gateway that takes this issuer's tokens."""
    roles = {"agents": "agent", "owners": "admin"}
    config = OidcSettings(**{"issuer": issuer.url, "audience": AUDIENCE, "roles": roles} | fields)
    async with open_oidc(config, FETCHER) as verifier:
        identities = Identities(admin_key=None, trusts_local=False, clock_s=time.time, verifier=verifier)
        yield OidcLogin(CLIENT, issuer.url, FETCHER, identities, max_concurrent=max_concurrent)


def agreed(issuer: Issuer, **changed: str) -> str:
    """The code that a browser comes back with."""
    query = {
        "client_id": CLIENT,
        "redirect_uri": BACK,
        "state": "s",
        "code_challenge": CHALLENGE,
        "code_challenge_method": "S256",
    }
    (code,) = parse_qs(urlsplit(issuer.authorize(query | changed)).query)["code"]
    return code


async def test_a_code_earns_a_token_that_is_good_here(issuer: Issuer) -> None:
    async with logging_in(issuer) as login:
        earned = await login.redeem(agreed(issuer), code_verifier=VERIFIER, redirect_uri=BACK)
        principal = await login.identities.authenticate(f"Bearer {earned.token}")

    assert (principal.id, principal.role) == ("oidc:ada", "agent")
    assert 590 <= earned.expires_in_s <= 600


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        pytest.param(
            {"access_token": {}, "id_token": {"sub": "eve"}}, "oidc:ada", id="the access token first"
        ),
        pytest.param({"access_token": "opaque", "id_token": {}}, "oidc:ada", id="an opaque one"),
        pytest.param(
            {"access_token": {"aud": "api"}, "id_token": {}}, "oidc:ada", id="one for another audience"
        ),
        pytest.param({"access_token": {"roles": []}, "id_token": {}}, "oidc:ada", id="one without a role"),
        pytest.param({"id_token": {}}, "oidc:ada", id="an id token alone"),
    ],
)
async def test_of_several_tokens_the_first_is_given_that_is_good_here(
    issuer: Issuer, tokens: dict[str, Any], expected: str
) -> None:
    issuer.gives = {
        name: issuer.token(**one) if isinstance(one, dict) else one for name, one in tokens.items()
    }
    async with logging_in(issuer) as login:
        earned = await login.redeem(agreed(issuer), code_verifier=VERIFIER, redirect_uri=BACK)
        principal = await login.identities.authenticate(f"Bearer {earned.token}")

    assert principal.id == expected


@pytest.mark.parametrize(
    ("gives", "error", "message"),
    [
        pytest.param({"aud": "other"}, Unauthenticated, "another audience", id="for another audience"),
        pytest.param({"exp": 1}, Unauthenticated, "expired", id="expired"),
        pytest.param({"roles": ["guests"]}, Forbidden, "maps to no role", id="without a role"),
        pytest.param(None, Unauthenticated, "no token that is valid for this gateway", id="no token at all"),
    ],
)
async def test_a_token_that_is_not_good_here_is_not_given_out(
    issuer: Issuer, gives: dict[str, Any] | None, error: type[Exception], message: str
) -> None:
    issuer.gives = {"token_type": "Bearer"} if gives is None else {"access_token": issuer.token(**gives)}
    async with logging_in(issuer) as login:
        with pytest.raises(error, match=message):
            await login.redeem(agreed(issuer), code_verifier=VERIFIER, redirect_uri=BACK)


@pytest.mark.parametrize(
    "changed",
    [
        pytest.param({"code_challenge": "x"}, id="another verifier"),
        pytest.param({"redirect_uri": "https://evil.example/"}, id="another way back"),
        pytest.param({"client_id": "other"}, id="another client"),
    ],
)
async def test_the_code_of_another_client_is_refused(issuer: Issuer, changed: dict[str, str]) -> None:
    async with logging_in(issuer) as login:
        with pytest.raises(Unauthenticated, match="rejected the authorization code: `invalid_grant`"):
            await login.redeem(agreed(issuer, **changed), code_verifier=VERIFIER, redirect_uri=BACK)


async def test_a_code_is_good_once(issuer: Issuer) -> None:
    code = agreed(issuer)
    async with logging_in(issuer) as login:
        await login.redeem(code, code_verifier=VERIFIER, redirect_uri=BACK)
        with pytest.raises(Unauthenticated):
            await login.redeem(code, code_verifier=VERIFIER, redirect_uri=BACK)


@pytest.mark.parametrize(
    "url", ["javascript:alert(1)", "http://issuer.example/authorize", "data:text/html,x", "", None, 7]
)
async def test_a_browser_is_sent_to_no_place_but_one_of_the_web(issuer: Issuer, url: Any) -> None:
    issuer.metadata |= {"authorization_endpoint": url}
    async with logging_in(issuer) as login:
        with pytest.raises(IssuerUnavailable, match="authorization_endpoint"):
            await login.describe()


async def test_an_issuer_of_another_name_is_not_believed(issuer: Issuer) -> None:
    issuer.metadata |= {"issuer": "https://other.example"}
    async with logging_in(issuer, jwks_url=f"{issuer.url}/keys") as login:
        with pytest.raises(IssuerUnavailable):
            await login.describe()


async def test_an_answer_past_its_size_is_not_read(issuer: Issuer) -> None:
    async with logging_in(issuer) as login:
        await login.describe()
        issuer.padding = 300 * 1024
        with pytest.raises(IssuerUnavailable, match="cannot get a token"):
            await login.redeem(agreed(issuer), code_verifier=VERIFIER, redirect_uri=BACK)


async def test_however_many_ask_the_issuer_is_asked_now_and_then(issuer: Issuer) -> None:
    now = [0.0]
    identities = Identities(admin_key=None, trusts_local=False, clock_s=time.time)
    login = OidcLogin(CLIENT, issuer.url, FETCHER, identities, clock_s=lambda: now[0])

    async def request(at_s: float) -> int:
        now[0] = at_s
        await asyncio.gather(*(login.describe() for _ in range(5)), return_exceptions=True)
        return len(issuer.asked)

    issuer.status = 503
    counts = [await request(0), await request(METADATA_RETRY_S - 1)]
    with pytest.raises(IssuerUnavailable):
        await login.describe()
    issuer.status = 200
    counts += [
        await request(METADATA_RETRY_S),
        await request(METADATA_RETRY_S + METADATA_TTL_S - 1),
        await request(METADATA_RETRY_S + METADATA_TTL_S),
    ]
    issuer.status = 503
    known = await request(METADATA_RETRY_S + 2 * METADATA_TTL_S)

    assert counts == [1, 1, 2, 2, 3]
    assert known == 4
    assert (await login.describe()).issuer == issuer.url


async def test_more_codes_at_once_than_there_is_room_for_are_turned_away(
    issuer: Issuer,
) -> None:
    async with logging_in(issuer, max_concurrent=2) as login:
        tries = [login.redeem(agreed(issuer), code_verifier=VERIFIER, redirect_uri=BACK) for _ in range(3)]
        first, second, third = await asyncio.gather(*tries, return_exceptions=True)
        again = await login.redeem(agreed(issuer), code_verifier=VERIFIER, redirect_uri=BACK)

    assert isinstance(third, TooManyAttempts)
    assert not isinstance(first, BaseException)
    assert not isinstance(second, BaseException)
    assert again.token
