"""Secrets over REST: they go in, and nothing that comes out ever holds them (SEC-1)."""

import logging
from typing import Any

import pytest

from tests.surfaces.rest_world import SERVERS, error_of, http, open_rest, operations, secret_of, stdio
from tests.upstream.memory_link import MemoryNet, MemoryServer
from toolgate.surfaces.rest.framework.request import PATH_PARSERS
from toolgate.upstream.connection.contract import StartFailed

pytestmark = pytest.mark.anyio

CANARY = "canary-7f3a9"
STDIO = {
    "command": "serve",
    "args": ["--api-key", CANARY, f"TOKEN={CANARY}", "--verbose", f"https://x.example/?token={CANARY}"],
    "env": {"GITHUB_TOKEN": CANARY, "MODE": "fast", "PASSWORD": f"${{ENV:PW:-{CANARY}}}"},
}
HTTP = {
    "url": f"https://mcp.example/mcp?api_key={CANARY}",
    "headers": {"Authorization": f"Bearer {CANARY}", "X-Trace": "on"},
}
SHOWN_STDIO = {
    "command": "serve",
    "args": ["--api-key", "***", "TOKEN=***", "--verbose", "https://x.example/?token=***"],
    "env": {"GITHUB_TOKEN": "***", "MODE": "fast", "PASSWORD": "${ENV:PW:-***}"},
    "env_from": [],
}
SHOWN_HTTP = {
    "url": "https://mcp.example/mcp?api_key=***",
    "headers": {"Authorization": "***", "X-Trace": "on"},
}


