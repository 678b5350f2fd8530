"""Tokens of an issuer: only what it signed, for us, in time, and no further than it says."""

import hashlib
import hmac
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from pydantic import ValidationError

from tests.gateway.auth.issuer import AUDIENCE, Issuer, forged, jwk_of, rsa_key, serving_issuer
from toolgate.errors import Forbidden, IssuerUnavailable, StartRefused, Unauthenticated
from toolgate.gateway.auth.issuer import OidcSettings
from toolgate.gateway.auth.oidc import (
    MIN_REFRESH_S,
    OidcVerifier,
    SigningKeys,
    jwks_source,
    open_oidc,
)
from toolgate.model.principals import Ceiling, Principal
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.fetch import MAX_DOCUMENT_BYTES, Fetcher

pytestmark = pytest.mark.anyio

FETCHER = Fetcher(Egress(allow_private=True))
NOW = 2_000_000_000


class Clock:
    """Time that moves only when withdrawals."""

    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def issuer() -> Iterator[Issuer]:
    with serving_issuer() as found:
        yield found


@pytest.fixture
def clock() -> Clock:
    return Clock()


def config(issuer: Issuer, **fields: Any) -> OidcSettings:
    roles = {"agents": "agent", "readers": "viewer", "owners": "admin"}
    return OidcSettings(**{"issuer": issuer.url, "audience": AUDIENCE, "roles": roles} | fields)


def verifier(issuer: Issuer, clock: Clock | None = None, **fields: Any) -> OidcVerifier:
    settings = config(issuer, **fields)
    keys = SigningKeys(jwks_source(settings, FETCHER), clock_s=clock or Clock())
    return OidcVerifier(settings, keys, clock_s=lambda: NOW)


def token(issuer: Issuer, **fields: Any) -> str:
    """One that is good at NOW."""
    return issuer.token(**{"iat": NOW, "exp": NOW + 60} | fields)


async def test_a_good_token_is_its_subject_until_it_expires(issuer: Issuer) -> None:
    proof = await verifier(issuer).verify(token(issuer))

    assert proof == (Principal(id="oidc:ada", role="agent"), NOW + 60)


@pytest.mark.parametrize(
    "key",
    [
        pytest.param(ec.generate_private_key(ec.SECP256R1()), id="ES256"),
        pytest.param(ec.generate_private_key(ec.SECP384R1()), id="ES384"),
        pytest.param(ec.generate_private_key(ec.SECP521R1()), id="ES512"),
        pytest.param(ed25519.Ed25519PrivateKey.generate(), id="EdDSA"),
    ],
)
async def test_keys_of_every_kind_an_issuer_may_use(issuer: Issuer, key: Any) -> None:
    issuer.keys["other"] = key

    proof = await verifier(issuer).verify(token(issuer, kid="other"))

    assert proof.principal.id == "oidc:ada"


async def test_an_rsa_key_verifies_its_other_algorithms_unless_it_names_one(issuer: Issuer) -> None:
    text = jwt.encode(
        issuer.claims(iat=NOW, exp=NOW + 60), rsa_key(), algorithm="PS256", headers={"kid": "bound"}
    )
    issuer.extra_keys = [jwk_of(rsa_key()) | {"kid": "bound"}]
    assert (await verifier(issuer).verify(text)).principal.id == "oidc:ada"

    issuer.extra_keys = [jwk_of(rsa_key()) | {"kid": "bound", "alg": "RS256"}]
    with pytest.raises(Unauthenticated):
        await verifier(issuer).verify(text)


async def test_a_token_need_not_name_the_only_key(issuer: Issuer) -> None:
    assert (await verifier(issuer).verify(token(issuer, kid=None))).principal.id == "oidc:ada"

    issuer.keys["second"] = rsa_key(number=1)
    with pytest.raises(Unauthenticated):
        await verifier(issuer).verify(token(issuer, kid=None))


