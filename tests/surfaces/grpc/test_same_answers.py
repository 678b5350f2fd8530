"""gRPC and REST are two ways to the same registry: whatever is asked, they answer alike."""

import random
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, Final

import grpc
import grpc.aio
import pytest

from tests.surfaces.grpc.grpc_world import GrpcWorld, open_grpc_world, refusal_of
from tests.surfaces.rest_world import RestWorld, secret_of
from toolgate.errors import WIRE
from toolgate.model.revisions import Kind
from toolgate.proto import mcp_registry_pb2 as sms
from toolgate.proto import policy_pb2 as policy
from toolgate.surfaces.grpc.collection import encode_message

pytestmark = pytest.mark.anyio

Json = dict[str, Any]
REQUESTS: Final = 300
"""For each seed; all of them together are more than a thousand."""
PATHS: Final = {
    "server": "/admin/api/mcp/servers",
    "task": "/admin/api/tasks",
    "profile": "/admin/api/profiles",
    "pin": "/admin/api/pins",
}
SERVICES: Final = {
    "server": "sms.McpRegistryService/{}McpServer",
    "task": "toolgate.v1.TaskService/{}Task",
    "profile": "toolgate.v1.ProfileService/{}Profile",
    "pin": "toolgate.v1.PinService/{}Pin",
}
TRANSPORTS: Final = {"stdio": 1, "streamable_http": 2, "http_sse_legacy": 100, "carrier_pigeon": 55}
IDS: Final = ("a", "b", "c-1", "Bad_Id", "x" * 41)


@dataclass(frozen=True)
class Ask:
    """One request, as both surfaces can say it."""

    role: str | None
    action: str
    kind: Kind
    record_id: str
    body: Json
    if_revision: int | None


class Asker:
    """Random requests: most of them sensible, the others wrong in every way both surfaces can say.

    None comes from a node: its key opens nothing over REST.
    """

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def request(self, revision: int) -> Ask:
        rng = self._rng
        kind: Kind = rng.choice(("server", "server", "task", "profile", "pin"))
        record_id = rng.choices(IDS, (8, 8, 8, 1, 1))[0]
        return Ask(
            role=rng.choices(("admin", "publisher", "viewer", "agent", None), (12, 4, 2, 1, 1))[0],
            action=rng.choices(("upsert", "delete", "list"), (6, 2, 2))[0],
            kind=kind,
            record_id=record_id,
            body=getattr(self, f"_{kind}")(record_id),
            if_revision=rng.choices((None, 0, rng.randint(1, revision + 1)), (8, 1, 3))[0],
        )

    def _some(self, chance: float = 0.4, **members: Any) -> Json:
        return {name: value for name, value in members.items() if self._rng.random() < chance}

    def _patterns(self) -> list[str]:
        return self._rng.sample(["*", "read_*", "a/push", "[", "get", "x" * 300], self._rng.randint(0, 2))

    def _server(self, record_id: str) -> Json:
        rng = self._rng
        stdio = self._some(0.9, command=rng.choice(("serve", "uvx"))) | self._some(
            args=["--token", rng.choice(("s3cret", "***"))],
            env={"API_KEY": rng.choice(("s3cret", "***", "${ENV:KEY}")), "MODE": "x"},
            env_from=["HOME"],
            cwd="/srv",
        )
        http = self._some(0.9, url=rng.choice(("https://a.example/mcp", "ftp://a"))) | self._some(
            headers={"X-Token": rng.choice(("s3cret", "***"))}, auth_ref="token"
        )
        launch = rng.choice(
            ({"stdio": stdio}, {"stdio": stdio}, {"http": http}, {"stdio": stdio, "http": http})
        )
        transport = rng.choices(list(TRANSPORTS), (9, 5, 1, 1))[0]
        return {
            **{name: part for name, part in launch.items() if part},
            **self._some(0.95, server_id=record_id, transport=transport),
            **self._some(
                display_name=rng.choice(("A", "line\nbreak")),
                tool_namespace=rng.choice(("one", "two", "Bad")),
                allowed_tools=self._patterns(),
                approval_policy={
                    "default": rng.choice(("never", "always", "perhaps")),
                    "per_tool": {"t": "policy"},
                },
                budgets={"tool_timeout_ms": rng.choice((50, 5_000)), "max_concurrency": 4},
                tags=["code"],
                category="dev",
                enabled=False,
                sharing=rng.choice(("per_session", "no one")),
                idle_timeout_s=rng.choice((60, 2**40)),
                start_timeout_s=rng.choice((90, 2**40)),
                list_ttl_s=rng.choice((60, 7)),
                prewarm=True,
                protocol=rng.choice(("session", "no one")),
            ),
        }

    def _task(self, record_id: str) -> Json:
        config = self._some(
            0.4,
            **{
                "mcp.enabled": self._rng.choice(("true", "yes")),
                "mcp.default_server_ids": '["a"]',
                "mcp.allowed_server_ids": self._rng.choice(('["a", "b"]', '["b"]', "[")),
                "mcp.profile": '"a"',
            },
        )
        return {"task_id": record_id, **self._some(0.7, config=config or {"note": "1"}, display_name="T")}

    def _selection(self) -> Json:
        return self._some(
            servers=self._rng.choice(([], ["a"], ["Bad_Id"])),
            tags=["code"],
            allow=self._patterns(),
            deny=self._patterns(),
        )

    def _profile(self, record_id: str) -> Json:
        environments = {self._rng.choice(("dev", "prod", "moon")): self._selection()}
        rollout = {
            "share": self._rng.choice((10, 0)),
            **self._selection(),
            **self._some(version=2, by="task"),
        }
        more = self._some(environments=environments, version=self._rng.choice((1, 2)), rollout=rollout)
        return {"profile_id": record_id, **self._selection(), **more}

    def _pin(self, record_id: str) -> Json:
        digest = self._rng.choice(("0" * 64, "short"))
        tools = {self._rng.choice(("read", "bad name")): digest}
        return {"server_id": record_id, **self._some(tools=tools, changed={"read": "1" * 64})}


