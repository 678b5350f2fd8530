"""A link's token is renewed before it expires, when it is refused, and never in a hurry."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.upstream.virtual_time import VIRTUAL, pass_time
from toolgate.upstream.connection.contract import StartFailed
from toolgate.upstream.oauth.authority import OAuthToken
from toolgate.upstream.oauth.connector import MIN_GAP_S, renew_tokens

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> Any:
    return VIRTUAL


def now_s() -> float:
    return asyncio.get_running_loop().time()


def token(lifetime_s: float | None = 3600) -> OAuthToken:
    if lifetime_s is None:
        return OAuthToken(access="a")
    return OAuthToken(access="a", expires_at_s=now_s() + lifetime_s, lifetime_s=lifetime_s)


@dataclass
class Play:
    """An authorization server, and the link."""

    lifetime_s: float | None = 3600
    failure: StartFailed | None = None
    asked: list[tuple[float, bool]] = field(default_factory=list)
    taken: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    async def obtain(self, rejected: str | None) -> OAuthToken:
        self.asked.append((now_s(), rejected == "a"))
        if self.failure is not None:
            raise self.failure
        return token(self.lifetime_s)

    def take(self, _token: OAuthToken) -> None:
        self.taken.append(now_s())


async def run(play: Play, *, for_s: float, refused_at_s: tuple[float, ...] = ()) -> None:
    rejected = asyncio.Event()

    async def renew() -> None:
        try:
            first = token(play.lifetime_s)
            await renew_tokens(first, rejected, play.obtain, on_token=play.take, clock_s=now_s)
        except StartFailed as exc:
            play.failed.append(str(exc))

    running = asyncio.create_task(renew())
    for at_s in refused_at_s:
        await pass_time(at_s - now_s())
        rejected.set()
    await pass_time(for_s - now_s())
    running.cancel()


async def test_a_token_is_renewed_a_minute_before_it_expires() -> None:
    play = Play()
    await run(play, for_s=8_000)

    assert play.taken == [3_540, 7_080]


async def test_a_short_lived_one_keeps_three_quarters_of_its_time() -> None:
    play = Play(lifetime_s=40)
    await run(play, for_s=100)

    assert play.taken == [30, 60, 90]


async def test_one_that_does_not_say_when_it_expires_is_kept_until_it_is_refused() -> None:
    play = Play(lifetime_s=None)
    await run(play, for_s=10_000, refused_at_s=(5_000,))

    assert play.asked == [(5_000, True)]


@pytest.mark.parametrize("lifetime_s", [0.0, None])
async def test_a_server_that_refuses_every_token_does_not_make_the_gateway_hammer(
    lifetime_s: float | None,
) -> None:
    play = Play(lifetime_s=lifetime_s)
    await run(play, for_s=60, refused_at_s=tuple(range(1, 60)))

    assert len(play.asked) <= 60 / MIN_GAP_S


async def test_an_authorization_server_may_be_away_for_as_long_as_the_token_lasts() -> None:
    play = Play(failure=StartFailed("away"))
    await run(play, for_s=3_600)

    assert play.failed == []
    assert len(play.asked) > 5

    play = Play(failure=StartFailed("away"))
    await run(play, for_s=now_s() + 4_000)

    assert play.failed == ["away"]


async def test_a_refusal_for_good_ends_the_link_at_once() -> None:
    play = Play(failure=StartFailed("log in again", fatal=True))
    await run(play, for_s=4_000)

    assert (len(play.asked), play.failed) == (1, ["log in again"])
