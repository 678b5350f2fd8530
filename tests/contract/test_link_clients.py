"""What passes between a server and the client behind a request, whatever link carries it."""

import asyncio
from typing import Any

import msgspec
import pytest

from tests.contract.link_clients import ACCEPTED, Client, Json, never
from tests.contract.links import SECRET, Ears, Subject, legacy, modern
from tests.contract.test_link import CALL, call_tool, params, until_stopped
from tests.eventually import eventually_async
from toolgate.errors import CallTimedOut, InvalidParams, ServerUnavailable
from toolgate.model.protocol import CLIENT_CAPABILITIES_KEY, LOG_LEVEL_KEY
from toolgate.upstream.connection import relay
from toolgate.upstream.connection.contract import RpcResponse, ServerConnection

pytestmark = pytest.mark.anyio

PROGRESS = "notifications/progress"
LOG = "notifications/message"
ELICIT = "elicitation/create"
FORM = {"method": ELICIT, "params": {"message": "your name?", "requestedSchema": {}}}
STATED = {"level": "warning", "data": "hot"}


@pytest.fixture
def has_own_streams(subject: Subject) -> bool:
    """Whether each request has a stream of its own, or all share one."""
    return subject.record.transport == "streamable_http"


async def put(
    link: ServerConnection, name: str, client: Client | None, *, timeout_s: float = 60.0, **sent: Any
) -> Any:
    """The `echo` in the result of a tool that `client` calls; keyword `meta` is its `_meta`."""
    members = {"_meta": sent.pop("meta")} if "meta" in sent else {}
    rpc = await link.request(CALL, params(name, sent, **members), timeout_s=timeout_s, client=client)
    assert rpc.result is not None, rpc
    return msgspec.json.decode(rpc.result).get("echo")


def progress(token: object, at: int = 1) -> Json:
    return {"method": PROGRESS, "params": {"progressToken": token, "progress": at, "vendor": [1]}}


def putting(link: ServerConnection, name: str, client: Client | None, **sent: Any) -> asyncio.Task[Any]:
    return asyncio.create_task(put(link, name, client, **sent))


async def asking(link: ServerConnection, client: Client, *, times: int = 1, **sent: Any) -> asyncio.Task[Any]:
    """A call whose client has been asked, and has not answered yet."""
    before = len(client.asked)
    call = putting(link, "ask", client, questions=[FORM] * times, **sent)
    await eventually_async(lambda: len(client.asked) == before + times or call.done())
    return call


# Progress


@pytest.mark.parametrize("token", ["mine", 7, 'x"é\n', 1.5])
async def test_progress_reaches_its_client_under_the_client_s_own_token(
    link: ServerConnection, token: object
) -> None:
    client = Client()

    await put(
        link,
        "tell",
        client,
        messages=[progress("$token"), progress("$token", 2)],
        meta={"progressToken": token},
    )

    assert client.notified == [
        (PROGRESS, {"progressToken": token, "progress": at, "vendor": [1]}) for at in (1, 2)
    ]


async def test_the_same_token_of_two_clients_is_two(link: ServerConnection) -> None:
    clients = [Client() for _ in range(20)]

    await asyncio.gather(
        *(
            put(link, "tell", client, messages=[progress("$token", n)], meta={"progressToken": 1})
            for n, client in enumerate(clients)
        )
    )
    seen = [await put(link, "meta", client, meta={"progressToken": 1}) for client in clients]

    assert [client.notified[0][1]["progress"] for client in clients] == list(range(20))
    assert [len(client.notified) for client in clients] == [1] * 20
    assert len({meta["progressToken"] for meta in seen}) == 20


async def test_progress_under_any_other_token_is_dropped(link: ServerConnection) -> None:
    client, without = Client(), Client()
    tokens: list[object] = ["mine", 0, None, "1", 10**6, [1], {}]
    others = [progress(token) for token in tokens]

    await put(link, "tell", client, messages=others, meta={"progressToken": "mine"})
    await put(link, "tell", client, messages=[{"method": PROGRESS, "params": [1]}], meta={"progressToken": 1})
    await put(link, "tell", without, messages=[progress(n) for n in range(50)])
    meta = await put(link, "meta", without)

    assert (client.notified, without.notified) == ([], [])
    assert "progressToken" not in meta


