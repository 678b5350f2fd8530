"""Logging in to a server, and what becomes of it: for whom, from whom, for how long, and where it is kept."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.upstream.oauth.authority import NOW_S, REDIRECT, SECRET, authorizer, open_oauth_world
from tests.upstream.oauth.login_stage import LoginStage, personal
from toolgate.errors import InvalidRequest, ServerUnavailable
from toolgate.upstream.connection.contract import StartFailed
from toolgate.upstream.oauth.grants import GrantFiles, LoginKey
from toolgate.upstream.oauth.logins import LOGIN_S, MAX_LOGINS_EACH, Login

pytestmark = pytest.mark.anyio


@pytest.fixture
def grants(tmp_path: Path) -> GrantFiles:
    return GrantFiles(tmp_path / "logins")


async def test_a_login_earns_a_token_that_is_used_until_it_expires(grants: GrantFiles) -> None:
    async with open_oauth_world() as world:
        record = personal(world, scopes=("read",))
        login = await LoginStage(grants).log_in(world, record)
        token = await authorizer(grants).token(record)
        later = await authorizer(grants, now_s=NOW_S + 3_000).token(record)

    assert login == Login(issuer=world.authority.issuer, expires_at_s=NOW_S + 3600, renews=False)
    assert token == later
    assert (token.access, token.expires_at_s, token.lifetime_s) == ("token-1-of-many", NOW_S + 3600, 3600)
    (form,) = world.authority.forms
    assert (form["resource"], form["redirect_uri"]) == (world.serving.url, REDIRECT)


async def test_an_expired_token_is_renewed_once_and_kept_with_what_renews_it_next(grants: GrantFiles) -> None:
    async with open_oauth_world() as world:
        world.authority.response = {"refresh_token": "first"}
        record = personal(world)
        await LoginStage(grants).log_in(world, record)
        world.authority.response = {"refresh_token": "second"}
        late = authorizer(grants, now_s=NOW_S + 3_600)
        tokens = [await late.token(record), await late.token(record)]
        world.authority.response = {}
        refused = await late.token(record, rejected="token-2-of-many")

    assert [token.access for token in tokens] == ["token-2-of-many"] * 2
    assert [form.get("refresh_token") for form in world.authority.forms] == [None, "first", "second"]
    assert (refused.access, refused.refresh) == ("token-3-of-many", "second")


async def test_a_login_outlives_the_process_in_a_file_for_its_owner_only(tmp_path: Path) -> None:
    directory = tmp_path / "logins"
    async with open_oauth_world() as world:
        await LoginStage(GrantFiles(directory)).log_in(world, personal(world))
        token = await authorizer(GrantFiles(directory)).token(personal(world))

    assert token.access == "token-1-of-many"
    (file,) = directory.iterdir()
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(directory.stat().st_mode)) == (0o600, 0o700)
    assert "token-1" not in repr(GrantFiles(directory).get(LoginKey("there")))


async def test_a_file_that_cannot_be_read_means_logging_in_again(tmp_path: Path) -> None:
    (tmp_path / "logins").mkdir()
    (tmp_path / "logins" / "there.json").write_text(json.dumps({"issuer": 7}), "utf-8")

    async with open_oauth_world() as world:
        with pytest.raises(StartFailed, match="an administrator must log in first"):
            await authorizer(GrantFiles(tmp_path / "logins")).token(personal(world))


async def test_who_logs_out_is_logged_out(grants: GrantFiles) -> None:
    async with open_oauth_world() as world:
        stage = LoginStage(grants)
        await stage.log_in(world, personal(world))
        ended = [await stage.logins.end(personal(world)) is not None for _ in range(2)]
        with pytest.raises(StartFailed, match="toolgate servers login there") as refused:
            await authorizer(grants).token(personal(world))

    assert (ended, refused.value.fatal, stage.logins.of(LoginKey("there"))) == ([True, False], True, None)


async def test_without_a_place_to_keep_them_no_one_can_log_in() -> None:
    async with open_oauth_world() as world:
        with pytest.raises(StartFailed, match="client_credentials"):
            await authorizer().token(personal(world))


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"url": "http://127.0.0.1:9/mcp"}, id="another server"),
        pytest.param({"issuer": "https://other.example"}, id="another issuer"),
        pytest.param({"client_id": "someone"}, id="another client"),
    ],
)
async def test_cve_2026_104850_a_login_is_for_the_record_it_was_made_with(
    grants: GrantFiles, changes: dict[str, str]
) -> None:
    async with open_oauth_world() as world:
        await LoginStage(grants).log_in(world, personal(world))
        with pytest.raises(StartFailed, match="has changed since the login"):
            await authorizer(grants).token(personal(world, **changes))


async def test_a_rejected_renewal_requires_another_login(grants: GrantFiles) -> None:
    async with open_oauth_world() as world:
        world.authority.response = {"refresh_token": "first"}
        await LoginStage(grants).log_in(world, personal(world))
        world.authority.refusal = "invalid_grant"
        with pytest.raises(StartFailed, match="log in again") as refused:
            await authorizer(grants).token(personal(world), rejected="token-1-of-many")

    assert refused.value.fatal


async def test_an_expired_login_without_renewal_says_so(grants: GrantFiles) -> None:
    async with open_oauth_world() as world:
        await LoginStage(grants).log_in(world, personal(world))
        with pytest.raises(StartFailed, match="the login has expired"):
            await authorizer(grants, now_s=NOW_S + 4_000).token(personal(world))


async def test_a_login_is_finished_once_and_by_the_principal_that_began_it(grants: GrantFiles) -> None:
    async with open_oauth_world() as world:
        stage = LoginStage(grants)
        response = world.authority.negotiate(await stage.begin(personal(world)))
        for principal, server in (("eve", "there"), ("ada", "elsewhere")):
            with pytest.raises(InvalidRequest, match="this login was never started here, or has expired"):
                await stage.finish(response, principal=principal, server=server)
        await stage.finish(response)
        with pytest.raises(InvalidRequest, match="this login was never started here, or has expired"):
            await stage.finish(response)

    assert len(world.authority.forms) == 1


async def test_a_login_expires_before_it_is_finished(grants: GrantFiles) -> None:
    async with open_oauth_world() as world:
        stage = LoginStage(grants)
        response = world.authority.negotiate(await stage.begin(personal(world)))
        stage.now_s += LOGIN_S
        with pytest.raises(InvalidRequest, match="this login was never started here, or has expired"):
            await stage.finish(response)


async def test_logins_that_are_begun_at_once_are_bounded(grants: GrantFiles) -> None:
    async with open_oauth_world() as world:
        stage = LoginStage(grants)
        responses = [
            world.authority.negotiate(await stage.begin(personal(world))) for _ in range(MAX_LOGINS_EACH + 1)
        ]
        with pytest.raises(InvalidRequest, match="this login was never started here, or has expired"):
            await stage.finish(responses[0])

        assert (await stage.finish(responses[-1])).issuer == world.authority.issuer


@pytest.mark.parametrize(
    ("metadata", "content"),
    [
        pytest.param({}, {"iss": "https://evil.example"}, id="another one"),
        pytest.param(
            {"authorization_response_iss_parameter_supported": True}, {}, id="none, though it promised"
        ),
    ],
)
async def test_rfc_9207_a_callback_of_another_authorization_server_is_rejected(
    grants: GrantFiles, metadata: dict[str, Any], content: dict[str, str]
) -> None:
    async with open_oauth_world() as world:
        world.authority.metadata = metadata
        stage = LoginStage(grants)
        response = world.authority.negotiate(await stage.begin(personal(world)))
        del response["iss"]
        with pytest.raises(InvalidRequest, match="not from the authorization server"):
            await stage.finish(response | content)

    assert world.authority.forms == []


@pytest.mark.parametrize(
    ("metadata", "client_id", "content"),
    [
        ({"code_challenge_methods_supported": None}, "gateway", "PKCE"),
        ({"code_challenge_methods_supported": ["plain"]}, "gateway", "PKCE"),
        ({"authorization_endpoint": None}, "gateway", "no authorization endpoint"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "gateway", "an address that is not allowed"),
        ({"client_id_metadata_document_supported": None}, "https://gw.example/client.json", "accepts no URL"),
    ],
)
async def test_an_authorization_server_that_does_not_support_logins_is_not_used(
    grants: GrantFiles, metadata: dict[str, Any], client_id: str, content: str
) -> None:
    async with open_oauth_world() as world:
        world.authority.metadata = metadata
        with pytest.raises(ServerUnavailable, match=content):
            await LoginStage(grants).begin(personal(world, client_id=client_id))


async def test_a_client_may_be_known_by_the_url_of_its_metadata(grants: GrantFiles) -> None:
    async with open_oauth_world() as world:
        await LoginStage(grants).log_in(world, personal(world, client_id="https://gw.example/client.json"))

    assert world.authority.clients == [("https://gw.example/client.json", None)]


async def test_a_client_with_a_secret_shows_it_to_its_issuer_and_writes_it_nowhere(
    tmp_path: Path, grants: GrantFiles
) -> None:
    async with open_oauth_world() as world:
        record = world.record("authorization_code")
        await LoginStage(grants).log_in(world, record)

    assert world.authority.clients == [("gateway", SECRET)]
    assert SECRET not in (tmp_path / "logins" / "there.json").read_text("utf-8")


@pytest.mark.parametrize(
    "redirect_uri",
    ["https://evil.example/callback", "http://evil.example/callback", "http://127.0.0.1:1/x?a=b", "nonsense"],
)
async def test_the_code_comes_back_to_this_machine_only(grants: GrantFiles, redirect_uri: str) -> None:
    async with open_oauth_world() as world:
        with pytest.raises(InvalidRequest, match="redirect_uri"):
            await LoginStage(grants).begin(personal(world), redirect_uri=redirect_uri)


async def test_a_login_needs_a_record_with_oauth(grants: GrantFiles) -> None:
    async with open_oauth_world() as world:
        with pytest.raises(InvalidRequest, match="does not use logins"):
            await LoginStage(grants).begin(world.record())

    assert world.issuing.connections == 0


async def test_a_server_that_names_no_one_needs_an_issuer(grants: GrantFiles) -> None:
    async with open_oauth_world() as world:
        world.resource = None
        with pytest.raises(ServerUnavailable, match=r"set `oauth\.issuer`"):
            await LoginStage(grants).begin(personal(world))
