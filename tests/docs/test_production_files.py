"""The files of the production guide are held against the code: limits, settings, commands, and each other."""

import re
import tomllib
from typing import Any

import pytest
import yaml

from tests.docs.documents import EXAMPLES, document
from tests.docs.test_links import is_command
from tests.docs.typed_guide import unit_settings
from toolgate.settings import NAMES, PREFIX, Settings
from toolgate.surfaces.http.connection import KEEP_ALIVE_S, MAX_BODY_BYTES, MAX_HEAD_BYTES
from toolgate.surfaces.http.messages import KEEPALIVE_S
from toolgate.surfaces.http.parsing import MAX_QUERY_BYTES
from toolgate.upstream.connection.contract import CALL_CEILING_S

FILES = EXAMPLES / "production"
UNITS = sorted(FILES.glob("*.service"))
STOP_STEPS_S = 6.0
"""Of a server: closing its input, SIGTERM and SIGKILL, with 2 s each."""


def size_of(text: str) -> int:
    """Bytes, as proxies write them: `64k`, `8m`."""
    number, unit = re.fullmatch(r"(\d+)([km]?)", text).groups()  # type: ignore[union-attr]
    return int(number) * {"": 1, "k": 1024, "m": 1024**2}[unit]


def directives(name: str, text: str) -> list[str]:
    """All values of a directive of nginx."""
    return re.findall(rf"^\s*{name}\s+(?:\d+ )?(\S+?);", text, re.MULTILINE)


def test_nginx_passes_on_all_that_toolgate_takes() -> None:
    text = (FILES / "nginx.conf").read_text("utf-8")
    servers = len(re.findall(r"^server \{", text, re.MULTILINE))

    assert [size_of(one) > MAX_BODY_BYTES for one in directives("client_max_body_size", text)] == [
        True
    ] * servers
    assert [size_of(one) >= MAX_HEAD_BYTES for one in directives("large_client_header_buffers", text)] == [
        True
    ] * servers
    assert [size_of(one) for one in directives("proxy_buffer_size", text)] == [16 * 1024] * servers
    assert directives("proxy_buffering", text) == ["off"] * servers
    timeouts_s = [float(one.removesuffix("s")) for one in directives("proxy_read_timeout", text)]
    assert [one > CALL_CEILING_S > KEEPALIVE_S for one in timeouts_s] == [True] * servers
    assert text.count("proxy_set_header Host $http_host;") == servers


def test_haproxy_passes_on_all_that_toolgate_takes() -> None:
    text = (FILES / "haproxy.cfg").read_text("utf-8")
    timeouts_s = {
        name: float(value) for name, value in re.findall(r"^\s*timeout (\S+) (\d+)s", text, re.MULTILINE)
    }
    [buffer] = re.findall(r"tune\.bufsize (\d+)", text)

    assert min(timeouts_s["client"], timeouts_s["server"]) > CALL_CEILING_S
    assert timeouts_s["http-keep-alive"] < KEEP_ALIVE_S
    assert int(buffer) >= MAX_HEAD_BYTES > MAX_QUERY_BYTES


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_starts_a_command_that_exists_with_a_file_that_is_there(path: Any) -> None:
    unit = unit_settings(path.read_text("utf-8"))
    program, *words = unit["ExecStart"].split()
    settings = words[words.index("--config") + 1]

    assert (program, is_command(words)) == ("/opt/toolgate/bin/toolgate", True)
    assert (FILES / settings.removeprefix("/etc/toolgate/")).is_file()
    # The signal goes to Toolgate alone, and it has the time that its own end may take.
    assert unit["KillMode"] == "mixed"
    assert float(unit["TimeoutStopSec"]) > Settings().drain_s + STOP_STEPS_S


def test_the_containers_are_the_units() -> None:
    services = yaml.safe_load((FILES / "compose.yaml").read_text("utf-8"))["services"]
    control, node = (
        tomllib.loads((FILES / f"{name}.toml").read_text("utf-8")) for name in ("control", "node")
    )
    aliases = {name: one["networks"]["default"]["aliases"] for name, one in services.items()}
    commands = {name: " ".join(one["command"]) for name, one in services.items()}
    units = {path.stem: unit_settings(path.read_text("utf-8"))["ExecStart"] for path in UNITS}

    assert aliases == {name: [f"{name}.example.com"] for name in services}
    assert {f"{name}.example.com:8090" for name in services if "control" in name} == set(node["control"])
    assert {f"{name}.example.com" for name in services} <= {*control["allowed_hosts"], *node["allowed_hosts"]}
    for name, command in commands.items():
        assert command == units[f"toolgate-{name.partition('-')[0]}"].removeprefix("/opt/toolgate/bin/")
        assert (
            float(services[name]["stop_grace_period"].removesuffix("s")) > Settings().drain_s + STOP_STEPS_S
        )


def test_every_variable_in_the_files_is_a_setting() -> None:
    guide = document("docs/how-to/production.md").text
    texts = [path.read_text("utf-8") for path in FILES.rglob("*") if path.is_file()]
    named = {name for text in (*texts, guide) for name in re.findall(rf"\b{PREFIX}([A-Z_]+)\b", text)}

    assert {name.lower() for name in named} <= {*NAMES, "key", "url"}
