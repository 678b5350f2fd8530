"""What becomes of logins: given back, gone with what they were for, and never of use to anyone else."""

import asyncio
import stat
from pathlib import Path
from typing import Any

import pytest

from tests.upstream.oauth.authority import REDIRECT, authorizer, open_oauth_world
from tests.upstream.oauth.login_stage import LoginStage, personal
from toolgate.errors import InvalidRequest, ServerBusy
from toolgate.upstream.connection.contract import StartFailed
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.fetch import Fetcher
from toolgate.upstream.oauth.authority import OAuthFailed, find_parties
from toolgate.upstream.oauth.grants import GrantFiles, LoginKey
from toolgate.upstream.oauth.logins import MAX_BEGINNING_EACH, MAX_LOGINS_EACH

pytestmark = pytest.mark.anyio


@pytest.fixture
def grants(tmp_path: Path) -> GrantFiles:
    return GrantFiles(tmp_path / "logins")


async def test_a_token_is_given_back_to_its_authorization_server(grants: GrantFiles) -> None:
    async with open_oauth_world() as world:
        authority = world.authority
        authority.metadata = {"revocation_endpoint": f"{authority.issuer}/revoke"}
        stage = LoginStage(grants)
        responses = [{"refresh_token": "first"}, {}]
        given_back = []
        for authority.response in responses:
            await stage.log_in(world, personal(world))
            revoke = await stage.logins.end(personal(world))
            assert revoke is not None
            given_back.append(await revoke())

    shown = [(form["token"], form["token_type_hint"], form["client_id"]) for form in authority.revoked]
    assert given_back == [True, True]
    assert shown == [("first", "refresh_token", "gateway"), ("token-2-of-many", "access_token", "gateway")]


@pytest.mark.parametrize("metadata", [{}, {"revocation_endpoint": "http://127.0.0.1:9/revoke"}])
async def test_a_token_that_cannot_be_given_back_is_forgotten_all_the_same(
    grants: GrantFiles, metadata: dict[str, Any]
) -> None:
    async with open_oauth_world() as world:
        stage = LoginStage(grants)
        await stage.log_in(world, personal(world))
        world.authority.metadata = metadata
        revoke = await stage.logins.end(personal(world))
        assert revoke is not None

        assert (await revoke(), list(grants)) == (False, [])


def anyone(_principal_id: str) -> bool:
    return True


@pytest.mark.parametrize(
    ("changes", "is_kept"),
    [
        pytest.param({}, True, id="the same"),
        pytest.param({"scopes": ("more",)}, True, id="other scopes"),
        pytest.param(
            {"url": "http://${ENV:NOT_SET}/mcp"}, True, id="an address that cannot be known for now"
        ),
        pytest.param({"url": "http://127.0.0.1:9/mcp"}, False, id="another server"),
        pytest.param({"issuer": "https://other.example"}, False, id="another issuer"),
        pytest.param({"client_id": "someone"}, False, id="another client"),
        pytest.param({"grant": "client_credentials"}, False, id="another grant"),
    ],
)
async def test_a_login_goes_with_what_it_was_for(
    tmp_path: Path, grants: GrantFiles, changes: dict[str, Any], is_kept: bool
) -> None:
    async with open_oauth_world() as world:
        stage = LoginStage(grants)
        await stage.log_in(world, personal(world))
        record = world.record(
            **{"grant": "authorization_code", "client_secret_ref": None, "issuer": None} | changes
        )
        await stage.logins.tidy({"there": record}, anyone)

    assert [path.name for path in (tmp_path / "logins").iterdir()] == ["there.json"] * is_kept
    assert (stage.logins.of(LoginKey("there")) is not None) == is_kept


async def test_a_login_goes_with_its_server_and_that_of_a_principal_with_the_principal(
    tmp_path: Path, grants: GrantFiles
) -> None:
    async with open_oauth_world() as world:
        stage = LoginStage(grants)
        own = personal(world, per_principal=True)
        for owner in ("key:ada", "key:eve"):
            begun = await stage.logins.begin(own.owned_by(owner), principal=owner, redirect_uri=REDIRECT)
            await stage.finish(
                world.authority.negotiate(begun.authorization_url), principal=owner, owner=owner
            )
        await stage.log_in(world, own)
        await stage.logins.tidy({"there": own}, lambda principal_id: principal_id == "key:ada")
        kept = sorted(grants)
        await stage.logins.tidy({"there": personal(world)}, anyone)
        shared = sorted(grants)
        await stage.logins.tidy({}, anyone)

    assert kept == [LoginKey("there"), LoginKey("there", "key:ada")]
    assert (shared, list(grants), list((tmp_path / "logins").iterdir())) == ([LoginKey("there")], [], [])


