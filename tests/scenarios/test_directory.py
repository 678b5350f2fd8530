"""The directory of server files under a gateway that runs: what is saved is served, what is wrong is not."""

import signal

import pytest

from tests.eventually import eventually, eventually_equal
from tests.scenarios.gateway import Site, running
from tests.scenarios.in_process import cli, run_here


@pytest.mark.requirement("002-056")
def test_files_that_come_change_and_go_change_the_tools_without_a_restart(site: Site) -> None:
    site.place(site.stage("one", "tools=echo,pid"))
    with running(site) as gateway:
        client = gateway.legacy()
        seen = [client.tools()]
        with client.changes() as changes:
            site.place(site.stage("two", "modern", "tools=pid"))
            next(changes)
            eventually_equal(client.tools, ["one.echo", "one.pid", "two.pid"])
        pid = gateway.health("one")["pid"]
        site.place(site.stage("one", "tools=echo,pid", allowed_tools=["pid"]))
        eventually_equal(client.tools, ["one.pid", "two.pid"])
        site.file("two").unlink()
        eventually_equal(client.tools, ["one.pid"])

        assert seen == [["one.echo", "one.pid"]]
        assert gateway.health("one")["pid"] == pid


def test_fil_8_a_broken_file_keeps_the_last_good_version_of_its_server_and_is_reported(site: Site) -> None:
    site.place(site.stage("good", "tools=pid"), site.stage("spoilt", "tools=echo"))
    with running(site) as gateway:
        client = gateway.modern()
        client.tools()
        site.file("spoilt").write_text('{"server_id": "spoilt",\n "transport": ', "utf-8")
        eventually(lambda: "spoilt.json:2" in gateway.log)
        site.place(site.stage("good", "tools=pid,echo"))
        eventually_equal(client.tools, ["good.echo", "good.pid", "spoilt.echo"])

        reloaded = cli(gateway, "reload", "--json")

        assert (reloaded.code, reloaded.json["kept"]) == (1, ["spoilt"])
        assert reloaded.json["problems"] == ["spoilt.json:2: is not JSON: Expecting value"]
        assert client.text("spoilt.echo", text="still here") == "still here"


@pytest.mark.requirement("002-056")
def test_sighup_reads_the_files_again_and_they_win_over_what_was_written_since(site: Site) -> None:
    record = site.stage("one", "tools=echo,pid", allowed_tools=["echo"])
    site.place(record)
    with running(site) as gateway:
        client = gateway.modern()
        gateway.put("/admin/api/mcp/servers/one", record | {"allowed_tools": ["pid"]})
        eventually_equal(client.tools, ["one.pid"])

        preview = cli(gateway, "reload", "--dry-run", "--json")
        after_preview = client.tools()
        gateway.signal(signal.SIGHUP)

        eventually_equal(client.tools, ["one.echo"])
        assert (preview.code, after_preview) == (0, ["one.pid"])
        assert [line.partition(":")[0] for line in preview.json["applied"]] == ["~ one (one.json)"]


def test_shu_5_a_strict_gateway_refuses_a_broken_file_whole_and_goes_on_as_before(site: Site) -> None:
    site.place(site.stage("one", "tools=pid"))
    with running(site, "--strict") as gateway:
        site.place(site.stage("one", "tools=pid") | {"allowed_toolz": []}, site.stage("two"))
        eventually(lambda: "servers not changed" in gateway.log)

        reloaded = cli(gateway, "reload", "--json")
        gateway.signal(signal.SIGHUP)
        eventually(lambda: "cannot reload the server files; the old records stay" in gateway.log)

        assert reloaded.code == 1
        assert "one.json" in reloaded.err
        assert "allowed_toolz" in reloaded.err
        assert gateway.modern().tools() == ["one.pid"]


def test_a_dry_run_before_the_start_shows_what_the_files_would_change_and_leaves_nothing_behind(
    site: Site,
) -> None:
    site.place(site.stage("one"))
    site.file("two").write_text("[]", "utf-8")

    _, *words = site.up("--dry-run", "--json")
    shown = run_here(words)

    assert (shown.code, len(shown.json["applied"])) == (1, 1)
    assert shown.json["problems"] == ["two.json:1: does not contain exactly one object"]
    assert not site.data.exists()
