"""FUZ-18: whatever message of either era is sent, the door answers at once and never with a 5xx."""

import asyncio
import json
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.scenarios.soak import rounds
from tests.surfaces.mcp.mcp_world import JSON_HEADERS, META, MODERN, LegacyClient, McpWorld, open_mcp_world
from tests.upstream.memory_link import MemoryNet

MESSAGES: Final = 50
"""Of one example: what one leaves behind, the next ones meet."""
EXAMPLES: Final = rounds(suite=12, soak=4_000)
HANGS_S: Final = 1.0

METHODS: Final = (
    *(
        "initialize",
        "server/discover",
        "ping",
        "tools/list",
        "tools/call",
        "resources/list",
        "resources/read",
    ),
    *("resources/templates/list", "resources/subscribe", "resources/unsubscribe", "prompts/list"),
    *("prompts/get", "completion/complete", "logging/setLevel", "tasks/get", "roots/list"),
    *("notifications/initialized", "notifications/cancelled", "notifications/progress", "x", ""),
)
"""Not `subscriptions/listen`, which is answered by a stream that stays open."""
URLS: Final = ("/api/mcp", "/api/mcp/find")
CALLS: Final[tuple[tuple[str, Any], ...]] = (
    ("one.echo", {"text": "x"}),
    ("search_tools", {"query": "echo", "limit": 3}),
    ("describe_tool", {"name": "one.echo"}),
    ("call_tool", {"name": "one.echo", "arguments": {"text": "x"}}),
)
TOOLS: Final = ("one.echo", "one.none", "echo", "one.", ".", "", "one.echo ", "one\u200b.echo")
MEMBERS: Final = (
    *("name", "arguments", "uri", "cursor", "protocolVersion", "capabilities", "clientInfo", "level", "ref"),
    *(
        "argument",
        "requestId",
        "progressToken",
        "progress",
        "inputResponses",
        "requestState",
        "tools",
        "_meta",
    ),
)

words = st.sampled_from(("", "a", "2025-11-25", MODERN, "info", "test://x", "\x00", "é", "\u202e", "a" * 300))
text = words | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
numbers = st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.none() | st.booleans() | numbers | text,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS) | text, inner, max_size=3)
    ),
    max_leaves=6,
)


def seldom(usual: st.SearchStrategy[Any], odd: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly `usual`, so that a message often gets past the first check."""
    return st.integers(0, 5).flatmap(lambda n: odd if n == 0 else usual)


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    """The parts of a request to the door."""
    is_modern = draw(st.booleans())
    method = draw(seldom(st.sampled_from(METHODS), json_values))
    params = draw(st.dictionaries(st.sampled_from(MEMBERS), json_values, max_size=3))
    if method == "tools/call":
        name, arguments = draw(st.sampled_from(CALLS))
        params |= {"name": draw(seldom(st.just(name), st.sampled_from(TOOLS)))}
        params |= {"arguments": draw(seldom(st.just(arguments), json_values))}
    if is_modern:
        params |= {"_meta": draw(seldom(st.just(META), json_values | _metas()))}
    body = {
        "jsonrpc": draw(seldom(st.just("2.0"), json_values)),
        "id": draw(seldom(st.integers(0, 3) | st.just("1"), json_values)),
        "method": method,
        "params": draw(seldom(st.just(params), json_values)),
    }
    for absent in draw(seldom(st.just([]), st.lists(st.sampled_from(sorted(body)), max_size=2))):
        body.pop(absent, None)
    sent = draw(seldom(st.just(json.dumps(body).encode()), st.binary(max_size=30) | _spoiled(body)))
    headers = draw(_headers(method, params)) if is_modern else {}
    return {"is_modern": is_modern, "body": sent, "headers": headers}


def _metas() -> st.SearchStrategy[Any]:
    """Envelopes in which something is not as it should be."""
    return st.dictionaries(st.sampled_from([*META, "progressToken", "traceparent"]), json_values, max_size=4)


def _spoiled(body: Any) -> st.SearchStrategy[bytes]:
    """A message in a list, cut off, or with something behind it."""
    whole = json.dumps(body).encode()
    cut = st.integers(0, len(whole)).map(lambda end: whole[:end])
    return st.just(b"[%b]" % whole) | cut | st.just(whole + b"x") | st.just(whole.decode().encode("utf-16"))


def _headers(method: Any, params: Any) -> st.SearchStrategy[dict[str, str]]:
    """Those of the stateless era, mostly in agreement with the body."""
    printable = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=8)

    def agree(value: Any) -> st.SearchStrategy[str]:
        fits = isinstance(value, str) and value.isascii() and value.isprintable()
        return seldom(st.just(value), printable) if fits else printable

    return st.fixed_dictionaries(
        {"mcp-protocol-version": agree(MODERN), "mcp-method": agree(method)},
        optional={"mcp-name": agree(params.get("name"))},
    )


@pytest.mark.soak
@settings(max_examples=EXAMPLES)
@given(st.sampled_from(URLS), st.lists(messages(), min_size=MESSAGES, max_size=MESSAGES))
def test_fuz_18_every_message_of_either_era_is_answered_at_once_and_never_with_a_5xx(
    url: str, sent: list[dict[str, Any]]
) -> None:
    asyncio.run(send_all(url, sent))


async def send_all(url: str, sent: list[dict[str, Any]]) -> None:
    async with open_mcp_world(MemoryNet()) as world:
        client = await world.session(url)
        for message in sent:
            await send(world, client, message)

        # It still works.
        assert await client.tools() == await (await world.session(url)).tools() != []


async def send(world: McpWorld, client: LegacyClient, message: dict[str, Any]) -> None:
    more = message["headers"] if message["is_modern"] else client.headers
    async with asyncio.timeout(HANGS_S):
        response = await world.request("POST", client.url, message["body"], JSON_HEADERS | more)

    assert response.status < 500, (response.body, message)
    assert response.status == 202 or response.json["jsonrpc"] == "2.0", (response.body, message)
