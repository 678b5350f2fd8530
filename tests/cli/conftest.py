"""The command line as a test uses it: a gateway, fake or not, and one call that runs a command."""

import json
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pytest

from tests.cli.fake_gateway import FakeGateway, open_fake_gateway
from tests.cli.processes import running
from toolgate.cli import main


class Ran(NamedTuple):
    """What a command left: its exit code and what it printed."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """The output without the blanks that fill a table's lines up."""
        return [line.rstrip() for line in self.out.splitlines()]

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., Ran]


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeGateway]:
    with open_fake_gateway() as found:
        monkeypatch.setenv("TOOLGATE_URL", found.url)
        yield found


@pytest.fixture
def run(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Run:
    monkeypatch.setenv("COLUMNS", "80")
    # A developer's own contexts must not reach the tests.
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path_factory.mktemp("config")))
    monkeypatch.delenv("TOOLGATE_CONTEXT", raising=False)
    monkeypatch.delenv("TOOLGATE_KEY", raising=False)

    def run_command(*words: str) -> Ran:
        try:
            code = main(words)
        except SystemExit as exc:
            code = int(exc.code or 0)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run_command


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a gateway that runs, may start any program, and has no record."""
    data = tmp_path_factory.mktemp("data")
    config = data / "settings.toml"
    config.write_text('allowed_commands = ["*"]\n', "utf-8")
    with running("up", "--listen", "127.0.0.1:0", "--data", str(data), "--config", str(config)) as (_, shown):
        yield shown["url"]
