"""What goes to a collector from a whole process; and that without one, nothing of OpenTelemetry is there."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.scenarios.collector import open_collector
from toolgate.app.observability import load_collector_headers
from toolgate.app.up import open_up
from toolgate.audit.events import CredentialRefused
from toolgate.errors import StartRefused
from toolgate.settings import OtlpSettings, Settings

pytestmark = pytest.mark.anyio

UNTRACED = """
import asyncio, sys
from pathlib import Path
import toolgate.app.control, toolgate.app.node
from toolgate.app.up import open_up
from toolgate.audit.events import CredentialRefused
from toolgate.settings import load_settings

async def serve():
    settings = load_settings(None, {}, {"data_dir": sys.argv[1], "listen": "127.0.0.1:0"})
    async with open_up(settings, {}) as app:
        assert app.gateway.tracer is None
    print([name for name in sys.modules if name.startswith("opentelemetry")])

asyncio.run(serve())
"""


def test_without_a_collector_nothing_of_opentelemetry_is_loaded(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", UNTRACED, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (ran.stdout.strip(), ran.returncode) == ("[]", 0), ran.stderr


async def test_what_a_process_writes_down_is_sent_as_log_records_over_restarts(tmp_path: Path) -> None:
    def settings(url: str) -> Settings:
        otlp = OtlpSettings(endpoint=url, traces=False, audit=True)
        return Settings(data_dir=tmp_path, listen="127.0.0.1:0", otlp=otlp)

    with open_collector() as collector:
        for number in range(2):
            async with open_up(settings(collector.url), {}) as app:
                assert app.gateway.tracer is None
                app.gateway.audit.record(CredentialRefused(1, "127.0.0.1", f"code_{number}"))
    found = [json.loads(record.body.string_value) for record in collector.logs]
    numbers = [one["seq"] for one in found]

    assert [one["code"] for one in found if "code" in one] == ["code_0", "code_1"]
    assert numbers == sorted(set(numbers))


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ("a=1,b=two%20words", {"a": "1", "b": "two words"}),
        (" Authorization = Bearer%20x ,", {"Authorization": "Bearer x"}),
    ],
)
def test_headers_come_as_the_standard_variable_has_them(headers: str, expected: dict[str, str]) -> None:
    otlp = OtlpSettings.model_validate({"endpoint": "https://c.example", "headers": headers})

    assert load_collector_headers(otlp) == expected
    assert "two" not in repr(otlp)
    assert "Bearer" not in repr(otlp)


def test_headers_come_from_a_file_a_line_each(tmp_path: Path) -> None:
    file = tmp_path / "headers"
    file.write_text("Authorization: Bearer a:b\n\nX-Team: one\n")
    otlp = OtlpSettings(endpoint="https://c.example", headers_file=file)

    assert load_collector_headers(otlp) == {"Authorization": "Bearer a:b", "X-Team": "one"}


@pytest.mark.parametrize("text", ["s3cret", "bad name: s3cret", "a: s3cr\x00et", "a: s3créet"])
def test_a_header_that_cannot_be_sent_is_refused_without_being_shown(tmp_path: Path, text: str) -> None:
    file = tmp_path / "headers"
    file.write_text(text, "utf-8")
    otlp = OtlpSettings(endpoint="https://c.example", headers_file=file)

    with pytest.raises(StartRefused) as refused:
        load_collector_headers(otlp)

    assert "s3cr" not in str(refused.value)
