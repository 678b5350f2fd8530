"""Who may be whom: a wrong credential is never anonymous, and what rests on one ends with it."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.memory_audit import MemorySink
from toolgate.audit.events import CredentialRefused
from toolgate.audit.log.writer import AuditLog
from toolgate.errors import TooManyAttempts, Unauthenticated
from toolgate.gateway.auth.identity import (
    KEYED_ADMIN,
    LOCAL_ADMIN,
    MAX_ATTEMPTS,
    MAX_TOKENS,
    WINDOW_S,
    FailedAttempts,
    Identities,
    Proof,
    hash_key,
    reaches,
)
from toolgate.model.principals import Ceiling, Key, Principal

pytestmark = pytest.mark.anyio

SECRET = "tg_" + "s" * 40
BEARER = f"Bearer {SECRET}"
CEILING = Ceiling(servers=("git",))
ADA = Key(key_id="ada", sha256=hash_key(SECRET), role="agent", ceiling=CEILING, expires_at_s=100)
TOKEN = "Bearer head.claims.signature"


class Clock:
    """Time that moves only when lapses."""

    def __init__(self, now: float) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Verifier:
    """Takes any token, for as long as it is lapses."""

    def __init__(self, expires_at_s: float = 100) -> None:
        self.expires_at_s = expires_at_s
        self.verified: list[str] = []
        self.forgets: list[Callable[[], None]] = []

    def on_key_withdrawn(self, forget: Callable[[], None]) -> None:
        self.forgets.append(forget)

    async def verify(self, token: str) -> Proof:
        self.verified.append(token)
        return Proof(Principal(id=f"oidc:{token}", role="agent"), self.expires_at_s)


def identities(*, now: float = 50, clock: Clock | None = None, **fields: Any) -> Identities:
    found = Identities(**{"admin_key": None, "trusts_local": False, "clock_s": clock or Clock(now)} | fields)
    found.apply({"ada": ADA})
    return found


async def test_a_stored_key_is_its_principal_with_its_ceiling() -> None:
    principal = await identities().authenticate(BEARER)

    assert principal == Principal(id="key:ada", role="agent", ceiling=CEILING, expires_at_s=100)
    assert identities().known(BEARER) == principal


async def test_the_admin_key_is_an_administrator() -> None:
    assert await identities(admin_key="a" * 32).authenticate("bearer " + "a" * 32) == KEYED_ADMIN


async def test_without_a_key_only_a_trusted_loopback_is_the_local_administrator() -> None:
    assert await identities(trusts_local=True).authenticate(None) == LOCAL_ADMIN
    with pytest.raises(Unauthenticated):
        await identities().authenticate(None)


@pytest.mark.parametrize(
    "header",
    [
        *("", "Bearer", "Bearer ", "Bearer wrong", "Basic abc", SECRET, f"Bearer {SECRET}x", "Bearer é"),
        *(f"{BEARER}, {BEARER}", f"Basic {SECRET}", "Bearer a.b.c", "Bearer  ", f"Bearer\t{SECRET}"),
    ],
)
async def test_adm_7_a_wrong_credential_is_never_anonymous(header: str) -> None:
    found = identities(admin_key="a" * 32, trusts_local=True)

    assert found.known(header) is None
    with pytest.raises(Unauthenticated):
        await found.authenticate(header)
    with pytest.raises(Unauthenticated), found.hold_credential(header, lambda: None):
        pass


async def test_an_expired_key_proves_nothing() -> None:
    with pytest.raises(Unauthenticated):
        await identities(now=100).authenticate(BEARER)


async def test_a_revoked_key_proves_nothing() -> None:
    found = identities()
    found.apply({})

    with pytest.raises(Unauthenticated):
        await found.authenticate(BEARER)


async def test_a_stored_hash_of_the_admin_key_does_not_replace_it() -> None:
    found = identities(admin_key="a" * 32)
    found.apply({"eve": replace(ADA, key_id="eve", sha256=hash_key("a" * 32))})

    assert await found.authenticate("Bearer " + "a" * 32) == KEYED_ADMIN


# Tokens


async def test_a_token_is_verified_once_and_then_known_until_it_expires() -> None:
    clock, verifier = Clock(50), Verifier(expires_at_s=100)
    found = identities(clock=clock, verifier=verifier)

    assert found.known(TOKEN) is None
    assert (await found.authenticate(TOKEN)).id == "oidc:head.claims.signature"
    assert found.known(TOKEN) == await found.authenticate(TOKEN)
    assert len(verifier.verified) == 1
    clock.now = 100
    assert found.known(TOKEN) is None


async def test_tokens_remembered_are_bounded() -> None:
    found = identities(verifier=Verifier())

    for number in range(MAX_TOKENS + 1):
        await found.authenticate(f"Bearer a.b.{number}")

    forgotten = [number for number in range(MAX_TOKENS + 1) if found.known(f"Bearer a.b.{number}") is None]
    assert forgotten == [0]


async def test_what_cannot_be_a_token_is_not_shown_to_the_issuer() -> None:
    verifier = Verifier()

    with pytest.raises(Unauthenticated):
        await identities(verifier=verifier).authenticate("Bearer tg_wrong")
    assert verifier.verified == []


# What rests on a credential


@pytest.mark.parametrize(
    "keys",
    [
        pytest.param({}, id="revoked"),
        pytest.param({"ada": replace(ADA, ceiling=Ceiling(servers=()))}, id="narrowed"),
        pytest.param({"ada": replace(ADA, role="viewer")}, id="another role"),
        pytest.param({"ada": replace(ADA, expires_at_s=60)}, id="expires sooner"),
    ],
)
async def test_a_held_key_lapses_once_when_it_changes(keys: dict[str, Key]) -> None:
    found, lapses = identities(), []
    with found.hold_credential(BEARER, lambda: lapses.append("ada")):
        found.apply({"ada": ADA, "bob": replace(ADA, key_id="bob", sha256=hash_key("b" * 40))})
        assert lapses == []
        found.apply(keys)
        found.apply({})

    assert lapses == ["ada"]


async def test_a_released_key_does_not_lapse() -> None:
    found, lapses = identities(), []
    with found.hold_credential(BEARER, lambda: lapses.append("ada")):
        pass
    found.apply({})

    assert lapses == []


@pytest.mark.parametrize("header", [None, "Bearer " + "a" * 32])
async def test_what_no_change_of_the_registry_can_end_goes_on(header: str | None) -> None:
    found, lapses = identities(admin_key="a" * 32, trusts_local=True), []
    with found.hold_credential(header, lambda: lapses.append(1)):
        found.apply({})

    assert lapses == []


async def test_a_token_outlives_changes_of_the_registry_and_its_place_in_the_memory() -> None:
    found, lapses = identities(verifier=Verifier()), []
    await found.authenticate(TOKEN)
    with found.hold_credential(TOKEN, lambda: lapses.append(1)):
        for number in range(MAX_TOKENS):
            await found.authenticate(f"Bearer a.b.{number}")
        found.apply({})
        assert found.known(TOKEN) is None

    assert lapses == []


async def test_when_an_issuer_withdraws_a_key_its_tokens_are_verified_again_and_held_ones_lapse() -> None:
    verifier, lapses = Verifier(), []
    found = identities(verifier=verifier)
    await found.authenticate(TOKEN)
    with (
        found.hold_credential(TOKEN, lambda: lapses.append("token")),
        found.hold_credential(BEARER, lambda: lapses.append("key")),
    ):
        for forget in verifier.forgets:
            forget()

    assert lapses == ["token"]
    assert found.known(TOKEN) is None
    await found.authenticate(TOKEN)
    assert len(verifier.verified) == 2


async def test_a_held_credential_lapses_when_it_expires() -> None:
    clock, lapsed = Clock(50), asyncio.Event()
    found = identities(clock=clock, verifier=Verifier(expires_at_s=50.01))
    await found.authenticate(TOKEN)

    def lapse() -> None:
        lapsed.set()

    with found.hold_credential(TOKEN, lapse):
        assert not lapsed.is_set()
        clock.now = 51
        async with asyncio.timeout(60):
            await lapsed.wait()


# Wrong ones, over and over


@pytest.mark.parametrize(
    "attempts",
    [
        pytest.param([("Bearer wrong", "/api/mcp")] * (MAX_ATTEMPTS + 1), id="the same at one place"),
        pytest.param(
            [(f"Bearer {n}", f"/{n}") for n in range(MAX_ATTEMPTS + 1)], id="guesses all over the place"
        ),
    ],
)
async def test_adm_10_after_twenty_wrong_credentials_a_peer_has_to_wait_and_a_right_one_passes(
    attempts: list[tuple[str, str]],
) -> None:
    clock = Clock(0)
    found = identities(failed_attempts=FailedAttempts(clock_s=clock))
    for credential, place in attempts[:-1]:
        with pytest.raises(Unauthenticated):
            await found.authenticate(credential, peer="192.0.2.1", path=place)

    clock.now = 20
    with pytest.raises(TooManyAttempts) as refused:
        await found.authenticate(attempts[-1][0], peer="192.0.2.1", path=attempts[-1][1])
    assert refused.value.data == {"retry_after_s": WINDOW_S - 20}
    assert (await found.authenticate(BEARER, peer="192.0.2.1")).id == "key:ada"
    with pytest.raises(Unauthenticated):
        await found.authenticate("Bearer wrong", peer="192.0.2.2")
    clock.now = WINDOW_S
    with pytest.raises(Unauthenticated):
        await found.authenticate("Bearer wrong", peer="192.0.2.1")


async def test_adm_7_one_wrong_credential_is_refused_at_every_path() -> None:
    found = identities()

    for number in range(1_000):
        with pytest.raises(Unauthenticated):
            await found.authenticate("Bearer wrong", peer="192.0.2.1", path=f"/{number}")


async def test_adm_10_no_credential_at_all_is_not_a_wrong_one() -> None:
    found = identities()

    for _ in range(MAX_ATTEMPTS * 2):
        with pytest.raises(Unauthenticated):
            await found.authenticate(None, peer="192.0.2.1")


async def test_adm_10_all_addresses_of_a_host_count_together() -> None:
    attempts = FailedAttempts(clock_s=Clock(0))
    for number in range(MAX_ATTEMPTS):
        attempts.record_attempt(f"2001:db8::{number:x}", "Bearer wrong", path="/")

    with pytest.raises(TooManyAttempts):
        attempts.record_attempt("2001:db8::ffff:ffff:ffff:ffff", "Bearer wrong", path="/")
    attempts.record_attempt("2001:db8:0:1::1", "Bearer wrong", path="/")


def test_adm_10_peers_remembered_are_bounded() -> None:
    attempts = FailedAttempts(clock_s=Clock(0), max_peers=10)

    for number in range(1_000):
        attempts.record_attempt(f"peer {number}", "Bearer wrong", path="/")

    assert len(attempts.peers) == 10


async def test_wrong_credentials_are_audited_without_filling_the_log() -> None:
    sink, clock = MemorySink(), Clock(0)
    audit = AuditLog(sink)
    found = identities(failed_attempts=FailedAttempts(audit, clock_s=clock, max_audited=MAX_ATTEMPTS))
    for place in ("/a", "/a", "/b", *("/c",) * MAX_ATTEMPTS * 3):
        with pytest.raises((Unauthenticated, TooManyAttempts)):
            await found.authenticate("Bearer secret-canary", peer="192.0.2.1", path=place)
    audit.flush()

    events = [event for _, event in sink.events if isinstance(event, CredentialRefused)]
    assert [(event.peer, event.code) for event in events] == [("192.0.2.1", "unauthenticated")] * MAX_ATTEMPTS
    assert "canary" not in repr(events)
    clock.now = WINDOW_S
    for number in range(2 * MAX_ATTEMPTS):
        with pytest.raises(Unauthenticated):
            await found.authenticate("Bearer wrong", peer=f"192.0.3.{number}")
    audit.flush()
    assert len(sink.events) == 2 * MAX_ATTEMPTS


def test_roles_include_those_below_them_and_node_is_separate() -> None:
    roles = ("admin", "publisher", "viewer", "agent", "node")

    reached = {role: [needed for needed in roles if reaches(role, needed)] for role in roles}  # type: ignore[arg-type]

    assert reached == {
        "admin": ["admin", "publisher", "viewer", "agent"],
        "publisher": ["publisher", "viewer", "agent"],
        "viewer": ["viewer", "agent"],
        "agent": ["agent"],
        "node": ["node"],
    }