@dataclass(frozen=True)
class Outcome:
    """What came of a request, in the terms of neither surface."""

    code: str
    revision: int | None = None
    warnings: tuple[str, ...] = ()
    listed: tuple[Any, ...] = ()


async def ask_rest(world: RestWorld, request: Ask) -> Outcome:
    path, key = PATHS[request.kind], secret_of(request.role) if request.role else None
    headers = {}
    if request.if_revision is not None and request.action != "list":
        headers = {"if_match": f'"{request.if_revision}"'} if request.if_revision else {"if_none_match": "*"}
    match request.action:
        case "list":
            response = await world.request("GET", path, key=key)
        case "delete":
            response = await world.request("DELETE", f"{path}/{request.record_id}", key=key, **headers)
        case _:
            response = await world.request("POST", path, request.body, key=key, **headers)
    received = response.json()
    if not response.is_success:
        code = received["error"]["code"]
        assert response.status_code == WIRE[code].http
        return Outcome(code)
    listed = []
    for one in received.get(f"{request.kind}s", ()):
        body = {name: value for name, value in one.items() if name not in {"revision", "updated_at_ms"}}
        listed.append((one["revision"], encode_message(request.kind, body)))
    return Outcome("ok", received["revision"], tuple(received.get("warnings", ())), tuple(listed))


async def ask_grpc(world: GrpcWorld, request: Ask) -> Outcome:
    key = secret_of(request.role) if request.role else None
    rpc = SERVICES[request.kind].format(request.action.capitalize()) + (
        "s" if request.action == "list" else ""
    )
    try:
        response = await world.request(rpc, grpc_request(request), key=key)
    except grpc.aio.AioRpcError as exc:
        status, code = refusal_of(exc)
        assert status == WIRE[code].grpc
        return Outcome(code)
    if request.action != "list":
        return Outcome("ok", response.revision, tuple(response.warnings))
    listed = []
    for one in getattr(response, f"{request.kind}s"):
        revision = one.revision
        one.ClearField("revision")
        one.ClearField("updated_at_ms")
        listed.append((revision, one))
    return Outcome("ok", response.revision, listed=tuple(listed))


def grpc_request(request: Ask) -> Any:
    condition: Json = {} if request.if_revision is None else {"if_revision": request.if_revision}
    is_server = request.kind == "server"
    if request.action == "list":
        return sms.ListMcpServersRequest() if is_server else policy.ListRequest()
    if request.action == "delete":
        named: Json = {"server_id" if is_server else "id": request.record_id} | condition
        return sms.DeleteMcpServerRequest(**named) if is_server else policy.DeleteRequest(**named)
    if is_server:
        return sms.UpsertMcpServerRequest(record=server_message(request.body), **condition)
    noun = request.kind.capitalize()
    message = (
        profile_message(request.body) if request.kind == "profile" else getattr(policy, noun)(**request.body)
    )
    return getattr(policy, f"Upsert{noun}Request")(**{request.kind: message}, **condition)


def server_message(body: Json) -> sms.McpServerRecord:
    fields = dict(body)
    extras = (
        "tags",
        "category",
        "enabled",
        "sharing",
        "idle_timeout_s",
        "start_timeout_s",
        "list_ttl_s",
        "prewarm",
        "protocol",
    )
    fields["extras"] = {name: fields.pop(name) for name in extras if name in fields}
    if "transport" in fields:
        fields["transport"] = TRANSPORTS[fields["transport"]]
    if approval := fields.pop("approval_policy", None):
        fields["approval_policy"] = {"default_policy": approval["default"], "per_tool": approval["per_tool"]}
    return sms.McpServerRecord(**fields)


def profile_message(body: Json) -> policy.Profile:
    environments = {name: selection(one) for name, one in body.get("environments", {}).items()}
    found = policy.Profile(
        profile_id=body["profile_id"], selection=selection(body), environments=environments
    )
    found.version = body.get("version", 0)
    if "rollout" in body:
        plain = {name: one for name, one in body["rollout"].items() if name in {"version", "share", "by"}}
        found.rollout.CopyFrom(policy.Rollout(selection=selection(body["rollout"]), **plain))
    return found


def selection(body: Json) -> policy.Selection:
    lists = {name: policy.Names(values=body[name]) for name in ("servers", "tags", "allow") if name in body}
    return policy.Selection(deny=body.get("deny", []), **lists)


@pytest.mark.parametrize("seed", range(4))
async def test_adm_11_grpc_and_rest_give_the_same_answers(seed: int) -> None:
    asker, codes = Asker(seed), set()
    async with AsyncExitStack() as stack:
        by_rest = await stack.enter_async_context(open_grpc_world(trusts_local=False))
        by_grpc = await stack.enter_async_context(open_grpc_world(trusts_local=False))
        for _ in range(REQUESTS):
            request = asker.request(by_rest.store.revision)
            stated = await ask_rest(by_rest.rest, request)
            assert await ask_grpc(by_grpc, request) == stated, request
            codes.add(stated.code)
            for world in (by_rest, by_grpc):
                await world.rest.served()

        assert (await by_grpc.store.list()).records == (await by_rest.store.list()).records
    assert codes >= {"ok", "invalid_record", "forbidden", "unauthenticated", "not_found", "conflict"}