async def test_sec_1_no_answer_log_or_audit_record_shows_a_secret(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with open_rest() as world:
        texts = [
            (await world.request("POST", SERVERS, stdio("git", stdio=STDIO))).text,
            (await world.request("PUT", f"{SERVERS}/web", http("web", http=HTTP))).text,
            (await world.request("PUT", f"{SERVERS}/web", http("web", http=HTTP, tags=7))).text,
            (
                await world.request("POST", SERVERS, stdio("bad", stdio={"command": CANARY, "env": CANARY}))
            ).text,
            (await world.request("POST", SERVERS, http("bad", http={"url": f"ftp://{CANARY}"}))).text,
            (await world.request("POST", SERVERS, http("bad", http={"url": f"https://u:{CANARY}@h/"}))).text,
            (
                await world.request(
                    "POST", SERVERS, http("bad", http={**HTTP, "headers": {"A": f"{CANARY}\n"}})
                )
            ).text,
        ]
        await world.served()
        ids = dict.fromkeys(PATH_PARSERS, "none") | {"server_id": "git", "key_id": "viewer"}
        ids |= {"namespace": "toolgate.local", "server_name": "web", "server_version": "latest"}
        texts += [
            (await world.request("GET", path.format(**ids))).text
            for method, path in operations()
            if method == "GET"
        ]
        for body in (stdio("git", stdio=STDIO), None):
            plan = {"kind": "server", "id": "git", "body": body}
            texts.append((await world.request("POST", "/admin/api/plan", plan)).text)
        texts += [
            (await world.request("POST", f"{SERVERS}/git/{action}")).text for action in ("test", "refresh")
        ]
        texts.append((await world.request("GET", f"{SERVERS}/web")).text)
        texts.append((await world.request("DELETE", f"{SERVERS}/git")).text)

        assert [text for text in texts if CANARY in text] == []
        assert CANARY not in str(world.audited)
        assert CANARY not in caplog.text
        assert all(CANARY not in one.getMessage() for one in caplog.records)


async def test_hidden_values_that_are_sent_back_stay_as_they_are_stored() -> None:
    async with open_rest() as world:
        await world.seed(server=[stdio("git", stdio=STDIO), http("web", http=HTTP)])
        before = await world.store.list("server")
        git, web = [await world.get(f"{SERVERS}/{name}") for name in ("git", "web")]
        for shown in (git, web):
            await world.put(f"{SERVERS}/{shown['server_id']}", shown)
        unchanged = await world.store.list("server")
        await world.post(SERVERS, git | {"display_name": "Git"})
        renamed = await world.store.get("server", "git")

        assert (git["stdio"], web["http"]) == (SHOWN_STDIO, SHOWN_HTTP)
        assert unchanged == before
        assert renamed is not None
        assert renamed.body == {**before.records[0].body, "display_name": "Git"}


async def test_a_hidden_argument_is_found_again_where_others_moved() -> None:
    async with open_rest() as world:
        await world.seed(server=[stdio("git", stdio=STDIO)])
        shown = await world.get(f"{SERVERS}/git")
        shown["stdio"]["args"] = ["-v", "TOKEN=***", "--api-key", "***"]
        shown["stdio"]["env"] = {"MODE": "slow", "GITHUB_TOKEN": "***", "NEW": "value"}
        await world.put(f"{SERVERS}/git", shown)
        stored = await world.store.get("server", "git")

        assert stored is not None
        assert stored.body["stdio"] == {
            "command": "serve",
            "args": ["-v", f"TOKEN={CANARY}", "--api-key", CANARY],
            "env": {"MODE": "slow", "GITHUB_TOKEN": CANARY, "NEW": "value"},
        }


@pytest.mark.parametrize(
    "args",
    [
        pytest.param(["--note", "***"], id="behind a word that names no secret"),
        pytest.param(["***"], id="alone"),
        pytest.param(["--api-key", "x", "***"], id="behind the value of one"),
    ],
)
async def test_sec_1_a_hidden_value_cannot_be_moved_to_where_it_would_be_shown(args: list[str]) -> None:
    async with open_rest() as world:
        await world.seed(server=[stdio("git", stdio={"command": "serve", "args": ["--api-key", CANARY]})])
        draft = {
            "kind": "server",
            "id": "git",
            "body": stdio("git", stdio={"command": "serve", "args": args}),
        }
        planned = await world.request("POST", "/admin/api/plan", draft, key=secret_of("viewer"))
        put = await world.request("PUT", f"{SERVERS}/git", draft["body"])

        assert error_of(planned) == (400, "invalid_record")
        assert error_of(put) == (400, "invalid_record")
        assert CANARY not in planned.text + put.text


async def test_two_secrets_never_change_places() -> None:
    args = ["--api-key", "one", "--password", "two", "--token", "three", "--token", "four"]
    async with open_rest() as world:
        await world.seed(server=[stdio("git", stdio={"args": args})])
        shown = await world.get(f"{SERVERS}/git")
        shown["stdio"]["args"] = ["--password", "***", "--api-key", "***"]
        await world.put(f"{SERVERS}/git", shown)
        stored = await world.store.get("server", "git")

        assert stored is not None
        assert stored.body["stdio"]["args"] == ["--password", "two", "--api-key", "one"]


@pytest.mark.parametrize(
    ("launch", "where"),
    [
        pytest.param({"env": {"OTHER_TOKEN": "***"}}, "stdio.env.OTHER_TOKEN", id="another name"),
        pytest.param({"env": {"MODE": "***"}}, "stdio.env.MODE", id="a value that is not hidden"),
        pytest.param({"env": {"GITHUB_TOKEN": "x***"}}, "stdio.env.GITHUB_TOKEN", id="more than the mask"),
        pytest.param({"args": ["KEY=***"]}, "stdio.args[0]", id="no value looks like it"),
        pytest.param({"args": ["--token", "***"]}, "stdio.args[1]", id="two values could be meant"),
        pytest.param({"cwd": "/***"}, "stdio.cwd", id="a field that never hides anything"),
    ],
)
async def test_a_mask_that_hides_nothing_is_refused_and_never_stored(
    launch: dict[str, Any], where: str
) -> None:
    stored = {
        "args": ["--api-key", CANARY, "--password", "other"],
        "env": {"GITHUB_TOKEN": CANARY, "MODE": "a"},
    }
    async with open_rest() as world:
        await world.seed(server=[stdio("git", stdio=stored)])
        response = await world.request("PUT", f"{SERVERS}/git", stdio("git", stdio=launch))
        fresh = await world.request("POST", SERVERS, stdio("new", stdio={"env": {"GITHUB_TOKEN": "***"}}))

        assert error_of(response) == (400, "invalid_record")
        assert response.json()["error"]["message"].startswith(f"`{where}`: `***` is the mask of a secret")
        assert error_of(fresh) == (400, "invalid_record")
        assert world.store.revision == 2


@pytest.mark.parametrize("args", [[1, "***"], [{"a": "***"}], {"0": "***"}, "***", [["***"]]], ids=str)
async def test_a_mask_in_what_is_no_list_of_arguments_is_refused_too(args: Any) -> None:
    async with open_rest() as world:
        await world.seed(server=[stdio("git", stdio={"args": ["--token", CANARY]})])
        response = await world.request("PUT", f"{SERVERS}/git", stdio("git", stdio={"args": args}))

        assert error_of(response) == (400, "invalid_record")
        assert world.store.revision == 2


async def test_stars_outside_of_secrets_are_what_they_say() -> None:
    async with open_rest() as world:
        response = await world.post(SERVERS, http("git", display_name="***", allowed_tools=["***"]))

        assert (response["server"]["display_name"], response["server"]["allowed_tools"]) == ("***", ["***"])


@pytest.mark.requirement("002-001", "002-043")
async def test_sec_6_a_reference_is_shown_as_a_reference_and_never_resolved_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TOOLGATE_TEST_SECRET", CANARY)
    async with open_rest() as world:
        env = {"GITHUB_TOKEN": "${ENV:TOOLGATE_TEST_SECRET}"}
        response = await world.request("POST", SERVERS, stdio("git", stdio={"env": env}))

        assert response.json()["server"]["stdio"]["env"] == env
        assert CANARY not in response.text


async def test_sec_9_the_last_words_of_a_server_are_shown_without_what_looks_like_a_secret() -> None:
    token = "ghp_" + "a" * 36

    async def fail() -> None:
        raise StartFailed(f"401 for {token}")

    net = MemoryNet(bad=MemoryServer(on_start=fail))
    async with open_rest(net) as world:
        await world.seed(server=[stdio("git"), stdio("bad", prewarm=True)])
        net["git"].complain(b"noise " * 1_000 + f"using {token}".encode())
        texts = [
            (await world.request("GET", f"{SERVERS}/git")).text,
            (await world.request("GET", f"{SERVERS}/bad")).text,
            (await world.request("POST", f"{SERVERS}/bad/test")).text,
        ]
        alone = (await world.get(f"{SERVERS}/git"))["health"]["stderr_tail"]
        among = (await world.get(SERVERS))["servers"][1]["health"]["stderr_tail"]

        assert [text for text in texts if token in text] == []
        assert (len(alone) > 6_000, alone.endswith("using ***")) == (True, True)
        assert (len(among) <= 1_024, among.endswith("using ***")) == (True, True)


TOKEN = "kJ8sQ2pLx0VbN7mZ"


async def test_sec_1_a_bare_positional_token_is_masked_wherever_its_record_is_shown() -> None:
    launch = {"command": "serve", "args": ["--stdio", TOKEN, "/srv/data"], "env": {"SEED": TOKEN}}
    async with open_rest() as world:
        first = await world.request("PUT", f"{SERVERS}/git", stdio("git", stdio=launch))
        shown = await world.get(f"{SERVERS}/git")
        again = await world.request("PUT", f"{SERVERS}/git", {**shown, "display_name": "Git"})
        moved = {**shown["stdio"], "args": ["/srv/data", "***"]}
        await world.put(f"{SERVERS}/git", {**shown, "stdio": moved})
        stored = await world.store.get("server", "git")
        plan = await world.request(
            "POST", "/admin/api/plan", {"changes": [{"kind": "server", "id": "git", "body": stdio("git")}]}
        )
        texts = [first.text, again.text, plan.text, str(shown), str(world.audited)]
        texts += [
            (await world.request("GET", path)).text
            for path in (SERVERS, f"{SERVERS}/git/history", "/admin/api/lint", f"{SERVERS}/git/server.json")
        ]

    assert shown["stdio"]["args"] == ["--stdio", "***", "/srv/data"]
    assert shown["stdio"]["env"] == {"SEED": "***"}
    assert stored is not None
    assert stored.body["stdio"]["args"] == ["/srv/data", TOKEN]
    assert stored.body["stdio"]["env"] == {"SEED": TOKEN}
    assert "`stdio.args[1]`: the record contains a secret" in first.text
    assert [text for text in texts if TOKEN in text] == []


async def test_lint_names_literals_that_may_be_secrets_and_are_shown() -> None:
    hook = "https://mcp.example/s/NWVmYjg0YjctZGQ1Yi00/mcp"
    async with open_rest() as world:
        await world.seed(
            server=[
                stdio("git", stdio={"args": ["--stdio", "kX9mP2vL", TOKEN], "env": {"MODE": "Tr0ub4dor&3"}}),
                http("web", http={"url": hook, "headers": {"X-Mode": "kX9mP2vL"}}),
                stdio("tidy", stdio={"args": ["-y", "@scope/server@1.2.3", "${ENV:KX9MP2VL}"]}),
            ]
        )
        findings = (await world.get("/admin/api/lint"))["findings"]

    found = [(one["id"], one["rule"]) for one in findings if one["code"] == "possible_secret"]
    assert found == [
        ("git", "stdio.args[1]"),
        ("git", "stdio.env.MODE"),
        ("web", "http.headers.X-Mode"),
        ("web", "http.url"),
    ]
    assert "kX9mP2vL" not in str(findings)
