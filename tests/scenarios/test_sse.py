"""The transport of 2024 at a real gateway: over real connections, to the end of either side."""

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from signal import SIGTERM
from typing import Any

import httpx2

from tests.eventually import eventually, eventually_equal
from tests.scenarios.clients import error_of
from tests.scenarios.gateway import Gateway, Site, running
from tests.scenarios.stage_sse import open_sse_stage

JSON_RPC = {"jsonrpc": "2.0"}


@dataclass
class SseClient:
    """A client whose stream is open."""

    http: httpx2.Client
    lines: Iterator[str]
    endpoint: str

    def post(self, **message: Any) -> int:
        return self.http.post(self.endpoint, json=JSON_RPC | message).status_code

    def respond(self) -> Any:
        """The next answer on the stream; notifications are passed over."""
        for line in self.lines:
            if line.startswith("data: ") and "id" in (message := json.loads(line.removeprefix("data: "))):
                return message
        return None

    def call(self, number: int, name: str, **arguments: Any) -> int:
        return self.post(id=number, method="tools/call", params={"name": name, "arguments": arguments})


@contextmanager
def connected(gateway: Gateway, path: str) -> Iterator[SseClient]:
    with gateway.http.stream("GET", path, headers={"accept": "text/event-stream"}) as stream:
        lines = stream.iter_lines()
        event, data = next(lines), next(lines)
        assert (stream.status_code, event) == (200, "event: endpoint")
        yield SseClient(gateway.http, lines, data.removeprefix("data: "))


def test_sco_12_a_stream_serves_the_tools_of_its_url_and_no_others(site: Site) -> None:
    site.place(site.stage("one"))
    with running(site) as gateway, connected(gateway, "/api/mcp?tools=one.echo") as client:
        statuses = [client.call(1, "one.echo", text="hello"), client.call(2, "one.pid")]
        responses = {response["id"]: response for response in (client.respond(), client.respond())}

        assert statuses == [202, 202]
        assert responses[1]["result"]["content"][0]["text"] == "hello"
        assert responses[2]["error"]["code"] == -32602


def test_shu_3_a_call_under_way_on_a_stream_is_answered_before_the_gateway_stops(
    site: Site, tmp_path: Path
) -> None:
    site.place(site.stage("one"))
    go = tmp_path / "go"
    with running(site) as gateway:
        with connected(gateway, "/api/mcp") as client:
            client.call(1, "one.echo", text="warm")
            assert client.respond()["id"] == 1
            client.call(2, "one.wait", path=str(go), text="done")
            gateway.signal(SIGTERM)
            go.touch()
            last = client.respond()
            rest = client.respond()

        assert last["result"]["content"][0]["text"] == "done"
        assert rest is None
        assert gateway.wait() == 0
        gateway.check_stopped()


def test_a_client_that_goes_away_leaves_no_stream_behind(site: Site) -> None:
    site.place(site.stage("one"))
    with running(site) as gateway:
        with connected(gateway, "/api/mcp") as client:
            client.call(1, "one.hang")
        eventually(lambda: "toolgate_streams 0.0" in gateway.http.get("/metrics").text)

        assert client.post(id=2, method="ping") == 404


def test_ups_a_server_of_the_old_transport_comes_back_after_a_restart(site: Site) -> None:
    with ExitStack() as first:
        url = first.enter_context(open_sse_stage())
        site.place(site.server("far", transport="http_sse_legacy", http={"url": url}))
        with running(site) as gateway:
            client = gateway.modern("/api/mcp?tools=far.add")
            eventually_equal(client.tools, ["far.add"])
            assert client.text("far.add", a=2, b=3) == "5"
            first.close()
            eventually_equal(lambda: error_of(client.call("far.add", a=2, b=3)), "mcp_unavailable")
            with open_sse_stage(int(httpx2.URL(url).port or 0)):
                eventually(lambda: client.call("far.add", a=2, b=3)["result"].get("isError") is not True)

                assert client.text("far.add", a=20, b=3) == "23"