async def test_a_key_that_is_deleted_while_its_login_is_finished_leaves_nothing_to_the_next_of_its_name(
    grants: GrantFiles,
) -> None:
    async with open_oauth_world() as world:
        stage = LoginStage(grants)
        own = personal(world, per_principal=True)
        begun = await stage.logins.begin(own.owned_by("key:ada"), principal="key:ada", redirect_uri=REDIRECT)
        await stage.logins.tidy({"there": own}, lambda _principal_id: False)
        with pytest.raises(InvalidRequest, match="changed meanwhile"):
            await stage.finish(
                world.authority.negotiate(begun.authorization_url), principal="key:ada", owner="key:ada"
            )

    assert list(grants) == []


# With an attacker's eyes


async def test_a_login_that_was_begun_for_oneself_is_not_finished_for_all(grants: GrantFiles) -> None:
    async with open_oauth_world() as world:
        stage = LoginStage(grants)
        own = personal(world, per_principal=True).owned_by("key:ada")
        begun = await stage.logins.begin(own, principal="key:ada", redirect_uri=REDIRECT)
        response = world.authority.negotiate(begun.authorization_url)
        for owner in ("", "key:eve"):
            with pytest.raises(InvalidRequest, match="this login was never started here, or has expired"):
                await stage.finish(response, principal="key:ada", owner=owner)

    assert world.authority.forms == []


async def test_who_begins_many_logins_puts_no_one_else_off(grants: GrantFiles) -> None:
    async with open_oauth_world() as world:
        stage = LoginStage(grants)
        response = world.authority.negotiate(await stage.begin(personal(world)))
        for _ in range(MAX_LOGINS_EACH + 1):
            await stage.logins.begin(personal(world), principal="eve", redirect_uri=REDIRECT)
        login = await stage.finish(response)

    assert login.issuer == world.authority.issuer


async def test_few_logins_of_a_principal_are_begun_at_a_time(grants: GrantFiles) -> None:
    async with open_oauth_world() as world:
        logins = LoginStage(grants).logins
        begun = await asyncio.gather(
            *(
                logins.begin(personal(world), principal=name, redirect_uri=REDIRECT)
                for name in ("ada",) * (MAX_BEGINNING_EACH + 1) + ("eve",)
            ),
            return_exceptions=True,
        )

    assert [isinstance(one, ServerBusy) for one in begun] == [False] * MAX_BEGINNING_EACH + [True, False]


async def outside(host: str, _port: int) -> list[str]:
    """A resolver that knows names out there, and some of the world."""
    return ["10.0.0.1"] if host.endswith(".house") else ["93.184.215.14"]


@pytest.mark.parametrize(
    ("metadata", "resource"),
    [
        pytest.param({"token_endpoint": "http://127.0.0.1:9/x"}, {}, id="where tokens come from"),
        pytest.param({"revocation_endpoint": "http://[::1]:9/x"}, {}, id="where they go back to"),
        pytest.param({}, {"authorization_servers": ["http://localhost:9"]}, id="who gives tokens"),
    ],
)
async def test_ssr_only_this_machine_may_name_itself(
    metadata: dict[str, Any], resource: dict[str, Any]
) -> None:
    issuer, url = "https://login.example", "https://mcp.example/mcp"
    documents = {
        url: {"resource": url, "authorization_servers": [issuer]} | resource,
        issuer: {"issuer": issuer, "token_endpoint": f"{issuer}/token"} | metadata,
    }
    asked: list[str] = []

    class Web(Fetcher):
        async def get_json(self, url: str) -> Any:
            asked.append(url)
            return documents[
                "https://mcp.example/mcp" if "protected-resource" in url else "https://login.example"
            ]

    with pytest.raises(OAuthFailed, match=r"an address that is not allowed: `.*` is this machine"):
        await find_parties(Web(Egress(allow_private=True, resolver=outside)), url, None)
    assert not any("localhost" in one for one in asked)


async def test_a_rejected_token_is_renewed_once_for_all_connections_that_sent_it(grants: GrantFiles) -> None:
    async with open_oauth_world() as world:
        world.authority.response = {"refresh_token": "first"}
        await LoginStage(grants).log_in(world, personal(world))
        tokens = authorizer(grants)
        renewed = await asyncio.gather(
            *(tokens.token(personal(world), rejected="token-1-of-many") for _ in range(8))
        )

    assert {token.access for token in renewed} == {"token-2-of-many"}
    assert len(world.authority.forms) == 2


async def test_a_login_that_ends_while_it_is_renewed_does_not_come_back(tmp_path: Path) -> None:
    grants = GrantFiles(tmp_path)
    async with open_oauth_world() as world:
        world.authority.response = {"refresh_token": "first"}
        stage = LoginStage(grants)
        await stage.log_in(world, personal(world))
        tokens = authorizer(grants)
        renewing = asyncio.create_task(tokens.token(personal(world), rejected="token-1-of-many"))
        await asyncio.sleep(0)
        await grants.drop(LoginKey("there"))
        with pytest.raises(StartFailed, match="an administrator must log in first"):
            await renewing

    assert (list(grants), list(tmp_path.iterdir())) == ([], [])


