"""How a child is started: its environment, its protocol revision, and the error if it does not start."""

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.eventually import eventually_async
from tests.upstream.stdio_stage import (
    Listener,
    call,
    command,
    faulty,
    is_alive,
    open_link,
    open_opener,
)
from toolgate.model.servers import ServerRecord
from toolgate.model.tools import Revision
from toolgate.upstream.connection.contract import ServerInfo, StartFailed
from toolgate.upstream.connection.secrets import BASE_ENVIRONMENT, NETWORK_ENVIRONMENT
from toolgate.upstream.stdio.connector import StdioConnector

pytestmark = pytest.mark.anyio
# For what takes seconds and does not depend on the loop.
on_one_loop = pytest.mark.parametrize("anyio_backend", [("asyncio", {"use_uvloop": True})], ids=["uvloop"])


@pytest.fixture(params=["asyncio", "uvloop"])
def anyio_backend(request: pytest.FixtureRequest) -> tuple[str, dict[str, bool]]:
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


async def failure_of(
    opener: StdioConnector, record: ServerRecord, known_revision: Revision | None = None
) -> tuple[Any, ...]:
    with pytest.raises(StartFailed) as caught:
        await opener(record, Listener(), known_revision=known_revision)
    return str(caught.value), caught.value.state, caught.value.fatal


def methods(log: Path) -> list[str]:
    return [json.loads(line)["method"] for line in log.read_text().splitlines()]


async def test_a_legacy_server_is_greeted_by_the_handshake(tmp_path: Path) -> None:
    async with open_link(faulty(f"log={tmp_path / 'log'}")) as link:
        info, pid = link.server_info, await call(link, "pid")

        assert link.pid == pid
    assert (info.revision, info.version, info.instructions) == ("legacy", "2025-11-25", "be kind")
    assert info.announces("tools", "listChanged")
    assert methods(tmp_path / "log")[:3] == ["server/discover", "initialize", "notifications/initialized"]


async def test_a_stateless_server_is_probed_once(tmp_path: Path) -> None:
    async with open_link(faulty("modern", f"log={tmp_path / 'log'}")) as link:
        await call(link, "pid")
        info = link.server_info

    assert (info.revision, info.version, set(info.capabilities)) == ("modern", "2026-07-28", {"tools"})
    assert methods(tmp_path / "log") == ["server/discover", "tools/call"]


async def test_a_server_known_to_be_legacy_is_not_probed_and_one_that_has_become_modern_is_noticed(
    tmp_path: Path,
) -> None:
    async with open_opener() as opener:
        for words in ((), ("modern",)):
            record = faulty(f"log={tmp_path / '-'.join(('log', *words))}", *words)
            link = await opener(record, Listener(), known_revision="legacy")
            await link.aclose()

    assert methods(tmp_path / "log") == ["initialize", "notifications/initialized"]
    assert methods(tmp_path / "log-modern") == ["initialize", "server/discover"]


@on_one_loop
@pytest.mark.parametrize(("words", "era"), [((), "legacy"), (("modern",), "modern")])
async def test_a_slow_starter_is_not_mistaken_for_the_other_era(
    words: tuple[str, ...], era: Revision
) -> None:
    async with open_link(faulty("slow=2.3", *words)) as link:
        assert link.server_info.revision == era
        assert await call(link, "echo", text="ready") == "ready"


async def test_a_server_that_dies_of_the_probe_is_begun_with_initialize_the_next_time() -> None:
    record = faulty("only-initialize")
    async with open_opener() as opener:
        first = await failure_of(opener, record)
        link = await opener(record, Listener(), known_revision=None)
        info: ServerInfo = link.server_info
        await link.aclose()

    assert first == ("it exited with status 1: expected initialize", "list_failed", False)
    assert info.revision == "legacy"


async def test_chd_1_a_child_that_exits_at_once_says_so_and_is_started_once_a_try(tmp_path: Path) -> None:
    async with open_opener() as opener:
        failures = [await failure_of(opener, faulty("dies=7")) for _ in range(3)]

    assert failures == [("it exited with status 7", "list_failed", False)] * 3