@pytest.mark.parametrize(
    "claims",
    [
        pytest.param({"aud": "https://other.example"}, id="another audience"),
        pytest.param({"aud": None}, id="no audience"),
        pytest.param({"aud": [AUDIENCE + "/"]}, id="almost our audience"),
        pytest.param({"iss": "http://127.0.0.1:1"}, id="another issuer"),
        pytest.param({"iss": None}, id="no issuer"),
        pytest.param({"exp": NOW}, id="expired this moment"),
        pytest.param({"exp": NOW - 1}, id="expired"),
        pytest.param({"exp": None}, id="for ever"),
        pytest.param({"exp": True}, id="expiry that is no time"),
        pytest.param({"exp": float("inf")}, id="infinite expiry"),
        pytest.param({"exp": 10**400}, id="expiry of 400 digits"),
        pytest.param({"exp": "2000000060"}, id="expiry as text"),
        pytest.param({"nbf": NOW + 31}, id="not yet"),
        pytest.param({"iat": NOW + 31}, id="issued tomorrow"),
        pytest.param({"sub": None}, id="no subject"),
        pytest.param({"sub": ""}, id="empty subject"),
        pytest.param({"sub": "a\nb"}, id="subject with a line break"),
        pytest.param({"sub": "a" * 256}, id="endless subject"),
        pytest.param({"sub": 7}, id="subject that is a number"),
        pytest.param({"roles": {"agents": True}}, id="roles that are no list"),
        pytest.param({"roles": ["agents", 7]}, id="roles that are no texts"),
    ],
)
async def test_adm_6_a_claim_that_does_not_hold_proves_nothing(
    issuer: Issuer, claims: dict[str, Any]
) -> None:
    with pytest.raises(Unauthenticated):
        await verifier(issuer).verify(token(issuer, **claims))


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"kid": "../../x"}, id="a path as key id"),
        pytest.param({"kid": "http://127.0.0.1:1/keys"}, id="a URL as key id"),
        pytest.param({"kid": ""}, id="empty key id"),
        pytest.param({"typ": "logout+jwt"}, id="another kind of token"),
        pytest.param({"typ": "dpop+jwt"}, id="a proof of possession"),
        pytest.param({"crit": ["b64"], "b64": False}, id="critical extension"),
        pytest.param({"crit": ["unheard"], "unheard": 1}, id="unknown critical extension"),
    ],
)
async def test_adm_6_a_header_that_does_not_hold_proves_nothing(
    issuer: Issuer, headers: dict[str, Any]
) -> None:
    with pytest.raises(Unauthenticated):
        await verifier(issuer).verify(token(issuer, headers=headers))

    assert set(issuer.asked) <= {"/.well-known/openid-configuration", "/keys"}


@pytest.mark.parametrize("kind", ["at+jwt", "application/at+jwt", "jwt", "JWT"])
async def test_access_tokens_may_say_so(issuer: Issuer, kind: str) -> None:
    assert await verifier(issuer).verify(token(issuer, headers={"typ": kind}))


def swapped(issuer: Issuer) -> str:
    """HS256 with the published key as its secret."""
    public = rsa_key().public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    unsigned = forged({"alg": "HS256", "kid": "first"}, issuer.claims(iat=NOW, exp=NOW + 60))[:-1]
    return unsigned + "." + _encoded(hmac.digest(public, unsigned.encode(), hashlib.sha256))


def _encoded(raw: bytes) -> str:
    return forged({}, {}, raw).rpartition(".")[2]


