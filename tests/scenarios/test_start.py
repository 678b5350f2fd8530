"""Starts that would be unsafe or useless: refused at once, with what to do about it."""

import secrets
import socket
import sqlite3
from contextlib import closing

import pytest

from tests.eventually import eventually_equal
from tests.scenarios.gateway import Ran, Site, run, running
from tests.scenarios.in_process import run_here

REFUSED_WITHIN_S = 60.0
"""That includes the start of the interpreter, on a machine that is busy with other tests."""


def refusal(site: Site, listen: str = "127.0.0.1:0", **environ: str) -> Ran:
    """What comes of a start that does not get as far as a process is needed for."""
    _, *words = site.up(listen=listen)
    return run_here(words, **environ)


def test_adm_5_an_address_others_can_reach_needs_a_key(site: Site) -> None:
    refused = run(site.up(listen="0.0.0.0:0"), within_s=REFUSED_WITHIN_S)

    assert (refused.code, refused.out) == (1, "")
    assert refused.err == (
        "error: `0.0.0.0:0` is reachable from other machines and no key is configured\n"
        "  try: listen on 127.0.0.1, or put a key of 32 characters into a file "
        "and set `admin_key_file` to it\n"
    )


@pytest.mark.parametrize(
    "key", ["", "short", "a" * 64, "changeme" * 4], ids=["none", "short", "one letter", "default"]
)
def test_adm_5_a_key_that_can_be_guessed_is_refused(site: Site, key: str) -> None:
    file = site.root / "key"
    file.write_text(key, "utf-8")

    refused = refusal(site, "0.0.0.0:0", TOOLGATE_ADMIN_KEY_FILE=str(file))

    assert refused.code == 1
    assert refused.err == (
        f"error: `admin_key_file`: the key in `{file}` is too short or too simple\n"
        "  try: create a key: `python -c 'import secrets; print(secrets.token_urlsafe(32))'`\n"
    )


@pytest.mark.parametrize("files", [64, 128])
def test_a_start_with_too_few_open_files_is_refused_in_a_line_that_says_what_to_do(
    site: Site, files: int
) -> None:
    site.place(site.stage("one"))

    refused = run(["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh", *site.up()], within_s=REFUSED_WITHIN_S)

    assert (refused.code, refused.out) == (1, "")
    assert refused.err == (
        f"error: the limit of open files is {files}, and this process needs at least 256\n"
        "  try: raise the limit and start again: `ulimit -n 4096`, or `LimitNOFILE=4096` of systemd\n"
    )


def test_adm_7_with_a_good_key_it_starts_and_no_one_is_admin_without_it(site: Site) -> None:
    key = secrets.token_urlsafe(32)
    (site.root / "key").write_text(key + "\n", "utf-8")
    environ = {"TOOLGATE_ADMIN_KEY_FILE": str(site.root / "key")}
    site.place(site.stage("one", "tools=pid"))
    with running(site, listen="0.0.0.0:0", environ=environ) as gateway:
        responses = {
            "none": gateway.http.get("/admin/api/mcp/servers").status_code,
            "wrong": gateway.http.get(
                "/admin/api/mcp/servers", headers={"authorization": "Bearer " + key[::-1]}
            ).status_code,
            "right": gateway.http.get(
                "/admin/api/mcp/servers", headers={"authorization": "Bearer " + key}
            ).status_code,
        }
        (site.root / "wrong").write_text(key[::-1], "utf-8")

        assert responses == {"none": 401, "wrong": 401, "right": 200}
        assert gateway.modern().request("tools/list")["error"]["data"]["code"] == "unauthenticated"
        assert gateway.cli("tools", "--json").code == 3
        assert gateway.cli("tools", "--json", TOOLGATE_KEY=key).json["name"] == "one.pid"
        assert "set `allowed_hosts` to the names and addresses that clients use" in gateway.log


def test_a_port_that_is_taken_is_named(site: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"

        refused = refusal(site, address)

    assert refused.code == 1
    assert refused.err == (
        f"error: cannot listen on `{address}`: Address already in use\n"
        "  try: stop the other program, or choose another address with `--listen HOST:PORT`\n"
    )


def test_another_program_reads_the_catalog_while_the_gateway_runs(site: Site) -> None:
    site.place(site.stage("one", "tools=echo,pid"))
    named = "SELECT full_name FROM tool_catalog ORDER BY full_name"
    with running(site) as gateway:
        eventually_equal(lambda: gateway.health("one")["tools"], 2)
        uri = f"file:{site.data / 'registry.db'}?mode=ro"
        with closing(sqlite3.connect(uri, uri=True)) as reader:
            eventually_equal(lambda: reader.execute(named).fetchall(), [("one.echo",), ("one.pid",)])


def test_sto_5_a_second_gateway_on_the_same_data_is_refused_until_the_first_is_gone(site: Site) -> None:
    with running(site) as first:
        refused = run(site.up(), within_s=REFUSED_WITHIN_S)
        first.put("/admin/api/tasks/kept", {"task_id": "kept", "config": {}})
        first.kill()
        with running(site) as second:
            tasks = [task["task_id"] for task in second.get("/admin/api/tasks")["tasks"]]

    assert refused.code == 1
    assert refused.err == (
        f"error: `{site.data}` is in use by another Toolgate process ({first.pid})\n"
        "  try: stop that process, or set another data directory\n"
    )
    assert tasks == ["kept"]


def test_a_setting_that_makes_no_sense_is_named(site: Site) -> None:
    refused = refusal(site, "127.0.0.1")

    assert refused.code == 1
    assert refused.err == (
        "error: setting `listen`: invalid address `127.0.0.1`: write it as HOST:PORT\n"
        "  try: correct the setting named in the message\n"
    )


def test_sto_4_a_damaged_file_is_named_with_what_to_do(site: Site) -> None:
    site.data.mkdir()
    (site.data / "registry.db").write_bytes(b"damaged")

    refused = run(site.up(), within_s=REFUSED_WITHIN_S)

    assert refused.code == 1
    assert refused.err.startswith(f"error: `{site.data / 'registry.db'}` is not a registry, is damaged")
    assert "  try: restore the file from a backup" in refused.err


def test_a_directory_where_a_file_should_be_is_named(site: Site) -> None:
    (site.data / "audit.jsonl").mkdir(parents=True)

    refused = refusal(site)

    assert refused.code == 1
    assert f"`{site.data / 'audit.jsonl'}`: Is a directory" in refused.err
    assert "Traceback" not in refused.err


def test_a_database_is_not_passed_over_in_silence(site: Site) -> None:
    database = {"TOOLGATE_DATABASE": "postgresql://toolgate@db.example/toolgate"}
    refused = refusal(site, **database)

    assert refused.code == 1
    assert "cannot use the setting `database`" in refused.err
