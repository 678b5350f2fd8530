"""Imports of servers over REST: files of other programs, previewed, stored as one transaction or refused."""

from typing import Final

import pytest

from tests.surfaces.rest_world import (
    SERVERS,
    error_of,
    http,
    open_rest,
    stdio,
)
from toolgate.govern.operator_policy import OperatorPolicy

pytestmark = pytest.mark.anyio

IMPORT: Final = f"{SERVERS}/import"

OFFICIAL: Final = {
    "name": "io.github.ada/weather",
    "title": "Weather",
    "packages": [
        {
            "registryType": "npm",
            "identifier": "@ada/weather",
            "version": "1.2.3",
            "transport": {"type": "stdio"},
            "environmentVariables": [{"name": "API_KEY", "isSecret": True, "isRequired": True}],
        }
    ],
}


@pytest.mark.requirement("002-086")
async def test_servers_of_other_programs_are_imported_in_one_transaction_and_offer_nothing_yet() -> None:
    content = {
        "mcpServers": {
            "Git Hub": {"command": "serve", "env": {"T": "${T}"}},
            "b": {"url": "https://b.example/"},
        }
    }
    async with open_rest() as world:
        dry = await world.post(IMPORT, {"content": content, "dry_run": True})
        done = await world.post(IMPORT, {"content": content})
        again = await world.post(IMPORT, {"content": content})
        stored = {one.id: one.body for one in (await world.store.list("server")).records}

        assert dry["servers"] == done["servers"] == ["git-hub", "b"]
        assert dry["changes"] == done["changes"]
        assert (dry["revision"], done["revision"], again["revision"]) == (1, 2, 2)
        assert again["changes"] == []
        assert stored["git-hub"]["stdio"]["env"] == {"T": "${ENV:T}"}
        assert "allowed_tools" not in stored["b"]


async def test_an_official_server_json_becomes_a_record_and_its_secrets_references() -> None:
    async with open_rest() as world:
        bundle = {
            "name": "x/bundle",
            "packages": [{"registryType": "mcpb", "identifier": "https://x.example/a"}],
        }
        response = await world.post(IMPORT, {"content": [OFFICIAL, bundle], "allowed_tools": ["get_*"]})
        shown = await world.get(f"{SERVERS}/weather")

        assert response["servers"] == ["weather"]
        assert response["skipped"] == [
            {"name": "x/bundle", "reason": "packages of type `mcpb` are not supported"}
        ]
        assert (shown["display_name"], shown["allowed_tools"]) == ("Weather", ["get_*"])
        assert shown["stdio"]["command"] == "npx"
        assert shown["stdio"]["args"] == ["-y", "@ada/weather@1.2.3"]
        assert shown["stdio"]["env"] == {"API_KEY": "${ENV:API_KEY}"}


async def test_a_file_of_our_own_is_imported_as_text_and_what_is_allowed_stays_so() -> None:
    text = 'server_id = "git"\ntransport = "stdio"\n[stdio]\ncommand = "serve"\nargs = ["-v"]\n'
    async with open_rest() as world:
        await world.seed(server=[stdio("git", allowed_tools=["log"])])
        response = await world.post(IMPORT, {"content": text, "allowed_tools": []})
        stored = await world.store.get("server", "git")

        assert [one["operation"] for one in response["changes"]] == ["changed"]
        assert stored is not None
        assert (stored.body["stdio"]["args"], stored.body["allowed_tools"]) == (["-v"], ["log"])


async def test_what_a_file_lists_or_hides_is_not_widened_by_the_patterns_of_an_import() -> None:
    content = {
        "mcpServers": {
            "open": {"command": "serve"},
            "listed": {"command": "serve", "includeTools": ["log"]},
            "hidden": {"command": "serve", "disabledTools": ["reset"]},
            "known": {"command": "serve", "disabledTools": ["reset"]},
        }
    }
    async with open_rest() as world:
        await world.seed(server=[stdio("known", allowed_tools=["log"])])
        response = await world.post(IMPORT, {"content": content, "allowed_tools": ["*"]})
        stored = {one.id: one.body for one in (await world.store.list("server")).records}

        assert {name: body.get("allowed_tools", []) for name, body in stored.items()} == {
            "hidden": [],
            "known": ["log"],
            "listed": ["log"],
            "open": ["*"],
        }
        assert response["warnings"] == [
            "`hidden`: the file hides `reset`, a record lists what it shows: set `allowed_tools`",
            "`known`: the file hides `reset`, a record lists what it shows: set `allowed_tools`",
        ]


@pytest.mark.requirement("002-085")
async def test_an_import_passes_the_checks_of_saving_or_changes_nothing() -> None:
    content = {"mcpServers": {"good": {"command": "serve"}, "evil": {"command": "sh"}}}
    async with open_rest(operator_policy=OperatorPolicy(allowed_commands=("serve",))) as world:
        before = await world.store.list()
        refused = await world.request("POST", IMPORT, {"content": content})
        nothing = await world.request("POST", IMPORT, {"content": {"a": 1}})
        broken = await world.request("POST", IMPORT, {"content": "= = ="})

        assert [error_of(one) for one in (refused, nothing, broken)] == [(400, "invalid_record")] * 3
        assert await world.store.list() == before


async def test_an_import_can_leave_out_what_cannot_be_stored_and_says_why() -> None:
    content = {
        "mcpServers": {"good": {"command": "serve"}, "evil": {"command": "sh"}, "b": {"command": "serve"}}
    }
    sent = {"content": content, "skip_invalid": True, "only": ["good", "evil"]}
    async with open_rest(
        operator_policy=OperatorPolicy(allowed_commands=("serve",), requires_plan=True)
    ) as world:
        dry = await world.post(IMPORT, {**sent, "dry_run": True})
        unplanned = await world.request("POST", IMPORT, sent)
        done = (await world.request("POST", IMPORT, sent, toolgate_plan=dry["plan"])).json()
        stored = [one.id for one in (await world.store.list("server")).records]

        assert dry["servers"] == ["good", "evil", "b"]
        assert [one["name"] for one in dry["skipped"]] == ["evil"]
        assert "the operator does not allow this gateway to start `sh`" in dry["skipped"][0]["reason"]
        assert [one["id"] for one in dry["changes"]] == ["good"]
        assert (dry["effect"]["id"], dry["effect"]["unlisted"]) == (dry["plan"], ["good"])
        assert error_of(unplanned) == (428, "plan_required")
        assert (done["skipped"], done["effect"], stored) == (dry["skipped"], None, ["good"])


async def test_a_server_may_be_called_import_all_the_same() -> None:
    async with open_rest() as world:
        put = await world.request("PUT", IMPORT, http("import"))
        read = await world.get(IMPORT)
        patched = await world.request("PATCH", IMPORT)

        assert put.status_code == 201
        assert read["server_id"] == "import"
        assert error_of(patched) == (405, "method_not_allowed")


async def test_a_dry_run_of_an_import_returns_what_was_sent_as_records() -> None:
    content = {"mcpServers": {"Git Hub": {"command": "serve", "env": {"TOKEN": "s3cret", "URL": "${HOST}"}}}}
    async with open_rest() as world:
        sent = {"content": content, "dry_run": True}
        planned = await world.post(f"{SERVERS}/import", sent)
        stored = await world.post(f"{SERVERS}/import", {"content": content})

        (record,) = planned["records"]
        assert record["server_id"] == "git-hub"
        assert record["stdio"]["env"] == {"TOKEN": "s3cret", "URL": "${ENV:HOST}"}
        assert stored["records"] == []