def self_signed(issuer: Issuer) -> str:
    """Brings its own key, in every way a header can."""
    own = rsa_key(number=2)
    brought = {
        "kid": "first",
        "jwk": jwk_of(own),
        "jku": "http://127.0.0.1:1/keys",
        "x5u": "http://127.0.0.1:1",
    }
    return jwt.encode(issuer.claims(iat=NOW, exp=NOW + 60), own, algorithm="RS256", headers=brought)


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda issuer: forged({"alg": "none"}, issuer.claims()), id="alg none"),
        pytest.param(lambda issuer: forged({"alg": "None", "kid": "first"}, issuer.claims()), id="alg None"),
        pytest.param(
            lambda issuer: forged({"alg": ["RS256"], "kid": "first"}, issuer.claims()), id="alg list"
        ),
        pytest.param(lambda issuer: forged({"kid": "first"}, issuer.claims()), id="no alg"),
        pytest.param(swapped, id="HS256 with the public key"),
        pytest.param(self_signed, id="signed by a key of its own"),
        pytest.param(lambda issuer: token(issuer)[:-4] + "AAAA", id="another signature"),
        pytest.param(lambda issuer: token(issuer).rpartition(".")[0] + ".", id="no signature"),
        pytest.param(lambda _: forged({"alg": "RS256", "kid": 7}, {}), id="key id that is a number"),
        pytest.param(lambda _: forged([], []), id="lists"),
        pytest.param(lambda _: forged(json.loads("[" * 900 + "]" * 900), {}), id="a deep header"),
        pytest.param(lambda _: "..", id="nothing"),
        pytest.param(lambda _: "a.b.c", id="letters"),
        pytest.param(lambda _: "é.é.é", id="not ASCII"),
        pytest.param(lambda issuer: token(issuer, padding="x" * 16_384), id="too long"),
    ],
)
async def test_adm_6_a_forged_token_proves_nothing(issuer: Issuer, make: Any) -> None:
    with pytest.raises(Unauthenticated):
        await verifier(issuer).verify(make(issuer))


async def test_broken_tokens_of_any_shape_prove_nothing(issuer: Issuer) -> None:
    chance, found = random.Random(7), verifier(issuer)
    good = token(issuer)
    for _ in range(300):
        place = chance.randrange(len(good))
        text = good[:place] + chance.choice("AZaz09-_.=") + good[place + 1 :]
        if text != good:
            with pytest.raises(Unauthenticated):
                await found.verify(text)


async def test_a_clock_that_is_a_little_ahead_is_forgiven(issuer: Issuer) -> None:
    assert await verifier(issuer).verify(token(issuer, iat=NOW + 29, nbf=NOW + 29))


@pytest.mark.parametrize(
    ("claims", "fields", "role"),
    [
        pytest.param({"roles": ["readers", "agents"]}, {}, "viewer", id="the highest counts"),
        pytest.param({"roles": ["others"]}, {"default_role": "agent"}, "agent", id="default"),
        pytest.param({"roles": None}, {"default_role": "agent"}, "agent", id="default without the claim"),
        pytest.param({"scope": "openid owners"}, {"role_claim": "scope"}, "admin", id="words of a text"),
        pytest.param({"a": {"b": ["owners"]}}, {"role_claim": "a.b"}, "admin", id="nested"),
        pytest.param(
            {"https://x.example/r": ["owners"]}, {"role_claim": "https://x.example/r"}, "admin", id="url"
        ),
    ],
)
async def test_a_claim_becomes_a_role(
    issuer: Issuer, claims: dict[str, Any], fields: dict[str, Any], role: str
) -> None:
    proof = await verifier(issuer, **fields).verify(token(issuer, **claims))

    assert proof.principal.role == role


@pytest.mark.parametrize(
    "claims", [{"roles": None}, {"roles": ["others"]}, {"roles": []}, {"roles": "admin"}]
)
async def test_a_token_without_a_role_is_refused(issuer: Issuer, claims: dict[str, Any]) -> None:
    with pytest.raises(Forbidden):
        await verifier(issuer).verify(token(issuer, **claims))


CEILING: dict[str, Any] = {
    "tasks_claim": "tg.tasks",
    "servers_claim": "tg.servers",
    "tools_claim": "tg.tools",
    "denied_tools_claim": "tg.denied",
    "task_claim": "tg.task",
}