async def test_ups_6_a_word_that_is_too_long_reaches_no_one(link: ServerConnection) -> None:
    """And costs its request nothing."""
    client, long = Client(), {"message": "x" * relay.MAX_NOTIFICATION_BYTES}
    words = [progress("$token"), {"method": LOG, "params": STATED}]

    await put(
        link,
        "tell",
        client,
        messages=[{**word, "params": {**word["params"], **long}} for word in words] + words,
        meta={"progressToken": 1},
    )

    assert [method for method, _ in client.notified] == [PROGRESS, LOG]
    assert not any("message" in notified for _, notified in client.notified)


async def test_a_token_that_is_no_mere_token_is_refused(link: ServerConnection) -> None:
    """It would stand in each of a server's words."""
    client = Client()

    with pytest.raises(InvalidParams, match="progressToken"):
        await put(link, "tell", client, messages=[], meta={"progressToken": "x" * 1_000})
    await put(link, "tell", client, messages=[{"method": LOG, "params": STATED}])

    assert [method for method, _ in client.notified] == [LOG]  # whose client is meant is certain still


async def test_progress_after_the_answer_reaches_no_one(link: ServerConnection) -> None:
    client, other = Client(), Client()
    token = (await put(link, "meta", client, meta={"progressToken": "t"}))["progressToken"]

    await put(link, "tell", other, messages=[progress(token)], meta={"progressToken": "t"})

    assert (client.notified, other.notified) == ([], [])


# Log messages


async def test_log_messages_during_a_request_reach_its_client(link: ServerConnection, ears: Ears) -> None:
    client = Client()

    await put(
        link, "tell", client, messages=[{"method": LOG, "params": STATED}, {"method": LOG, "params": 5}]
    )

    assert (client.notified, ears.notifications) == ([(LOG, STATED)], [])


async def test_log_messages_reach_no_client_where_it_is_not_certain_whose_they_are(
    link: ServerConnection, has_own_streams: bool
) -> None:
    waiting, talking = Client(), Client()
    hanging = putting(link, "hang", waiting)
    await call_tool(link, "echo")

    await put(link, "tell", talking, messages=[{"method": LOG, "params": STATED}])
    await put(link, "tell", None, messages=[{"method": LOG, "params": STATED}])
    hanging.cancel()

    assert talking.notified == ([(LOG, STATED)] if has_own_streams else [])
    # One request has a client, and another is being answered: on one stream for all, that is who is meant.
    assert waiting.notified == ([] if has_own_streams else [(LOG, STATED)])


async def test_a_server_is_as_verbose_as_any_client_wants(link: ServerConnection) -> None:
    levels = [
        (await put(link, "level", Client(log_level=level)), await put(link, "meta", Client(log_level=level)))
        for level in ("warning", "error", "debug", "", "nonsense", "info")
    ]

    if link.server_info.revision == "legacy":
        assert [level for level, _ in levels] == ["warning", "warning", "debug", "debug", "debug", "debug"]
        assert all(LOG_LEVEL_KEY not in meta for _, meta in levels)
    else:
        wanted = ["warning", "error", "debug", None, "nonsense", "info"]
        assert [meta.get(LOG_LEVEL_KEY) for _, meta in levels] == wanted


# Questions


@legacy
@pytest.mark.parametrize("method", [ELICIT, "sampling/createMessage", "roots/list"])
@pytest.mark.parametrize(
    "response", [ACCEPTED, RpcResponse(error=b'{"code":-32042,"message":"no","data":{"x":[1.50]}}')]
)
async def test_a_server_s_question_goes_to_the_client_and_its_answer_back_as_it_came(
    link: ServerConnection, method: str, response: RpcResponse
) -> None:
    async def respond(_method: str, _params: Json) -> RpcResponse:
        return response

    client = Client(respond)
    responses = await put(
        link, "ask", client, questions=[{"method": method, "params": {"message": "?", "x": [1]}}]
    )

    assert client.asked == [(method, {"message": "?", "x": [1]})]
    error, result = response.error, response.result
    assert responses == [
        {"error": msgspec.json.decode(error)} if error else {"result": msgspec.json.decode(result or b"")}
    ]


