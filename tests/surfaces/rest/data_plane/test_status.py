"""Whether the gateway serves, why not, and to whom it says what of its servers."""

import pytest

from tests.surfaces.rest_world import open_rest, secret_of
from toolgate.audit.events import CredentialRefused
from toolgate.audit.log.files import EncodedLines
from toolgate.audit.log.writer import AuditLog
from toolgate.errors import ControlUnavailable, PolicyStale
from toolgate.govern.process import Readiness, ReadinessCondition

pytestmark = pytest.mark.anyio


async def test_health_and_metrics_tell_what_is_served() -> None:
    async with open_rest() as world:
        await world.seed(server=[{"server_id": "git", "transport": "stdio", "stdio": {"command": "serve"}}])
        health = await world.get("/healthz", key=secret_of("viewer"))
        other = await world.get("/healthz", key=secret_of("agent"))
        metrics = await world.request("GET", "/metrics")
        head = await world.request("HEAD", "/healthz")

        assert {**health, "version": "…"} == {
            "status": "ok",
            "reasons": [],
            "version": "…",
            "revision": 2,
            "servers": {"connected": 1},
            "uptime_s": 0.0,
        }
        assert other == {**health, "servers": None}
        assert metrics.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert "# TYPE mcp_tool_call_total counter" in metrics.text
        assert head.status_code == 200


async def test_strangers_learn_whether_it_serves_and_nothing_of_servers() -> None:
    async with open_rest(trusts_local=False) as world:
        await world.seed(server=[{"server_id": "git", "transport": "stdio", "stdio": {"command": "serve"}}])
        health, ready = await world.get("/healthz"), await world.get("/readyz")

        assert (health["status"], health["servers"]) == ("ok", None)
        assert ready == {"status": "ready", "reasons": [], "revision": 2}


async def test_health_and_readiness_give_their_reasons_and_what_to_do() -> None:
    lost, stale = ReadinessCondition.of(ControlUnavailable), ReadinessCondition.of(PolicyStale, blocks=True)
    standing = [Readiness()]
    async with open_rest(sync_readiness=lambda: standing[-1]) as world:
        responses = []
        for one in (Readiness(), Readiness((lost,)), Readiness((stale, lost))):
            standing.append(one)
            responses.append((await world.request("GET", "/readyz"), await world.get("/healthz")))

        received = [{"code": one.code, "hint": one.hint} for one in (stale, lost)]
        assert [ready.status_code for ready, _ in responses] == [200, 200, 503]
        assert [ready.json() for ready, _ in responses] == [
            {"status": "ready", "reasons": [], "revision": 1},
            {"status": "ready", "reasons": [], "revision": 1},
            {"status": "not_ready", "reasons": received[:1], "revision": 1},
        ]
        assert [health["status"] for _, health in responses] == ["ok", "degraded", "degraded"]
        assert [health["reasons"] for _, health in responses] == [[], received[1:], received]
        assert all(one["hint"] for one in received)


async def test_a_gateway_that_cannot_write_its_audit_says_so_and_is_not_ready_once_it_holds_too_much() -> (
    None
):
    async with open_rest() as world:
        audit = world.control.gateway.audit
        sink = _BrokenSink()
        broken = AuditLog(sink)
        world.control.gateway.audit = broken
        responses = []
        broken.record(CredentialRefused(at_ms=1, peer="", code=""))
        broken.flush()
        responses.append((await world.request("GET", "/readyz"), await world.get("/healthz")))
        while not broken.is_full:
            broken.record(CredentialRefused(at_ms=1, peer="x" * 100_000, code=""))
        responses.append((await world.request("GET", "/readyz"), await world.get("/healthz")))
        sink.is_broken = False
        broken.close()
        world.control.gateway.audit = audit

        assert [ready.status_code for ready, _ in responses] == [200, 503]
        assert [[one["code"] for one in health["reasons"]] for _, health in responses] == [
            ["audit_unwritable"],
            ["audit_unwritable"],
        ]


class _BrokenSink:
    """A disk that is full until it is not."""

    is_broken = True

    def write(self, lines: EncodedLines) -> None:
        if self.is_broken:
            raise OSError("no space left on device")

    def close(self) -> None:
        """Nothing is open."""
