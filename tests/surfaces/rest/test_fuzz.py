"""FUZ-20: whatever is sent, no answer is a 5xx, and each is one that the document names and describes."""

import asyncio
import json
import re
import tempfile
from pathlib import Path
from typing import Any, Final

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.scenarios.soak import rounds
from tests.surfaces.rest_world import (
    DOCUMENT,
    RestWorld,
    chat_upstream,
    check_documented,
    http,
    open_rest,
    operations,
    secret_of,
    stdio,
    task,
)
from toolgate.audit.index.index import open_sqlite_index

SCHEMAS: Final[dict[str, Any]] = DOCUMENT["components"]["schemas"]
MEMBERS: Final = sorted({name for schema in SCHEMAS.values() for name in schema.get("properties", ())})
WORDS: Final = (
    *(
        "",
        "git",
        "stdio",
        "streamable_http",
        "***",
        "${ENV:X}",
        "admin",
        "task",
        "server",
        "*",
        "a/b",
        "true",
    ),
    *('["git"]', "mcp.enabled", "https://x.example/", "file:///", "a" * 300, "\x00", "é", "\u202e", "'; --"),
)
GOOD_IDS: Final = {
    "server_id": "git",
    "task_id": "review",
    "profile_id": "coding",
    "upstream_id": "local",
    "key_id": "spare",
    "choice_id": "a" * 64,
    "package_id": "notes",
    "version": "1.0.0",
    "sha256": "0" * 64,
    "invocation_id": "018bcfe56800" + "0" * 16,
    "event_id": "0" * 24 + "-1",
    "approval_id": "0" * 32,
    "part": "1",
    "category": "uncategorized",
    "package": "git",
    "namespace": "toolgate.local",
    "server_name": "git",
    "server_version": "latest",
}
BAD_IDS: Final = ("none", "A", "..", "%00", "a" * 70, "%F0%9F%92%A9", "%25", "a%2Fb")
GOOD_BODIES: Final[dict[str, Any]] = {
    "ServerSent": stdio("git", stdio={"args": ["--token", "***"]}),
    "TaskSent": task("review", default_server_ids=["git"]),
    "ProfileSent": {"profile_id": "coding", "allow": ["*"]},
    "KeySent": {"key_id": "new", "role": "agent"},
    "QuotasBody": {"calls_per_minute": 60},
    "IntegrationSent": {"state": "read_only"},
    "PlanSent": {"kind": "server", "id": "git", "body": http("git")},
    "PinSent": {"server_id": "git", "tools": {"log": "0" * 64}},
    "ChatUpstreamSent": chat_upstream("local", headers={"api-key": "***"}),
    "RollbackSent": {"revision": 1},
    "LoginSent": {"redirect_uri": "http://127.0.0.1:9/callback"},
    "LoginFinishSent": {"state": "s", "code": "c", "iss": "https://login.example"},
    "CodeSent": {
        "code": "c",
        "code_verifier": "v" * 43,
        "redirect_uri": "http://127.0.0.1:8080/console/login",
    },
    "ApplySent": {"changes": [{"kind": "task", "id": "review", "body": None}], "prune": False},
    "ImportSent": {"content": {"mcpServers": {"one": {"command": "serve", "env": {"A": "b"}}}}},
    "InstallSent": {"version": "1.0.0", "dry_run": True},
    "UploadSent": {"parts": 1},
    "ModulePartsSent": {"parts": 1},
    "InvocationSent": {"input": "hello", "mode": "async"},
    "MatchSent": {"patterns": ["git/*", "?"]},
    "CallSent": {"name": "git.log", "arguments": {"a": [1, {}]}},
    "ApproveSent": {"reason": "fine"},
    "DenySent": {"reason": "no"},
    "DecisionBody": {"approval_id": "0" * 32, "decision": "approved"},
    "NoBody": {},
}

text = st.sampled_from(WORDS) | st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | text,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(MEMBERS) | text, inner, max_size=4)
    ),
    max_leaves=8,
)
odd_headers = st.dictionaries(
    st.sampled_from(
        [
            *("if-match", "if-none-match", "content-type", "content-encoding"),
            *("toolgate-plan", "toolgate-min-revision", "last-event-id"),
        ]
    ),
    st.sampled_from(['"1"', "*", "x", "application/json", "text/plain", "identity", "gzip", "", "1"]),
    max_size=2,
)
callers = st.sampled_from(["admin"] * 6 + ["agent", "viewer", "publisher", "no one"])


def seldom(usual: Any, odd: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Mostly `usual`, so that a request often gets past the first check."""
    return st.integers(0, 4).flatmap(lambda n: odd if n == 0 else st.just(usual))


@st.composite
def bodies(draw: st.DrawFn, model: str) -> bytes:
    """The body of an operation, often with a member or two of it changed."""
    good = GOOD_BODIES[model]
    own = sorted(SCHEMAS[model].get("properties", ())) or MEMBERS
    changes = draw(st.dictionaries(st.sampled_from(own), json_values, max_size=2))
    odd = st.binary(max_size=40) | json_values.map(_encode)
    sent: bytes = draw(seldom(_encode(good | changes), odd))
    return sent


def _encode(value: Any) -> bytes:
    return json.dumps(value).encode()


@st.composite
def requests(draw: st.DrawFn) -> dict[str, Any]:
    """A request for one of the operations, with something wrong here and there."""
    method, template = draw(st.sampled_from(list(operations())))
    operation = DOCUMENT["paths"][template][method.lower()]
    known = [one["name"] for one in operation["parameters"] if one["in"] == "query"]
    content = operation.get("requestBody", {"content": {}})["content"].get("application/json")
    return {
        "method": draw(seldom(method, st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH", "HEAD"]))),
        "url": re.sub(
            r"\{(\w+)\}", lambda found: draw(seldom(GOOD_IDS[found[1]], st.sampled_from(BAD_IDS))), template
        ),
        "params": draw(st.dictionaries(st.sampled_from(known or ["x"]), text, max_size=2 if known else 0)),
        "content": draw(bodies(content["schema"]["$ref"].rpartition("/")[2])) if content else None,
        "headers": {
            "content-type": "application/json",
            "authorization": f"Bearer {secret_of(draw(callers))}",
            **draw(seldom({}, odd_headers)),
        },
    }


@settings(
    max_examples=rounds(suite=20, soak=400), deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(st.lists(requests(), min_size=5, max_size=15))
def test_fuz_20_no_request_makes_the_surface_fail_or_answer_what_it_does_not_document(
    sent: list[dict[str, Any]],
) -> None:
    asyncio.run(_send_all(sent))


async def _send_all(sent: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as directory:
        async with (
            open_sqlite_index(Path(directory, "audit.db")) as index,
            open_rest(audit_index=index) as world,
        ):
            await _send(world, sent)


async def _send(world: RestWorld, sent: list[dict[str, Any]]) -> None:
    await world.seed(
        server=[stdio("git", stdio={"args": ["--token", "secret"]}), http("web")],
        task=[task("review", default_server_ids=["git"])],
        profile=[{"profile_id": "coding"}],
        key=[{"key_id": "spare", "role": "agent", "sha256": "0" * 64}],
        pin=[{"server_id": "git"}],
    )
    for request in sent:
        response = await world.http.request(**request)

        assert response.status_code < 500, request
        check_documented(request["method"], response.request.url.path, response)
