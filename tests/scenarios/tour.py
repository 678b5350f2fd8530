"""A tour through the reference server that has one of everything, for any client of the official SDKs.

It uses only what the SDKs of both eras have in common, and prints what it saw as plain JSON: the same
tour, directly or through a gateway, sees the same.
"""

import asyncio
import re
from typing import Any

from mcp import types

Json = dict[str, Any]

WITHIN_S = 60
DOCUMENT = "demo://resource/static/document/features.md"
TEXT = "demo://resource/dynamic/text"
BLOB = "demo://resource/dynamic/blob"
CALLS: dict[str, Json] = {
    "echo": {"message": "Grüße"},
    "get-sum": {"a": 2, "b": 3},
    "get-annotated-message": {"messageType": "error", "includeImage": True},
    "get-resource-links": {"count": 2},
    "get-resource-reference": {"resourceType": "Text", "resourceId": 3},
    "get-structured-content": {"location": "Chicago"},
    "get-tiny-image": {},
    # The server asks back in these.
    "trigger-elicitation-request": {},
    "trigger-url-elicitation": {"url": "https://example.com/sign", "elicitationId": "one"},
    "trigger-sampling-request": {"prompt": "What is a gateway?"},
}
PROMPTS = {
    "simple-prompt": None,
    "args-prompt": {"city": "Paris", "state": "Texas"},
    "resource-prompt": {"resourceType": "Text", "resourceId": "3"},
}
OF_PROMPT = types.PromptReference(type="ref/prompt", name="completable-prompt")
OF_TEMPLATE = types.ResourceTemplateReference(type="ref/resource", uri=TEXT + "/{resourceId}")
COMPLETIONS: list[tuple[Any, dict[str, str], dict[str, str]]] = [
    (OF_PROMPT, {"name": "department", "value": "S"}, {}),
    (OF_PROMPT, {"name": "name", "value": "A"}, {"department": "Engineering"}),
    (OF_TEMPLATE, {"name": "resourceId", "value": "7"}, {}),
]
FEATURES = (
    "tools",
    "results",
    "progress",
    "prompts",
    "messages",
    "completions",
    "resources",
    "templates",
    "contents",
    "updated",
    "logged",
)


class Visitor:
    """What the server may ask of a client and tell it."""

    def __init__(self) -> None:
        self.updated: asyncio.Queue[str] = asyncio.Queue()
        """Resources that have changed, the server says."""
        self.logged: asyncio.Queue[str] = asyncio.Queue()
        """What it writes into its log, at a level of its choice."""

    async def elicit(self, context: Any, params: Any) -> types.ElicitResult:
        content: Any = {"name": "Ada"} if params.mode == "form" else None
        return types.ElicitResult(action="accept", content=content)

    async def sample(self, context: Any, params: Any) -> types.CreateMessageResult:
        response = f"You said: {plain(params.messages[0])['content']['text']}"
        reply = types.TextContent(type="text", text=response)
        return types.CreateMessageResult(role="assistant", content=reply, model="none")

    async def log(self, params: Any) -> None:
        if re.search("level.message", str(params.data)):
            self.logged.put_nowait("a message")

    async def hear(self, message: Any) -> None:
        notified = getattr(message, "root", message)
        if getattr(notified, "method", "") == "notifications/resources/updated":
            self.updated.put_nowait(str(notified.params.uri))


async def tour(client: Any, visitor: Visitor, *, by_listening: bool) -> Json:
    """All there is to see."""
    tools = by_name(await client.list_tools(), "tools")
    return {
        "tools": {name: {**tools[name], "execution": None} for name in CALLS},
        "results": {name: plain(await client.call_tool(name, words)) for name, words in CALLS.items()},
        "progress": await progress(client),
        "prompts": by_name(await client.list_prompts(), "prompts"),
        "messages": {name: plain(await client.get_prompt(name, words)) for name, words in PROMPTS.items()},
        "completions": [plain(await client.complete(*words))["completion"] for words in COMPLETIONS],
        "resources": by_name(await client.list_resources(), "resources"),
        "templates": by_name(await client.list_resource_templates(), "resourceTemplates"),
        "contents": [plain(await client.read_resource(uri)) for uri in (DOCUMENT, f"{TEXT}/7", f"{BLOB}/7")],
        "updated": await update(client, visitor, by_listening=by_listening),
        "logged": await log(client, visitor, by_listening=by_listening),
    }


async def progress(client: Any) -> list[list[float | None]]:
    """How far a long operation has come, each time that its server says so."""
    seen: list[list[float | None]] = []

    async def note(done: float, total: float | None, _: str | None) -> None:
        seen.append([done, total])

    words = {"duration": 0.2, "steps": 4}
    await client.call_tool("trigger-long-running-operation", words, progress_callback=note)
    return seen


async def update(client: Any, visitor: Visitor, *, by_listening: bool) -> str:
    """The resource that the server says has changed, after one was subscribed to."""
    uri = f"{TEXT}/1"
    async with asyncio.timeout(WITHIN_S):
        if by_listening:
            async with client.listen(resource_subscriptions=[uri]) as changes:
                await client.call_tool("toggle-subscriber-updates", {})
                return str((await anext(changes)).uri)
        await client.subscribe_resource(uri)
        await client.call_tool("toggle-subscriber-updates", {})
        return await visitor.updated.get()


async def log(client: Any, visitor: Visitor, *, by_listening: bool) -> str:
    """What the server writes into its log; a client that listens says in each request from which level on."""
    async with asyncio.timeout(WITHIN_S):
        if not by_listening:
            await client.set_logging_level("debug")
        await client.call_tool("toggle-simulated-logging", {})
        return await visitor.logged.get()


def by_name(result: Any, kind: str) -> dict[str, Json]:
    """What a list says of each that is in it."""
    return {one["name"]: one for one in plain(result)[kind]}


def plain(value: Any) -> Any:
    """As JSON; without the time, and without what only one era's wire has."""
    dumped: Json = value.model_dump(mode="json", by_alias=True, exclude_none=True)
    for name in ("_meta", "resultType", "ttlMs", "cacheScope", "nextCursor"):
        dumped.pop(name, None)
    for content in dumped.get("contents", ()):
        # In the middle of base64, the time is no more than its length.
        content["blob"] = len(content.get("blob", "")) > 40
    return timeless(dumped)


def timeless(value: Any) -> Any:
    match value:
        case dict():
            return {name: timeless(one) for name, one in value.items()}
        case list():
            return [timeless(one) for one in value]
        case str():
            return re.sub(r"created at .*", "created", value)
    return value
