"""Logging in to a server over REST: a code goes in, and no token comes out."""

from pathlib import Path

import pytest

from tests.surfaces.rest_house import NOW_MS, SERVERS, error_of, http, open_rest
from tests.upstream.oauth.authority import NOW_S, REDIRECT, authorizer, open_house
from toolgate.upstream.oauth.grants import GrantFiles
from toolgate.upstream.oauth.logins import Logins

pytestmark = pytest.mark.anyio


def test_both_houses_have_one_clock() -> None:
    assert NOW_S * 1000 == NOW_MS


async def test_a_login_is_begun_finished_shown_and_ended(tmp_path: Path) -> None:
    grants = GrantFiles(tmp_path)
    logins = Logins(authorizer(grants), grants, clock_s=lambda: NOW_S)
    async with open_house() as servers, open_rest(logins=logins) as house:
        oauth = {"grant": "authorization_code", "client_id": "gateway"}
        await house.seed(server=[http("there", http={"url": servers.serving.url, "oauth": oauth})])
        path = f"{SERVERS}/there/login"
        begun = await house.post(path, {"redirect_uri": REDIRECT})
        answer = servers.authority.agree(begun["authorization_url"])
        finished = await house.post(f"{path}/finish", answer)
        shown = await house.get(f"{SERVERS}/there")
        ended = await house.ask("DELETE", path)
        again = await house.ask("DELETE", path)
        after = await house.get(f"{SERVERS}/there")

        login = {"issuer": servers.authority.issuer, "expires_at_s": NOW_S + 3600, "renews": False}
        assert finished == {"server_id": "there", "login": login}
        assert (shown["login"], after["login"]) == (login, None)
        assert (ended.status_code, error_of(again)) == (200, (404, "not_found"))
        assert [event.operation for event in house.audited] == ["login", "logout"]
        assert "token-1" not in str((begun, finished, shown))


async def test_a_record_that_was_read_can_be_sent_back_with_its_login(tmp_path: Path) -> None:
    grants = GrantFiles(tmp_path)
    async with open_rest(logins=Logins(authorizer(grants), grants, clock_s=lambda: NOW_S)) as house:
        oauth = {"grant": "authorization_code", "client_id": "gateway"}
        await house.seed(server=[http("there", http={"oauth": oauth})])
        shown = await house.get(f"{SERVERS}/there")
        written = await house.put(f"{SERVERS}/there", shown)

    assert written["server"]["http"]["oauth"]["client_id"] == "gateway"


async def test_where_no_servers_are_called_nobody_logs_in() -> None:
    async with open_rest() as house:
        await house.seed(server=[http("there")])
        answer = await house.ask("POST", f"{SERVERS}/there/login", {"redirect_uri": REDIRECT})

    assert error_of(answer) == (400, "invalid_request")
    assert "client_credentials" in answer.json()["error"]["hint"]


async def test_an_unknown_server_cannot_be_logged_in_to() -> None:
    async with open_rest() as house:
        answers = [
            await house.ask("POST", f"{SERVERS}/nowhere/login", {"redirect_uri": REDIRECT}),
            await house.ask("POST", f"{SERVERS}/nowhere/login/finish", {"state": "x", "code": "y"}),
            await house.ask("DELETE", f"{SERVERS}/nowhere/login"),
        ]

    assert [error_of(answer) for answer in answers] == [(404, "not_found")] * 3