@legacy
async def test_answers_find_their_questions_in_any_order(link: ServerConnection) -> None:
    turns = [asyncio.Event() for _ in range(4)]

    async def in_turn(_method: str, members: Json) -> RpcResponse:
        await turns[members["n"]].wait()
        return RpcResponse(result=b'{"n":%d}' % members["n"])

    client = Client(in_turn)
    questions = [{"method": ELICIT, "params": {"n": n}} for n in range(4)]
    call = putting(link, "ask", client, questions=questions)
    await eventually_async(lambda: len(client.asked) == 4)
    for turn in reversed(turns):
        turn.set()
        await asyncio.sleep(0)

    assert await call == [{"result": {"n": n}} for n in range(4)]


@legacy
async def test_two_clients_are_asked_at_once_only_where_each_has_a_stream_of_its_own(
    link: ServerConnection, has_own_streams: bool
) -> None:
    waiting, asked = Client(), Client()
    hanging = putting(link, "hang", waiting)
    await call_tool(link, "echo")

    [response] = await put(link, "ask", asked, questions=[FORM])
    hanging.cancel()

    if has_own_streams:
        assert response == {"result": msgspec.json.decode(ACCEPTED.result or b"")}
    else:
        assert (response["error"]["code"], asked.asked) == (-32601, [])
        assert 'sharing = "per_session"' in response["error"]["message"]
    assert waiting.asked == []


@legacy
async def test_what_a_server_says_for_someone_who_has_left_reaches_no_other_principal(
    link: ServerConnection, has_own_streams: bool
) -> None:
    """SCO-17: it may not have stopped when it was told to, and on one stream for all no one can tell."""
    left = putting(link, "hang", Client(principal_id="ada"))
    await call_tool(link, "echo")
    left.cancel()
    await until_stopped(link, times=1)
    eve = Client(principal_id="eve")

    await put(link, "tell", eve, messages=[{"method": LOG, "params": STATED}])
    await put(link, "ask", eve, questions=[FORM])

    assert (len(eve.notified), len(eve.asked)) == ((1, 1) if has_own_streams else (0, 0))


@legacy
async def test_chd_11_a_request_without_a_client_behind_it_is_refused(link: ServerConnection) -> None:
    [no_one] = await put(link, "ask", None, questions=[FORM])
    client = Client()
    odd = [{"method": "no/such", "params": {}}, {"method": ELICIT, "params": []}, {"method": "ping"}]
    unknown, no_object, pong = await put(link, "ask", client, questions=odd)

    assert [no_one["error"]["code"], unknown["error"]["code"]] == [-32601, -32601]
    assert (no_object["error"]["code"], pong, client.asked) == (-32602, {"result": {}}, [])


@modern
async def test_chd_11_a_modern_server_has_no_questions(subject: Subject, link: ServerConnection) -> None:
    client = Client()
    if subject.record.transport == "streamable_http":
        with pytest.raises(CallTimedOut):  # there is no way to answer it
            await put(link, "ask", client, questions=[FORM], timeout_s=0.3)
    else:
        [response] = await put(link, "ask", client, questions=[FORM])
        assert response["error"]["code"] == -32601

    assert client.asked == []


@legacy
async def test_a_flood_of_questions_is_bounded(link: ServerConnection) -> None:
    client = Client(never)
    flood = putting(link, "ask", client, questions=[FORM] * 500)
    await eventually_async(lambda: len(client.asked) == relay.MAX_CLIENT_REQUESTS_PER_CALL)
    echoed = await call_tool(link, "echo", arguments={"a": 1})
    flood.cancel()
    await eventually_async(lambda: client.cut_off == relay.MAX_CLIENT_REQUESTS_PER_CALL)
    [response] = await put(link, "ask", Client(), questions=[FORM])

    assert (echoed, len(client.asked)) == ({"a": 1}, relay.MAX_CLIENT_REQUESTS_PER_CALL)
    assert "result" in response


# Time, and ends