@pytest.mark.parametrize("known_revision", [None, "legacy"])
async def test_chd_2_a_child_that_never_responds_is_killed_at_the_end_of_its_time(
    known_revision: Revision | None, tmp_path: Path
) -> None:
    pids = tmp_path / "pids"
    listener = Listener()
    async with open_opener(start_timeout_s=1.0) as opener:
        started = time.monotonic()
        with pytest.raises(StartFailed) as caught:
            await opener(faulty("silent", "deaf", f"pids={pids}"), listener, known_revision=known_revision)
        took_s = time.monotonic() - started
        await eventually_async(lambda: not (pids.exists() and is_alive(int(pids.read_text()))))

    assert str(caught.value) == "it did not finish its start within 1 s"
    assert (caught.value.state, caught.value.fatal) == ("list_timeout", False)
    assert took_s >= 1.0
    assert listener.closed == []


async def test_a_start_that_is_cancelled_leaves_nothing(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with open_opener() as opener:
        starting = asyncio.ensure_future(
            opener(faulty("silent", f"pids={pids}"), Listener(), known_revision=None)
        )
        await eventually_async(lambda: pids.exists() and bool(pids.read_text()))
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting

        assert not is_alive(int(pids.read_text()))


async def test_chd_13_a_command_that_cannot_be_started_is_fatal_with_its_reason(
    tmp_path: Path,
) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\n")
    no_interpreter = tmp_path / "no-interpreter"
    no_interpreter.write_text("#!/no/such/interpreter\n")
    no_interpreter.chmod(0o755)
    async with open_opener() as opener:
        failures = [
            await failure_of(opener, record)
            for record in (
                command("no-such-command"),
                command("/no/such/file"),
                command("python -m server"),
                command("./script", cwd=str(tmp_path)),
                command(str(no_interpreter)),
                command("sh", cwd="/no/such/directory"),
                command("sh", cwd=str(script)),
                command("sh", "a\0b"),
            )
        ]

    assert failures == [
        (message, "list_failed", True)
        for message in (
            "there is no command `no-such-command` on its PATH",
            "there is no file `/no/such/file`",
            "there is no command `python -m server` on its PATH; arguments go into `args`",
            "`./script` may not be executed: permission denied",
            f"`{no_interpreter}` names an interpreter that does not exist",
            "its working directory `/no/such/directory` cannot be entered: no such file or directory",
            f"its working directory `{script}` cannot be entered: not a directory",
            "`sh` could not be started: invalid argument",
        )
    ]


async def test_a_record_without_stdio_is_rejected() -> None:
    async with open_opener() as opener:
        failure = await failure_of(opener, ServerRecord(server_id="x", transport="stdio"))

    assert failure == ("its record has no `stdio` part", "list_failed", True)


@pytest.mark.requirement("000-40")
async def test_a_missing_variable_is_named_and_nothing_is_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    async with open_opener({}) as opener:
        failure = await failure_of(opener, faulty(f"pids={pids}", env={"TOKEN": "${ENV:NO_SUCH}"}))

    assert failure == ("environment variable `NO_SUCH` is not set", "env_missing", True)
    assert not pids.exists()


@pytest.mark.requirement("002-043", "002-062", "002-063")
async def test_references_are_resolved_wherever_a_record_may_hold_them(tmp_path: Path) -> None:
    environ = {"PATH": os.environ["PATH"], "WHERE": str(tmp_path), "WORD": "hello"}
    record = faulty(
        "${ENV:WORD}",
        cwd="${ENV:WHERE}",
        env={"GREETING": "${ENV:WORD}!", "OTHER": "${ENV:NOBODY_SET_IT:-spare}"},
        env_from=("WORD",),
    )
    async with open_link(record, environ=environ) as link:
        argv, cwd, env = [await call(link, name) for name in ("argv", "cwd", "env")]

    assert argv == ["hello"]
    assert cwd == str(tmp_path.resolve())
    expected = {"GREETING": "hello!", "OTHER": "spare", "WORD": "hello"}
    assert {name: env[name] for name in expected} == expected


async def test_chd_16_arguments_are_passed_literally() -> None:
    words = ("; touch x", "$(id)", "`id`", "a | b", "line\nend", "*", "~", "${HOME}", "", "é", '"', "'", "\\")
    async with open_link(faulty(*words)) as link:
        assert await call(link, "argv") == list(words)


async def test_sec_2_a_child_gets_the_base_list_and_what_its_record_declares_and_no_more() -> None:
    environ = {**os.environ, "TOOLGATE_ADMIN_KEY": "canary", "DECLARED": "yes", "OTHER": "canary"}
    async with open_link(faulty(env_from=("DECLARED",), env={"PLAIN": "1"}), environ=environ) as link:
        env = await call(link, "env")

    names = (*BASE_ENVIRONMENT, *NETWORK_ENVIRONMENT)
    base: dict[str, str] = {name: environ[name] for name in names if name in environ}
    # Python itself adds LC_CTYPE when the locale is the plain C one.
    env.pop("LC_CTYPE", None)
    assert env == base | {"DECLARED": "yes", "PLAIN": "1"}


async def test_a_child_gets_the_ca_and_proxy_variables_unless_its_record_says_otherwise() -> None:
    network = {
        "SSL_CERT_FILE": "/ca.pem",
        "NODE_EXTRA_CA_CERTS": "/ca.pem",
        "HTTPS_PROXY": "http://proxy:3128",
        "no_proxy": "localhost",
        "NPM_CONFIG_CAFILE": "/ca.pem",
    }
    own = {"https_proxy": "", "SSL_CERT_FILE": "/own.pem"}
    async with open_link(faulty(), environ=network) as link:
        inherited = await call(link, "env")
    async with open_link(faulty(env=own), environ=network) as link:
        declared = await call(link, "env")

    for env in (inherited, declared):
        env.pop("LC_CTYPE", None)
    del network["HTTPS_PROXY"]
    assert inherited == {**network, "HTTPS_PROXY": "http://proxy:3128"}
    assert declared == {**network, **own}


async def test_a_variable_of_a_record_takes_no_base_variable_of_another_case_away() -> None:
    environ = {"PATH": "/usr/bin", "HOME": "/home/ada", "USER": "ada"}
    async with open_link(faulty(env={"path": "/data", "user": "guest"}), environ=environ) as link:
        env = await call(link, "env")

    env.pop("LC_CTYPE", None)
    assert env == {**environ, "path": "/data", "user": "guest"}


async def test_the_password_of_a_proxy_is_in_nothing_that_a_child_writes_of_it() -> None:
    script = "import os, sys; sys.exit('no way to ' + os.environ['HTTPS_PROXY'] + ' with p@ss:word')"
    environ = {**os.environ, "HTTPS_PROXY": "http://ada:p%40ss%3Aword@proxy:3128"}
    listener = Listener()
    async with open_opener(environ) as opener:
        with pytest.raises(StartFailed) as failed:
            await opener(command(sys.executable, "-c", script), listener, known_revision=None)

    assert str(failed.value) == ("it exited with status 1: no way to http://[redacted]:3128 with [redacted]")
    assert b"word" not in listener.stderr


async def test_sec_3_a_secret_in_the_environment_is_in_no_command_line_nor_in_the_supervisors() -> None:
    """A secret in `args` would be in `ps`: records should use `env` (see `children`)."""
    async with open_link(
        faulty(env={"TOKEN": "${ENV:TOKEN}"}), environ={**os.environ, "TOKEN": "canary-73"}
    ) as link:
        status = (await call(link, "status")).splitlines()
        keeper = next(line.split()[1] for line in status if line.startswith("PPid"))
        warden = Path(f"/proc/{keeper}/stat").read_text().rpartition(")")[2].split()[1]
        shown = [
            Path(f"/proc/{pid}/{name}").read_bytes()
            for pid, name in [
                (link.pid, "cmdline"),
                *((pid, name) for pid in (keeper, warden) for name in ("cmdline", "environ")),
            ]
        ]

    assert [b"canary-73" in text for text in shown] == [False] * 5


async def test_sec_4_a_child_has_its_three_pipes_a_session_and_default_signals_and_nothing_else() -> None:
    async with open_link(faulty()) as first, open_link(faulty()) as second:
        for link in (first, second):
            lines: list[str] = (await call(link, "status")).splitlines()
            status = {name: value for name, _, value in (line.partition(":\t") for line in lines)}

            assert await call(link, "fds") == ["0", "1", "2"]
            assert await call(link, "leads") == [True, True]
            # The C library keeps signals 32 and 33 for itself: no one can set how they are handled.
            ignored = int(status["SigIgn"], 16) & ~(1 << 31 | 1 << 32)
            # Python ignores SIGPIPE (13) and SIGXFSZ (25) by itself.
            assert (ignored, int(status["SigBlk"], 16)) == (1 << 12 | 1 << 24, 0)