async def test_claims_become_a_ceiling_and_a_task(issuer: Issuer) -> None:
    claims = {
        "tasks": ["review"],
        "servers": [],
        "tools": "git/* status",
        "denied": ["push"],
        "task": "review",
    }

    proof = await verifier(issuer, **CEILING).verify(token(issuer, tg=claims))

    ceiling = Ceiling(tasks=("review",), servers=(), allow=("git/*", "status"), deny=("push",))
    assert proof.principal == Principal(id="oidc:ada", role="agent", ceiling=ceiling, default_task="review")


async def test_a_setting_says_what_callers_with_a_token_have_before_they_choose(issuer: Issuer) -> None:
    verifiers = verifier(issuer), verifier(issuer, integrations="off")
    proofs = [await one.verify(token(issuer)) for one in verifiers]

    assert [proof.principal.integrations for proof in proofs] == ["on", "off"]


async def test_claims_left_out_do_not_restrict(issuer: Issuer) -> None:
    assert (await verifier(issuer, **CEILING).verify(token(issuer))).principal.ceiling == Ceiling()


@pytest.mark.parametrize(
    "claims",
    [
        {"servers": ["../x"]},
        {"tools": ["a b"]},
        {"tasks": [7]},
        {"task": "No Task"},
        {"task": 7},
        {"servers": 7},
    ],
)
async def test_a_ceiling_that_cannot_be_read_is_not_passed_over(
    issuer: Issuer, claims: dict[str, Any]
) -> None:
    with pytest.raises(Unauthenticated):
        await verifier(issuer, **CEILING).verify(token(issuer, tg=claims))


async def test_a_new_key_is_found_and_strangers_do_not_have_the_issuer_asked_over_and_over(
    issuer: Issuer, clock: Clock
) -> None:
    found = verifier(issuer, clock)
    await found.verify(token(issuer))
    issuer.keys["second"] = rsa_key(number=1)
    asked = len(issuer.asked)

    for _ in range(50):
        with pytest.raises(Unauthenticated):
            await found.verify(token(issuer, kid="second"))
    assert len(issuer.asked) == asked
    clock.now += MIN_REFRESH_S
    assert (await found.verify(token(issuer, kid="second"))).principal.id == "oidc:ada"
    assert len(issuer.asked) == asked + 2


async def test_a_key_that_the_issuer_withdrew_is_forgotten(issuer: Issuer, clock: Clock) -> None:
    found, withdrawals = verifier(issuer, clock), []
    found.on_key_withdrawn(lambda: withdrawals.append(len(issuer.keys)))
    old = token(issuer)
    await found.verify(old)
    issuer.keys["second"] = rsa_key(number=1)
    clock.now += MIN_REFRESH_S
    await found.verify(token(issuer, kid="second"))
    assert withdrawals == []
    issuer.keys = {"third": rsa_key(number=2), "second": rsa_key(number=1)}
    clock.now += MIN_REFRESH_S
    await found.verify(token(issuer, kid="third"))

    assert withdrawals == [2]
    with pytest.raises(Unauthenticated):
        await found.verify(old)