@legacy
async def test_the_time_a_client_takes_does_not_count(link: ServerConnection) -> None:
    loop = asyncio.get_running_loop()
    answers_s = loop.time() + 2.0

    async def late(_method: str, _params: Json) -> RpcResponse:
        await asyncio.sleep(answers_s - loop.time())
        return ACCEPTED

    [response] = await put(link, "ask", Client(late), questions=[FORM], timeout_s=1.5)

    assert "result" in response


@legacy
async def test_a_server_that_does_nothing_with_an_answer_has_only_the_time_that_was_left(
    link: ServerConnection,
) -> None:
    client = Client()

    with pytest.raises(CallTimedOut):
        await put(link, "half_ask", client, questions=[FORM], timeout_s=1.5)

    assert len(client.asked) == 1


@legacy
async def test_a_caller_that_goes_away_is_asked_no_more_and_its_late_answer_reaches_no_one(
    link: ServerConnection,
) -> None:
    turn = asyncio.Event()

    async def stubborn(_method: str, _params: Json) -> RpcResponse:
        try:
            await turn.wait()
        except asyncio.CancelledError:
            return ACCEPTED  # as a client would that answers in that very moment
        raise AssertionError

    client = Client(stubborn)
    call = await asking(link, client)
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await until_stopped(link, times=1)

    assert await call_tool(link, "late") == []


@legacy
async def test_a_server_that_dies_asks_no_more(link: ServerConnection, ears: Ears) -> None:
    client = Client(never)
    call = await asking(link, client)

    with pytest.raises(ServerUnavailable):
        await call_tool(link, "die")
    outcome = await asyncio.gather(call, return_exceptions=True)
    await eventually_async(lambda: client.cut_off == 1)

    assert isinstance(outcome[0], ServerUnavailable)


@legacy
async def test_a_link_that_is_closed_asks_no_more(link: ServerConnection) -> None:
    client = Client(never)
    call = await asking(link, client)

    await link.aclose()
    outcome = await asyncio.gather(call, return_exceptions=True)

    assert isinstance(outcome[0], ServerUnavailable)
    assert client.cut_off == 1


@legacy
async def test_a_server_may_take_its_question_back(link: ServerConnection) -> None:
    client = Client(never)
    call = await asking(link, client)
    number = (await put(link, "asked", None))[0]
    taken_back = {"method": "notifications/cancelled", "params": {"requestId": number}}

    await put(link, "tell", None, messages=[taken_back])
    await eventually_async(lambda: client.cut_off == 1)
    still_runs = not call.done()
    call.cancel()

    assert still_runs


# What the server is told of its clients


async def test_a_server_hears_what_the_client_can_do(
    subject: Subject, link: ServerConnection, ears: Ears
) -> None:
    can = b'{"roots":{"listChanged":true}}'
    own = await subject.opener(subject.record, ears, known_revision=None, capabilities=can)
    try:
        handshakes = [await call_tool(link, "handshake"), await call_tool(own, "handshake")]
        meta = await put(own, "meta", Client(capabilities=can))
    finally:
        await own.aclose()

    if link.server_info.revision == "modern":
        assert meta[CLIENT_CAPABILITIES_KEY] == msgspec.json.decode(can)
    else:
        assert msgspec.json.decode(can) in handshakes
        assert CLIENT_CAPABILITIES_KEY not in meta


# Secrets


async def test_what_a_server_says_to_a_client_shows_no_credential(link: ServerConnection) -> None:
    client = Client()
    notified = [
        {"method": LOG, "params": {"level": "info", "data": f"key {SECRET}"}},
        {"method": PROGRESS, "params": {"progressToken": "$token", "progress": 1, "message": SECRET}},
    ]
    await put(link, "tell", client, messages=notified, meta={"progressToken": 1})
    if link.server_info.revision == "legacy":
        await put(link, "ask", client, questions=[{"method": ELICIT, "params": {"message": SECRET}}])

    received = [members for _, members in (*client.notified, *client.asked)]
    assert len(received) == (3 if link.server_info.revision == "legacy" else 2)
    assert SECRET not in str(received)
    assert str(received).count("[redacted]") == len(received)
