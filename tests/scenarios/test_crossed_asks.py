"""What servers report and ask while calls run reaches the client of the call, and no other.

Clients of both eras and three principals call at the same time, with the same ids and progress tokens. Each
answers what it is asked with its own name: so the one that is asked shows in what comes back.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import uvloop

from tests.scenarios.askable import AskableClient, Message, Received
from tests.scenarios.gateway import Gateway, Site, running
from tests.scenarios.soak import rounds
from tests.scenarios.tally import open_tally_http, tally_child, wait_listed

ROUNDS = rounds(suite=4, soak=100)
WITHIN_S = rounds(suite=240, soak=1_800)
CLIENTS = 24
CERTAIN = ("child-modern", "http-legacy", "http-modern")
"""Of these every message says which call it is about."""
SHARED, OWN = "child-legacy", "child-own"
"""Of these it does not: one serves everyone, the other each session by itself."""
SERVERS = (*CERTAIN, SHARED, OWN)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    site = Site(tmp_path_factory.mktemp("asks"))
    with open_tally_http() as legacy, open_tally_http("modern") as modern:
        site.place(
            tally_child(site, "child-modern", "modern"),
            legacy.record(site, "http-legacy"),
            modern.record(site, "http-modern"),
            tally_child(site, SHARED),
            tally_child(site, OWN) | {"sharing": "per_session"},
        )
        with running(site) as gateway:
            wait_listed(gateway, *SERVERS)
            yield gateway


def make_clients(gateway: Gateway, *, can_respond: bool = True) -> list[AskableClient]:
    """Half of each era, in turn for three principals."""
    secrets = [None, *(make_key(gateway) for _ in range(2))]
    return [
        AskableClient(f"{era}-{n}", gateway.address, era, secrets[n % len(secrets)], can_respond)
        for n in range(CLIENTS // 2)
        for era in ("legacy", "modern")
    ]


def make_key(gateway: Gateway) -> str:
    keys = gateway.get("/admin/api/keys")["keys"]
    made = gateway.http.post("/admin/api/keys", json={"key_id": f"key-{len(keys)}", "role": "agent"})
    return str(made.raise_for_status().json()["secret"])


async def call_all(
    clients: Sequence[AskableClient], tool: str
) -> list[tuple[AskableClient, str, str, Received]]:
    """Every client calls the tool of every server, all in step: client, server, text, and what it heard."""
    received: list[tuple[AskableClient, str, str, Received]] = []

    async def work(client: AskableClient) -> None:
        await client.open()
        for n in range(ROUNDS):
            for server in SERVERS:
                text = f"{client.name}.{n}"
                found = await client.call(f"{server}.{tool}", text, number=n % 2, token="same")
                received.append((client, server, text, found))

    async with asyncio.timeout(WITHIN_S), asyncio.TaskGroup() as tasks:
        for client in clients:
            tasks.create_task(work(client))
    assert len(received) == len(clients) * len(SERVERS) * ROUNDS
    return received


@pytest.mark.soak
def test_sco_17_progress_reaches_its_own_client_however_tokens_collide(gateway: Gateway) -> None:
    received = uvloop.run(call_all(make_clients(gateway), "tell"))

    crossed = [
        (client.name, server, found)
        for client, server, text, found in received
        if found != Received(progress=[f"{text} {n}" for n in (1, 2, 3)], text=text)
    ]
    assert crossed == []


def is_certain(client: AskableClient, server: str) -> bool:
    """Whether it can be told which call a question is about; modern clients of a key share connections."""
    return server in CERTAIN or (server == OWN and client.era == "legacy")


@pytest.mark.soak
def test_sco_17_questions_reach_their_own_client_and_so_do_its_answers(gateway: Gateway) -> None:
    received = uvloop.run(call_all(make_clients(gateway), "ask"))

    crossed = [
        (client.name, server, found)
        for client, server, text, found in received
        if found != Received(questions=[text], text=f"{client.name}: {text}")
        and (is_certain(client, server) or found != Received(text="refused"))
    ]
    assert crossed == []


@pytest.mark.soak
def test_a_client_that_cannot_answer_is_never_asked(gateway: Gateway) -> None:
    """Not even while others next to it can."""
    clients = [*make_clients(gateway), *make_clients(gateway, can_respond=False)]

    received = uvloop.run(call_all(clients, "ask"))

    asked = [found for client, _, _, found in received if not client.can_respond and found.questions]
    notified = {found.text for client, _, _, found in received if not client.can_respond}
    assert asked == []
    assert notified <= {None, "refused"}


class Overheard(AskableClient):
    """A client whose every question someone else, `eve`, answers first."""

    eve: AskableClient
    statuses: list[int]

    async def reply(self, ask_id: Any, response: Message) -> int:
        forged = {"action": "accept", "content": {"said": "eve was here"}}
        self.statuses.append(await self.eve.reply(ask_id, forged))
        return await super().reply(ask_id, response)


@pytest.mark.parametrize("is_same_principal", [False, True], ids=["another principal", "another session"])
def test_sco_13_no_one_answers_a_question_of_someone_elses_session(
    gateway: Gateway, is_same_principal: bool
) -> None:
    async def play() -> tuple[Received, list[int]]:
        ada = Overheard("ada", gateway.address, "legacy", make_key(gateway))
        ada.eve = AskableClient(
            "eve", gateway.address, "legacy", ada.secret if is_same_principal else make_key(gateway)
        )
        ada.statuses = []
        await ada.open()
        await ada.eve.open()
        async with asyncio.timeout(WITHIN_S):
            return await ada.call("http-legacy.ask", "who?", number=1, token=1), ada.statuses

    received, statuses = uvloop.run(play())

    assert received == Received(questions=["who?"], text="ada: who?")
    assert statuses == [202]  # as for an answer that comes too late: eve learns nothing


@pytest.mark.parametrize("server", ["http-legacy", "http-modern"])
def test_sco_13_no_one_goes_on_with_the_call_of_another_principal(gateway: Gateway, server: str) -> None:
    """Neither with one that is parked here, nor with one whose server keeps its state with the client."""

    async def play() -> tuple[Message, Received]:
        ada, eve = (
            AskableClient(name, gateway.address, "modern", make_key(gateway)) for name in ("ada", "eve")
        )
        call = ada.params(f"{server}.ask", "who?", token=1)
        async with asyncio.timeout(WITHIN_S):
            asked = await ada.request(call, 1, Received())
            forged = {key: {"action": "accept", "content": {"said": "eve"}} for key in asked["inputRequests"]}
            stolen = {"requestState": asked["requestState"], "inputResponses": forged}
            taken = await eve.request(call | stolen, 1, Received())
            received = Received()
            await ada.go_on(call, asked, 2, received)
            return taken, received

    taken, received = uvloop.run(play())

    assert taken == {}
    assert received == Received(questions=["who?"], text="ada: who?")
