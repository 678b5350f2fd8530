"""What outlives the process: writes that were acknowledged, legacy sessions, the numbers of the audit log."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import count
from typing import Any

import httpx2
import pytest

from tests.eventually import eventually
from tests.scenarios.clients import LegacyClient
from tests.scenarios.gateway import Gateway, Site, running
from tests.scenarios.soak import rounds
from tests.scenarios.tally import wait_listed

KILLS = rounds(suite=3, soak=100)
WRITERS = 4


class Journal:
    """Writes tasks, each once, and remembers what was sent and what was acknowledged."""

    def __init__(self) -> None:
        self._numbers = count()
        self._sent: dict[str, Any] = {}
        self._acknowledged: dict[str, int] = {}
        """Task to the revision of the answer."""

    def write_until_killed(self, gateway: Gateway, *, acknowledgements: int) -> None:
        """Kill the gateway after that many, in the middle of further writes."""
        newest = max(self._acknowledged.values(), default=0)
        wanted = len(self._acknowledged) + acknowledgements
        with ThreadPoolExecutor(WRITERS) as threads:
            writers = [threads.submit(self._write, gateway) for _ in range(WRITERS)]
            eventually(lambda: len(self._acknowledged) >= wanted)
            gateway.kill()
        revisions = [revision for writer in writers for revision in writer.result()]

        assert len(set(revisions)) == len(revisions)
        assert min(revisions) > newest

    def check(self, gateway: Gateway) -> None:
        """All that was acknowledged is there, and nothing that was not sent, whole."""
        stored = {task["task_id"]: task["config"] for task in gateway.get("/admin/api/tasks")["tasks"]}

        assert self._acknowledged.keys() <= stored.keys()
        assert {task_id: self._sent[task_id] for task_id in stored} == stored

    def _write(self, gateway: Gateway) -> list[int]:
        revisions: list[int] = []
        while True:
            task_id = f"t{next(self._numbers)}"
            self._sent[task_id] = {"mcp.tool_denylist": json.dumps([f"{task_id}-{n}" for n in range(10)])}
            body = {"task_id": task_id, "config": self._sent[task_id]}
            try:
                revision = gateway.put(f"/admin/api/tasks/{task_id}", body)["revision"]
            except httpx2.TransportError:
                return revisions
            self._acknowledged[task_id] = revision
            revisions.append(revision)


@pytest.mark.soak
def test_sto_1_every_acknowledged_write_survives_kill_9(site: Site) -> None:
    journal = Journal()
    for kill in range(KILLS):
        with running(site) as gateway:
            journal.check(gateway)
            journal.write_until_killed(gateway, acknowledgements=1 + 6 * (kill % 5))
    with running(site) as gateway:
        journal.check(gateway)


def test_rep_1_a_legacy_session_goes_on_after_a_restart_with_the_scope_it_was_opened_with(site: Site) -> None:
    site.place(site.stage("one", "tools=echo,pid"))
    with running(site) as first:
        before = first.legacy("/api/mcp?tools=one.echo")
        listed = before.tools()
    with running(site, listen=first.address) as second:
        after = LegacyClient(second.http, second.url + "/api/mcp", before.session)

        assert listed == after.tools() == ["one.echo"]
        assert after.text("one.echo", text="still here") == "still here"
        assert after.call("one.pid")["error"]["message"] == "Unknown tool: one.pid"


@contextmanager
def listening(
    gateway: Gateway, session: dict[str, str], seen: str = ""
) -> Iterator[tuple[str, Iterator[str]]]:
    """A session's stream: the id it opened with, and its lines from then on."""
    resumed = {"last-event-id": seen} if seen else {}
    headers = {"accept": "text/event-stream", **session, **resumed}
    with gateway.http.stream("GET", "/api/mcp", headers=headers) as response:
        lines = response.iter_lines()
        yield next(lines).removeprefix("id: "), lines


def next_event(lines: Iterator[str]) -> tuple[str, str]:
    """The id and the method of the next message."""
    event_id = ""
    for line in lines:
        if line.startswith("id: "):
            event_id = line.removeprefix("id: ")
        elif line.startswith("data: {"):
            return event_id, json.loads(line.removeprefix("data: "))["method"]
    raise AssertionError


def test_rep_1_a_stream_resumed_after_kill_9_gets_exactly_what_changed_meanwhile(
    site: Site,
) -> None:
    changed = "notifications/tools/list_changed"
    site.place(site.stage("one", "tools=echo,pid"))
    with running(site) as first:
        wait_listed(first, "one")
        client = first.legacy()
        with listening(first, client.session) as (before, _):
            first.kill()
    with running(site, listen=first.address) as second:
        wait_listed(second, "one")
        with listening(second, client.session, before) as (still, lines):
            site.place(site.stage("one", "tools=echo"))
            notified = next_event(lines)
        with listening(second, client.session) as (fresh, _):
            second.kill()
    site.place(site.stage("one", "tools=pid"))
    with (
        running(site, listen=first.address) as third,
        listening(third, client.session, fresh) as (_, lines),
    ):
        notified_at_once = next_event(lines)

    assert still == before
    assert notified == (fresh, changed)
    assert notified_at_once[1] == changed
    assert len({before, fresh, notified_at_once[0]}) == 3


def test_sco_14_the_session_of_another_installation_does_not_exist_here(
    site: Site, tmp_path_factory: pytest.TempPathFactory
) -> None:
    other = Site(tmp_path_factory.mktemp("other"))
    with running(site) as gateway, running(other) as stranger:
        client = gateway.legacy()

        response = stranger.http.post(
            "/api/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "ping"}, headers=client.session
        )

        assert (response.status_code, response.json()["error"]["data"]["code"]) == (404, "unknown_session")


def test_the_audit_log_goes_on_where_it_stopped(site: Site) -> None:
    site.place(site.stage("one", "tools=echo"))
    for text in ("first", "second"):
        with running(site) as gateway:
            gateway.modern().text("one.echo", text=text)
            gateway.modern().call("one.secret")

    lines = [json.loads(line) for line in (site.data / "audit.jsonl").read_text("utf-8").splitlines()]
    events = [line for line in lines if line["type"] != "seal"]

    assert [event["seq"] for event in events] == [*range(1, len(events) + 1)]
    assert [(event["tool"], event["outcome"]) for event in events if event["type"] == "call"] == [
        ("echo", "ok"),
        ("one.secret", "denied"),
        ("echo", "ok"),
        ("one.secret", "denied"),
    ]