async def test_while_the_issuer_is_away_known_keys_go_on(
    issuer: Issuer, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    found = verifier(issuer, clock)
    await found.verify(token(issuer))
    issuer.status = 503
    issuer.keys["second"] = rsa_key(number=1)
    for _ in range(3):
        clock.now += MIN_REFRESH_S
        with pytest.raises(IssuerUnavailable):
            await found.verify(token(issuer, kid="second"))

    assert (await found.verify(token(issuer))).principal.id == "oidc:ada"
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def redirecting(issuer: Issuer) -> None:
    issuer.status, issuer.headers = 302, {"location": issuer.url + "/keys"}


def under_another_name(issuer: Issuer) -> None:
    issuer.metadata = issuer.metadata | {"issuer": issuer.url + "/"}


def pointing_elsewhere(issuer: Issuer) -> None:
    issuer.metadata = issuer.metadata | {"jwks_uri": "http://keys.example/keys"}


def pointing_nowhere(issuer: Issuer) -> None:
    del issuer.metadata["jwks_uri"]


def endless(issuer: Issuer) -> None:
    issuer.padding = MAX_DOCUMENT_BYTES


def without_keys(issuer: Issuer) -> None:
    issuer.metadata = issuer.metadata | {"jwks_uri": issuer.url + "/.well-known/openid-configuration"}


@pytest.mark.parametrize(
    "spoil", [redirecting, under_another_name, pointing_elsewhere, pointing_nowhere, endless, without_keys]
)
async def test_ssr_2_an_issuer_that_is_not_itself_is_not_followed(issuer: Issuer, spoil: Any) -> None:
    spoil(issuer)

    with pytest.raises(IssuerUnavailable):
        await verifier(issuer).verify(token(issuer))


async def test_the_keys_may_be_configured_instead_of_discovered(issuer: Issuer) -> None:
    await verifier(issuer, jwks_url=f"{issuer.url}/keys").verify(token(issuer))

    assert issuer.asked == ["/keys"]


async def test_untrustworthy_published_keys_are_ignored(issuer: Issuer) -> None:
    weak = rsa_key(1_024)
    symmetric = {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0", "kid": "shared"}
    issuer.extra_keys = [
        symmetric,
        jwk_of(weak) | {"kid": "weak"},
        jwk_of(rsa_key(number=1)) | {"kid": "encrypts", "use": "enc"},
        {"kty": "RSA", "kid": "broken", "n": "!", "e": "AQAB"},
        {"kty": "EC", "kid": "odd", "crv": "secp256k1"},
        "no key",
    ]
    found = verifier(issuer)
    assert await found.verify(token(issuer))
    claims = issuer.claims(iat=NOW, exp=NOW + 60)
    secret = b"secret-secret-secret-secret" + b"-secret"
    for text in (
        jwt.encode(claims, secret, algorithm="HS256", headers={"kid": "shared"}),
        forged({"alg": "RS256", "kid": "weak"}, claims, b"x" * 128),
        jwt.encode(claims, rsa_key(number=1), algorithm="RS256", headers={"kid": "encrypts"}),
    ):
        with pytest.raises(Unauthenticated):
            await found.verify(text)


@pytest.mark.parametrize(
    "fields",
    [
        pytest.param({"issuer": "http://issuer.example"}, id="issuer without TLS"),
        pytest.param({"issuer": "issuer.example"}, id="no URL"),
        pytest.param({"jwks_url": "http://issuer.example/keys"}, id="keys without TLS"),
        pytest.param({"audience": ""}, id="any audience"),
        pytest.param({"roles": {}}, id="no role at all"),
    ],
)
async def test_a_configuration_that_is_not_safe_is_refused(fields: dict[str, Any]) -> None:
    good: dict[str, Any] = {"issuer": "https://issuer.example", "audience": AUDIENCE, "roles": {"a": "agent"}}

    with pytest.raises(StartRefused):
        async with open_oidc(OidcSettings(**good | fields), FETCHER):
            pytest.fail("opened")


@pytest.mark.parametrize("leeway_s", [-1, 3_600])
def test_the_clock_of_an_issuer_is_ahead_by_minutes_at_most(leeway_s: int) -> None:
    with pytest.raises(ValidationError):
        OidcSettings(issuer="https://issuer.example", audience=AUDIENCE, leeway_s=leeway_s)


async def test_the_gateway_opens_without_its_issuer() -> None:
    with serving_issuer() as gone:
        settings = config(gone)
        text = gone.token()

    async with open_oidc(settings, FETCHER) as found:
        with pytest.raises(IssuerUnavailable):
            await found.verify(text)


async def test_an_open_verifier_has_the_keys_ready(issuer: Issuer) -> None:
    async with open_oidc(config(issuer), FETCHER) as found:
        assert (await found.verify(issuer.token())).principal.id == "oidc:ada"


def test_a_gateway_without_an_issuer_does_not_load_what_verifies_tokens() -> None:
    program = "import sys, toolgate.app.up; sys.exit('jwt' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
