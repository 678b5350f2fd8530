"""Who a caller is told it is, and how a person with a browser becomes one."""

import time

import pytest

from tests.surfaces.rest_world import NOW_MS, error_of, open_rest, secret_of
from toolgate import __version__
from toolgate.gateway.auth.identity import Identities, hash_key
from toolgate.gateway.auth.issuer import OidcLogin, ResourceMetadata
from toolgate.govern.operator_policy import OperatorPolicy
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.fetch import Fetcher

pytestmark = pytest.mark.anyio

ME = "/api/v1/me"
SECRET = "tg_ada" * 8


async def test_a_key_is_shown_whom_it_proves_and_how_far_it_reaches() -> None:
    expires_at_s = NOW_MS // 1000 + 60
    ceiling = {"servers": ["git"], "allow": ["git/*"], "deny": ["*delete*"]}
    ada = {"key_id": "ada", "role": "agent", "sha256": hash_key(SECRET), "expires_at_s": expires_at_s}
    async with open_rest(trusts_local=False) as world:
        await world.seed(key=[{**ada, "ceiling": ceiling, "default_task": "review"}])
        me = await world.get(ME, key=SECRET)
        revision = world.store.revision

    assert me == {
        "principal": "key:ada",
        "role": "agent",
        "by": "key",
        "default_task": "review",
        "ceiling": {"tasks": None, "servers": ["git"], "allow": ["git/*"], "deny": ["*delete*"]},
        "expires_at_s": expires_at_s,
        "version": __version__,
        "environment": "prod",
        "revision": revision,
        "calls_tools": True,
        "require_plan": False,
    }


async def test_on_trusted_loopback_no_one_needs_a_key_and_one_that_is_shown_counts() -> None:
    async with open_rest(trusts_local=True) as world:
        local, keyed = await world.get(ME), await world.get(ME, key=secret_of("viewer"))

    assert (local["principal"], local["role"], local["by"]) == ("local", "admin", "loopback")
    assert local["expires_at_s"] is None
    assert (keyed["principal"], keyed["role"], keyed["by"]) == ("key:viewer", "viewer", "key")


async def test_elsewhere_no_one_is_shown_anything_without_a_key() -> None:
    async with open_rest(trusts_local=False) as world:
        responses = [await world.request("GET", ME), await world.request("GET", ME, key="tg_wrong")]

    assert [error_of(response) for response in responses] == [(401, "unauthenticated")] * 2


async def test_what_this_process_demands_and_can_do_is_shown() -> None:
    async with open_rest(operator_policy=OperatorPolicy(requires_plan=True), calls_tools=False) as world:
        me = await world.get(ME)

    assert (me["require_plan"], me["calls_tools"]) == (True, False)


async def test_where_the_issuer_does_not_know_the_console_there_is_no_login_but_by_key() -> None:
    sent = {"code": "x", "code_verifier": "v" * 43, "redirect_uri": "http://127.0.0.1:8080/console/login"}
    async with open_rest(trusts_local=False) as world:
        ways = await world.get("/api/v1/login")
        response = await world.request("POST", "/api/v1/login", sent)

    assert ways == {"oidc": None}
    assert error_of(response) == (404, "not_found")


@pytest.mark.parametrize(
    "wrong",
    [
        {"code": ""},
        {"code": "x" * 5_000},
        {"code_verifier": "v" * 42},
        {"code_verifier": "v" * 129},
        {"code_verifier": "v" * 43 + "\n"},
        {"code_verifier": "ä" * 43},
        {"redirect_uri": ""},
        {"state": "not ours to see"},
    ],
)
async def test_what_is_not_a_code_and_its_verifier_is_refused(wrong: dict[str, str]) -> None:
    sent = {"code": "x", "code_verifier": "v" * 43, "redirect_uri": "http://127.0.0.1:8080/console/login"}
    async with open_rest(trusts_local=False) as world:
        response = await world.request("POST", "/api/v1/login", sent | wrong)

    assert error_of(response) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("redirect_uri", "expected"),
    [
        pytest.param(
            "http://127.0.0.1:8080/console/login", (503, "issuer_unavailable"), id="as it is called"
        ),
        pytest.param("https://127.0.0.1:8080/console/login", (503, "issuer_unavailable"), id="behind TLS"),
        pytest.param("https://tools.example/console/login", (503, "issuer_unavailable"), id="its public URL"),
        pytest.param("http://tools.example/console/login", (400, "invalid_request"), id="that in clear"),
        pytest.param("https://evil.example/console/login", (400, "invalid_request"), id="someone else"),
    ],
)
async def test_the_way_back_is_one_of_this_gateways(redirect_uri: str, expected: tuple[int, str]) -> None:
    no_one = "http://127.0.0.1:9"
    login = OidcLogin(
        "console",
        no_one,
        Fetcher(Egress(allow_private=True)),
        Identities(admin_key=None, trusts_local=False, clock_s=time.time),
    )
    sent = {"code": "x", "code_verifier": "v" * 43, "redirect_uri": redirect_uri}
    async with open_rest(
        oidc_login=login, discovery=ResourceMetadata(no_one, "https://tools.example/")
    ) as world:
        response = await world.request("POST", "/api/v1/login", sent)

    assert error_of(response) == expected
