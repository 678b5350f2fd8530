"""Who may be whom: a wrong credential is never anonymous."""

import pytest

from toolgate.errors import Unauthenticated
from toolgate.gateway.identity import KEYED_ADMIN, LOCAL_ADMIN, Identities, hash_key
from toolgate.model.principals import Ceiling, Key, Principal

SECRET = "tg_" + "s" * 40
CEILING = Ceiling(servers=("git",))
ADA = Key(key_id="ada", sha256=hash_key(SECRET), role="agent", ceiling=CEILING, expires_at_s=100)


def identities(*, admin_key: str | None = None, trusts_local: bool = False, now: float = 50) -> Identities:
    found = Identities(admin_key=admin_key, trusts_local=trusts_local, clock_s=lambda: now)
    found.apply({"ada": ADA})
    return found


def test_a_stored_key_is_its_principal_with_its_ceiling() -> None:
    principal = identities().authenticate(f"Bearer {SECRET}")

    assert principal == Principal(id="key:ada", role="agent", ceiling=CEILING)


def test_the_admin_key_is_an_administrator() -> None:
    assert identities(admin_key="a" * 32).authenticate("bearer " + "a" * 32) == KEYED_ADMIN


def test_without_a_key_only_a_trusted_loopback_is_the_local_administrator() -> None:
    assert identities(trusts_local=True).authenticate(None) == LOCAL_ADMIN
    with pytest.raises(Unauthenticated):
        identities().authenticate(None)


@pytest.mark.parametrize(
    "header", ["", "Bearer", "Bearer ", "Bearer wrong", "Basic abc", SECRET, f"Bearer {SECRET}x", "Bearer é"]
)
def test_adm_7_a_wrong_credential_is_never_anonymous(header: str) -> None:
    with pytest.raises(Unauthenticated):
        identities(admin_key="a" * 32, trusts_local=True).authenticate(header)


def test_an_expired_key_proves_nothing() -> None:
    with pytest.raises(Unauthenticated):
        identities(now=100).authenticate(f"Bearer {SECRET}")


def test_a_revoked_key_proves_nothing() -> None:
    found = identities()
    found.apply({})

    with pytest.raises(Unauthenticated):
        found.authenticate(f"Bearer {SECRET}")