async def test_a_login_that_is_made_again_while_the_old_one_is_renewed_is_the_one_that_stays(
    tmp_path: Path,
) -> None:
    grants = GrantFiles(tmp_path)
    async with open_oauth_world() as world:
        world.authority.response = {"refresh_token": "old"}
        stage = LoginStage(grants)
        await stage.log_in(world, personal(world))
        world.authority.response = {}
        world.authority.held = asyncio.Event()
        renewing = asyncio.create_task(stage.authorizer.token(personal(world), rejected="token-1-of-many"))
        await world.authority.renewing.wait()
        logging_in = asyncio.create_task(stage.log_in(world, personal(world)))
        while len(world.authority.forms) < 3:
            await asyncio.sleep(0)
        world.authority.held.set()
        await asyncio.gather(renewing, logging_in)
        stored = [files.get(LoginKey("there")) for files in (grants, GrantFiles(tmp_path))]

    assert [one and one.access for one in stored] == ["token-3-of-many"] * 2


async def test_a_renewal_that_hangs_holds_up_nothing_but_itself(grants: GrantFiles) -> None:
    async with open_oauth_world() as world:
        world.authority.response = {"refresh_token": "old"}
        stage = LoginStage(grants)
        await stage.log_in(world, personal(world))
        world.authority.held = asyncio.Event()
        renewing = asyncio.create_task(stage.authorizer.token(personal(world), rejected="token-1-of-many"))
        await world.authority.renewing.wait()
        await stage.logins.tidy({}, anyone)
        world.authority.held.set()
        with pytest.raises(StartFailed, match="an administrator must log in first"):
            await renewing

    assert list(grants) == []


async def test_a_logout_gives_back_what_a_renewal_under_way_has_earned(grants: GrantFiles) -> None:
    async with open_oauth_world() as world:
        world.authority.metadata = {"revocation_endpoint": f"{world.authority.issuer}/revoke"}
        world.authority.response = {"refresh_token": "old"}
        stage = LoginStage(grants)
        await stage.log_in(world, personal(world))
        world.authority.response = {"refresh_token": "new"}
        world.authority.held = asyncio.Event()
        renewing = asyncio.create_task(stage.authorizer.token(personal(world), rejected="token-1-of-many"))
        await world.authority.renewing.wait()
        ending = asyncio.create_task(stage.logins.end(personal(world)))
        await asyncio.sleep(0)
        world.authority.held.set()
        await renewing
        revoke = await ending
        assert revoke is not None

        assert (await revoke(), world.authority.revoked[0]["token"]) == (True, "new")


async def test_files_that_lie_there_already_get_no_token(tmp_path: Path) -> None:
    directory, elsewhere = tmp_path / "logins", tmp_path / "elsewhere"
    directory.mkdir(mode=0o755)
    elsewhere.write_text("mine", "utf-8")
    (directory / "there.json").symlink_to(elsewhere)
    (directory / "there.new").write_text("half", "utf-8")
    grants = GrantFiles(directory)
    async with open_oauth_world() as world:
        await LoginStage(grants).log_in(world, personal(world))

    (file,) = directory.iterdir()
    assert (file.name, file.is_symlink(), elsewhere.read_text("utf-8")) == ("there.json", False, "mine")
    assert (stat.S_IMODE(file.stat().st_mode), stat.S_IMODE(directory.stat().st_mode)) == (0o600, 0o700)


async def test_a_symbolic_link_to_the_file_of_a_login_is_ignored(tmp_path: Path) -> None:
    async with open_oauth_world() as world:
        await LoginStage(GrantFiles(tmp_path / "elsewhere")).log_in(world, personal(world))
    (tmp_path / "logins").mkdir()
    (tmp_path / "logins" / "there.json").symlink_to(tmp_path / "elsewhere" / "there.json")

    assert list(GrantFiles(tmp_path / "logins")) == []


async def test_the_file_of_a_login_is_good_under_its_own_name_only(tmp_path: Path) -> None:
    grants = GrantFiles(tmp_path)
    async with open_oauth_world() as world:
        own = personal(world, per_principal=True).owned_by("key:ada")
        stage = LoginStage(grants)
        begun = await stage.logins.begin(own, principal="key:ada", redirect_uri=REDIRECT)
        await stage.finish(
            world.authority.negotiate(begun.authorization_url), principal="key:ada", owner="key:ada"
        )
    content = (tmp_path / LoginKey("there", "key:ada").file_name).read_bytes()
    for name in (
        LoginKey("there", "key:eve").file_name,
        LoginKey("there").file_name,
        LoginKey("else").file_name,
    ):
        (tmp_path / name).write_bytes(content)

    assert list(GrantFiles(tmp_path)) == [LoginKey("there", "key:ada")]
