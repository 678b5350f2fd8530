"""What reaches a handler and what does not, and what every answer carries."""

import logging
from typing import Any

import pytest

from tests.registry.memory_store import MemoryStore
from tests.surfaces.rest_world import (
    BASE_URL,
    KEYS,
    SERVERS,
    TASKS,
    error_of,
    open_rest,
    operations,
    secret_of,
)
from toolgate.model.revisions import Kind, RecordList

pytestmark = pytest.mark.anyio

NOT_JSON = {
    "nothing": b"",
    "truncated": b'{"task_id": "a"',
    "garbage after it": b'{"task_id": "a"} x',
    "a byte order mark": b'\xef\xbb\xbf{"task_id": "a"}',
    "UTF-16": '{"task_id": "a"}'.encode("utf-16"),
    "not UTF-8": b'{"task_id": "\xff"}',
    "FUZ-3 a depth bomb": b"[" * 100_000,
    "FUZ-3 a deep value": b'{"config": ' + b"[" * 70 + b"]" * 70 + b"}",
    "FUZ-3 a number of 5,000 digits": b'{"config": {"a": ' + b"9" * 5_000 + b"}}",
    "FUZ-4 NaN": b'{"config": {"a": NaN}}',
    "FUZ-4 Infinity": b'{"config": {"a": -Infinity}}',
    "FUZ-4 a number out of range": b'{"config": {"a": 1e400}}',
    "FUZ-5 a lone surrogate": b'{"display_name": "\\ud800"}',
}


@pytest.mark.parametrize("body", NOT_JSON.values(), ids=NOT_JSON)
async def test_fuz_1_a_body_that_is_not_json_is_refused(body: bytes) -> None:
    async with open_rest() as world:
        response = await world.request("PUT", f"{TASKS}/a", body)

        assert error_of(response) == (400, "parse_error")
        assert world.store.revision == 1


@pytest.mark.parametrize("body", [b"null", b"[]", b'"x"', b"7", b"true"])
async def test_fuz_1_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    async with open_rest() as world:
        responses = [await world.request("PUT", f"{TASKS}/a", body), await world.request("POST", KEYS, body)]

        assert [error_of(response) for response in responses] == [(400, "invalid_request")] * 2


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "multipart/form-data",
        "application/jsonx",
        "",
        "json",
    ],
)
async def test_fuz_11_anything_but_json_is_refused_by_its_declared_type(content_type: str) -> None:
    async with open_rest() as world:
        responses = [
            await world.request("PUT", f"{TASKS}/a", b"{}", content_type=content_type),
            await world.request("POST", f"{SERVERS}/a/test", b"{}", content_type=content_type),
        ]
        undeclared = await world.http.put(f"{TASKS}/a", content=b"{}")
        action = await world.http.post(f"{SERVERS}/a/test", content=b"{}")

        assert [error_of(one) for one in (*responses, undeclared, action)] == [(415, "unsupported_media")] * 4


async def test_the_type_of_a_body_may_carry_parameters() -> None:
    async with open_rest() as world:
        response = await world.request(
            "PUT", f"{TASKS}/a", b"{}", content_type="Application/JSON; charset=utf-8"
        )

        assert response.status_code == 201


async def test_fuz_12_an_encoded_body_is_refused_unread() -> None:
    async with open_rest() as world:
        response = await world.request("PUT", f"{TASKS}/a", b"\x1f\x8b", content_encoding="gzip")

        assert error_of(response) == (415, "unsupported_media")


@pytest.mark.parametrize(
    "query",
    [
        "x=1",
        "task=a&task=b",
        "TASK=a",
        "task%5B%5D=a",
        "task",
        "a=%ff",
        "task=%00",
        "task=a%0Ab",
        "task=" + "a" * 20_000,
    ],
)
async def test_a_query_is_read_in_one_way_or_refused(query: str) -> None:
    async with open_rest() as world:
        response = await world.request("GET", f"/api/v1/mcp/tools?{query}")

        assert error_of(response) == (400, "invalid_request")


