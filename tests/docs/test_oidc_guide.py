"""The guide to OpenID Connect: its settings accept the tokens that it shows, as the principals it names."""

import json
import tomllib
from typing import Any

import pytest

from tests.docs.documents import EXAMPLES, document
from tests.gateway.auth.issuer import Issuer, jwk_of
from toolgate.errors import Forbidden, Unauthenticated
from toolgate.gateway.auth.oidc import OidcVerifier, SigningKeys
from toolgate.model.principals import Ceiling, Principal
from toolgate.settings import load_settings

pytestmark = pytest.mark.anyio

GUIDE = document("docs/how-to/oidc.md")
AT_S = 1_794_999_000
"""Before the tokens of the guide expire."""
PROVIDERS = {
    "keycloak": Principal(
        id="oidc:4f0c9b1e-2d7a-4f57-9d0e-1c8f6f1a2b3c",
        role="agent",
        ceiling=Ceiling(tasks=("review", "triage")),
    ),
    "entra": Principal(id="oidc:AAAAAAAAAAAAAAAAAAAAAIkzqFVrSaSaFHy782bbtaQ", role="viewer"),
    "okta": Principal(id="oidc:ada@example.com", role="agent"),
    "google": Principal(id="oidc:110248495921238986420", role="agent"),
}


def claims_of(provider: str) -> dict[str, Any]:
    claims: dict[str, Any] = json.loads((EXAMPLES / "oidc" / f"{provider}.json").read_text("utf-8"))
    return claims


def verifier_of(provider: str, issuer: Issuer) -> OidcVerifier:
    """With the settings of the guide, and the keys that `issuer` signs with."""
    settings = load_settings(EXAMPLES / "settings" / f"oidc-{provider}.toml", {}).oidc
    assert settings is not None

    async def fetch() -> Any:
        return {"keys": [jwk_of(key) | {"kid": kid, "use": "sig"} for kid, key in issuer.keys.items()]}

    return OidcVerifier(settings, SigningKeys(fetch, clock_s=lambda: 0.0), clock_s=lambda: AT_S)


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_a_token_of_the_provider_is_the_principal_that_the_guide_says(provider: str) -> None:
    claims = claims_of(provider)
    issuer = Issuer(claims["iss"])
    token = issuer.token(**{"roles": None, "iat": AT_S} | claims)

    proof = await verifier_of(provider, issuer).verify(token)

    assert proof == (PROVIDERS[provider], claims["exp"])


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_what_the_guide_warns_of_is_refused(provider: str) -> None:
    claims = {"roles": None, "iat": AT_S} | claims_of(provider)
    issuer = Issuer(claims["iss"])
    settings = tomllib.loads((EXAMPLES / "settings" / f"oidc-{provider}.toml").read_text("utf-8"))
    name, *inner = settings["oidc"]["role_claim"].split(".")
    nothing: Any = [] if not inner else {inner[0]: []}
    elsewhere = issuer.token(**claims | {"aud": "account"})
    powerless = issuer.token(**claims | {name: nothing})
    verifier = verifier_of(provider, issuer)

    with pytest.raises(Unauthenticated, match="the token is for another audience"):
        await verifier.verify(elsewhere)
    with pytest.raises(Forbidden, match="maps to no role of this gateway"):
        await verifier.verify(powerless)


def test_each_provider_has_a_part_of_the_guide_with_its_settings_and_a_token() -> None:
    blocks = GUIDE.blocks("toml", "json")

    assert [
        name
        for name in PROVIDERS
        if (EXAMPLES / "settings" / f"oidc-{name}.toml").read_text("utf-8") not in blocks
        or (EXAMPLES / "oidc" / f"{name}.json").read_text("utf-8") not in blocks
    ] == []
