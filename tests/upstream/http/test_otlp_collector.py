"""How exports interpret the responses of an OTLP collector."""

import pytest

from tests.scenarios.collector import open_collector
from toolgate.telemetry.spans import ExportRejected
from toolgate.upstream.http.fetch import OTLP_LOGS_PATH, OTLP_TRACES_PATH, OtlpCollector

pytestmark = pytest.mark.anyio


async def test_what_is_taken_comes_with_the_headers_and_the_type_of_otlp() -> None:
    with open_collector() as collector:
        await OtlpCollector(collector.url, {"Authorization": "Bearer x"}).send(OTLP_TRACES_PATH, b"")
    [headers] = collector.headers

    assert (headers["authorization"], headers["content-type"]) == ("Bearer x", "application/x-protobuf")


@pytest.mark.parametrize(
    ("status", "may_retry"),
    [(400, False), (401, False), (404, False), (429, True), (503, True), (500, False)],
)
async def test_a_status_decides_whether_an_export_may_be_retried(status: int, may_retry: bool) -> None:
    with open_collector() as collector:
        collector.status = status
        with pytest.raises(ExportRejected, match=f"/v1/logs` responded with status {status}") as refused:
            await OtlpCollector(collector.url, {}).send(OTLP_LOGS_PATH, b"")

    assert (refused.value.status, refused.value.may_retry) == (status, may_retry)


async def test_one_that_is_not_there_may_come_back() -> None:
    with pytest.raises(ExportRejected) as refused:
        await OtlpCollector("http://127.0.0.1:1", {"Authorization": "Bearer s3cret"}).send(
            OTLP_TRACES_PATH, b""
        )

    assert (refused.value.status, refused.value.may_retry) == (None, True)
    assert "s3cret" not in str(refused.value)
