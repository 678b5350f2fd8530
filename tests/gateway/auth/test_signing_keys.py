"""The keys of an issuer are asked for ahead of time, in time that passes only when told."""

import asyncio
from typing import Any

import pytest

from tests.gateway.auth.issuer import jwk_of, rsa_key
from tests.upstream.virtual_time import VIRTUAL, pass_time
from toolgate.gateway.auth.oidc import JITTER, JWKS_RETRY_S, JWKS_TTL_S, MIN_REFRESH_S, SigningKeys
from toolgate.upstream.http.fetch import FetchFailed

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> object:
    return VIRTUAL


class Source:
    """Publishes one key, or nothing."""

    def __init__(self) -> None:
        self.is_down = False
        self.asked_s: list[float] = []

    async def __call__(self) -> Any:
        self.asked_s.append(asyncio.get_running_loop().time())
        await asyncio.sleep(0.1)
        if self.is_down:
            raise FetchFailed("it is down")
        return {"keys": [jwk_of(rsa_key()) | {"kid": "first"}]}


def keys_of(source: Source) -> SigningKeys:
    return SigningKeys(source, clock_s=asyncio.get_running_loop().time)


async def test_keys_are_asked_for_again_and_again_but_not_at_the_same_time_as_everyone_else() -> None:
    source = Source()
    refreshing = asyncio.ensure_future(keys_of(source).keep_fresh())
    await pass_time(JWKS_TTL_S * 50)
    refreshing.cancel()

    gaps = [later - earlier for earlier, later in zip(source.asked_s, source.asked_s[1:], strict=False)]
    assert all(JWKS_TTL_S * (1 - JITTER) <= gap <= JWKS_TTL_S * (1 + JITTER) + 1 for gap in gaps)
    assert len(set(gaps)) == len(gaps) > 30


async def test_an_issuer_that_is_away_is_asked_sooner_and_its_keys_stay_known() -> None:
    source = Source()
    keys = keys_of(source)
    refreshing = asyncio.ensure_future(keys.keep_fresh())
    await pass_time(1)
    source.is_down = True
    await pass_time(JWKS_TTL_S * 2)
    failures = len(source.asked_s)

    assert failures > JWKS_TTL_S * (1 - JITTER) / (JWKS_RETRY_S * (1 + JITTER)) / 2
    assert (keys.find("first") is not None, keys.is_current) == (True, False)
    source.is_down = False
    await pass_time(JWKS_RETRY_S * 2)
    assert keys.is_current
    refreshing.cancel()


async def test_however_many_wait_for_a_key_the_issuer_is_asked_once() -> None:
    source = Source()
    keys = keys_of(source)

    await asyncio.gather(*(keys.refresh() for _ in range(1_000)))
    assert len(source.asked_s) == 1
    await pass_time(MIN_REFRESH_S)
    await asyncio.gather(*(keys.refresh() for _ in range(1_000)))
    assert len(source.asked_s) == 2