async def test_no_route_takes_a_parameter_it_does_not_know() -> None:
    async with open_rest() as world:
        statuses = {
            (method, path): (
                await world.request(method, path.format_map(_Anything()) + "?surprise=1")
            ).status_code
            for method, path in operations()
        }

    assert {route: status for route, status in statuses.items() if status != 400} == {}


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"{TASKS}/a%00b", 400),
        (f"{TASKS}/a%0A", 400),
        (f"{TASKS}%0A", 400),
        ("/healthz%0A", 400),
        (f"{TASKS}/%F0%9F%92%A9", 400),
        (f"{TASKS}/a%20b", 400),
        (f"{TASKS}/..", 404),
        (f"{TASKS}/%2E%2E", 400),
        (f"{TASKS}/a%2Fb", 404),
        (f"{SERVERS}/Git", 400),
        (f"{SERVERS}/a__b", 400),
        (f"{SERVERS}/" + "a" * 41, 400),
        (f"{TASKS}/", 404),
        ("/admin/api/nothing", 404),
        ("/", 404),
    ],
)
async def test_fuz_6_an_id_in_a_path_is_one_or_the_request_is_refused(path: str, status: int) -> None:
    async with open_rest() as world:
        response = await world.http.get(path)

        assert response.status_code == status
        assert set(response.json()["error"]) >= {"code", "message", "hint"}


@pytest.mark.parametrize("method", ["PATCH", "OPTIONS", "TRACE", "PROPFIND", "DELETE"])
async def test_a_method_a_path_does_not_have_is_refused_with_those_it_has(method: str) -> None:
    async with open_rest() as world:
        response = await world.request(method, TASKS)

        assert error_of(response) == (405, "method_not_allowed")
        assert response.headers["allow"] == "GET, POST"


async def test_adm_13_every_answer_is_hardened_against_browsers_and_caches() -> None:
    expected = {
        "cache-control": "no-store",
        "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
        "referrer-policy": "no-referrer",
        "x-content-type-options": "nosniff",
    }
    async with open_rest() as world:
        responses = [
            await world.request("GET", "/healthz"),
            await world.request("GET", "/metrics"),
            await world.request("GET", SERVERS),
            await world.request("GET", SERVERS, authorization="Bearer wrong"),
            await world.request("GET", "/nothing"),
            await world.request("PATCH", SERVERS),
            await world.request("PUT", f"{TASKS}/a", {}),
        ]

        assert [{name: one.headers[name] for name in expected} for one in responses] == [expected] * 7
        assert all("set-cookie" not in one.headers for one in responses)


async def test_fuz_6_a_name_with_control_characters_is_refused_in_a_body_too() -> None:
    async with open_rest() as world:
        responses = [
            await world.request("PUT", f"{TASKS}/a", {"display_name": text})
            for text in ("a\x00b", "a\nb", "\x1b[2J")
        ]

        assert [error_of(response) for response in responses] == [(400, "invalid_record")] * 3


class Failing(MemoryStore):
    """A store that breaks in a way no one foresaw."""

    async def list(self, kind: Kind | None = None) -> RecordList:
        if kind == "server":
            raise RuntimeError("canary in the works")
        return await super().list(kind)


async def test_an_unforeseen_failure_leaks_nothing_and_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_rest(store=Failing(lambda: 0)) as world:
        response = await world.request("GET", SERVERS)

        assert error_of(response) == (500, "internal")
        assert "canary" not in response.text
        logged = [one for one in caplog.records if one.levelno >= logging.WARNING]
        assert [(one.getMessage(), one.exc_info is not None) for one in logged] == [
            (f"`GET {SERVERS}` ({response.headers['x-request-id']}) failed", True)
        ]


async def test_sco_19_headers_of_a_proxy_change_nothing() -> None:
    async with open_rest(trusts_local=False) as world:
        response = await world.request(
            "GET",
            "/api/v1/mcp/tools",
            key=secret_of("agent"),
            x_forwarded_host="evil.example",
            x_forwarded_proto="https",
            x_original_url=SERVERS,
            x_http_method_override="DELETE",
            x_user="admin",
        )

        assert response.json()["url"] == f"{BASE_URL}/api/mcp"


class _Anything(dict[str, Any]):
    """An id for every parameter of a path."""

    def __missing__(self, name: str) -> str:
        return "a"
