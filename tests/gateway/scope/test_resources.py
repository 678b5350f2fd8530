"""Which server a URI leads to, which names a view lists, and what goes on to the server."""

import json
from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import msgspec
import pytest

from toolgate.catalog.definitions import check_tools
from toolgate.catalog.listings import check_prompts, check_resources, check_templates
from toolgate.errors import InvalidParams, MethodNotFound, UnknownPrompt, UnknownResource
from toolgate.gateway.auth.identity import LOCAL_ADMIN
from toolgate.gateway.call.targets import find_target
from toolgate.gateway.scope.caller import Caller
from toolgate.gateway.scope.routes import alias_of
from toolgate.gateway.scope.view import View, ViewCache, ViewSettings
from toolgate.model.names import ToolRef
from toolgate.model.servers import ServerRecord
from toolgate.model.tools import ListKind, Revision, ServerTools, Snapshot
from toolgate.policy.compose import compose, decide_one
from toolgate.policy.layers import SessionRequest
from toolgate.policy.resolve import ScopeInputs
from toolgate.policy.scope import Decision

EVERYTHING = ("*", "prompt:*", "resource:*")
INFO = b'{"name":"toolgate"}'


def server(
    server_id: str,
    *,
    tools: Sequence[str] = (),
    prompts: Sequence[str] = (),
    resources: Sequence[str] = (),
    templates: Sequence[str] = (),
    allowed: tuple[str, ...] = EVERYTHING,
) -> ServerTools:
    """A server that announces all it can."""

    def spelled(key: str, names: Sequence[str]) -> list[bytes]:
        return [json.dumps({key: name, "name": name} | {key: name}).encode() for name in names]

    return ServerTools(
        record=ServerRecord(server_id=server_id, transport="stdio", allowed_tools=allowed),
        state="ready",
        tools=check_tools(server_id, spelled("name", tools))[0],
        prompts=check_prompts(server_id, spelled("name", prompts))[0],
        resources=check_resources(server_id, spelled("uri", resources))[0],
        templates=check_templates(server_id, spelled("uriTemplate", templates))[0],
        features=frozenset({"tools", "prompts", "resources", "completions"}),
    )


def view_of(
    *servers: ServerTools, request: SessionRequest | None = None, only_server: str | None = None
) -> View:
    caller = Caller(LOCAL_ADMIN, request=request or SessionRequest(), only_server=only_server)
    platform = Snapshot(servers=MappingProxyType({one.record.server_id: one for one in servers}))
    ceiling = caller.principal.ceiling

    def decide(ref: ToolRef) -> Decision:
        return decide_one(ScopeInputs(platform, ceiling, request=caller.request), ref)

    scope = compose(ScopeInputs(platform, ceiling, request=caller.request))
    return View(
        caller, scope, platform, ViewSettings(page_size=2, decide=decide, on_growth=ViewCache().on_growth)
    )


def found(view: View, uri: str) -> str | None:
    """Where `uri` leads to, as a pattern would name it."""
    route = view.find_resource(uri)
    return None if route is None else str(ToolRef(route.server_id, route.name))


def listed(view: View, kind: ListKind, era: Revision = "modern") -> list[str]:
    member = {"templates": "resourceTemplates"}.get(kind, kind)
    key = {"resources": "uri", "templates": "uriTemplate"}.get(kind, "name")
    names: list[str] = []
    cursor: str | None = None
    while True:
        page: dict[str, Any] = msgspec.json.decode(view.page(kind, era, cursor, INFO))
        names += [entry[key] for entry in page[member]]
        cursor = page.get("nextCursor")
        if cursor is None:
            return names


@pytest.mark.parametrize("era", ["legacy", "modern"])
def test_each_list_is_paged_and_shows_what_the_scope_admits(era: Revision) -> None:
    view = view_of(
        server("fs", tools=["read"], prompts=["c", "a", "b"], resources=["f:/2", "f:/1", "f:/3"]),
        server("git", prompts=["a"], templates=["g:/{x}"], resources=["g:/1"]),
    )

    assert listed(view, "tools", era) == ["fs.read"]
    assert listed(view, "prompts", era) == ["fs.a", "fs.b", "fs.c", "git.a"]
    assert listed(view, "resources", era) == ["f:/1", "f:/2", "f:/3", "g:/1"]
    assert listed(view, "templates", era) == ["g:/{x}"]


def test_on_a_single_servers_path_prompts_have_bare_names() -> None:
    assert listed(view_of(server("fs", prompts=["a"]), only_server="fs"), "prompts") == ["a"]


def test_a_uri_that_several_servers_list_is_listed_for_each_under_an_alias() -> None:
    view = view_of(
        server("a", resources=["f:/x y", "f:/a"], templates=["f:/{x}/{y}"]),
        server("b", resources=["f:/x y"], templates=["f:/{x}/{y}"]),
    )

    assert listed(view, "resources") == ["f:/a", "toolgate://s/a/f%3A%2Fx%20y", "toolgate://s/b/f%3A%2Fx%20y"]
    assert listed(view, "templates") == ["toolgate://s/a/f:/{x}/{y}", "toolgate://s/b/f:/{x}/{y}"]
    assert [found(view, uri) for uri in listed(view, "resources")] == [
        "resource:a/f:/a",
        "resource:a/f:/x y",
        "resource:b/f:/x y",
    ]
    assert found(view, "toolgate://s/b/f:/1/2%2F3") == "resource:b/f:/1/2%2F3"
    assert found(view, "toolgate://s/b/f:/{x}/{y}") == "resource:b/f:/{x}/{y}"
    assert found(view, "f:/x y") is None


def test_a_template_does_not_decide_between_servers_that_list_the_same_uri() -> None:
    view = view_of(server("a", resources=["f:/x"], templates=["f:/{x}"]), server("b", resources=["f:/x"]))

    assert found(view, "f:/x") is None
    assert found(view, "f:/y") == "resource:a/f:/y"


def test_sco_22_an_alias_never_leads_past_the_scope() -> None:
    hidden = server("git", resources=["g:/1"])
    denied = server("fs", resources=["f:/1"], allowed=("*",))
    view = view_of(
        server("a", resources=["a:/1"]), denied, hidden, request=SessionRequest(servers=("a", "fs"))
    )

    assert found(view, alias_of("a", "a:/1")) == "resource:a/a:/1"
    assert found(view, alias_of("git", "g:/1")) is None
    assert found(view, alias_of("fs", "f:/1")) is None
    assert found(view, alias_of("ghost", "f:/1")) is None
    assert found(view, "toolgate://s/") is None


def test_a_server_cannot_list_its_way_into_another_ones_alias() -> None:
    forged = alias_of("bank", "b:/1")
    view = view_of(server("bank", resources=["b:/1"]), server("evil", resources=[forged]))

    assert found(view, forged) == "resource:bank/b:/1"
    assert listed(view, "resources") == ["b:/1", alias_of("evil", forged)]
    assert found(view, alias_of("evil", forged)) == f"resource:evil/{forged}"


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        pytest.param("f:/1", "resource:fs/f:/1", id="listed"),
        pytest.param("g:/docs/7", "resource:git/g:/docs/7", id="fits the template of one server"),
        pytest.param("g:/docs/7/8", None, id="fits none, and two servers could have it"),
        pytest.param("both:1", None, id="fits templates of two servers"),
        pytest.param("g:/docs/secret", None, id="fits a template and is denied by itself"),
        pytest.param("g:/" + "x" * 3_000, None, id="longer than a URI may be"),
        pytest.param("toolgate://s/fs/" + "f" * 9_000, None, id="an alias longer than one may be"),
    ],
)
def test_a_uri_leads_to_the_one_server_that_must_be_meant(uri: str, expected: str | None) -> None:
    view = view_of(
        server("fs", resources=["f:/1"], templates=["both:{x}"]),
        server("git", templates=["g:/docs/{x}", "both:{x}"]),
        request=SessionRequest(deny=("resource:g:/docs/secret",)),
    )

    assert found(view, uri) == expected


@pytest.mark.parametrize("uri", ["f:/other", "ui://widget"])
def test_an_unlisted_uri_is_left_to_the_only_server_with_resources(uri: str) -> None:
    with_none = replace(server("calc", tools=["add"]), features=frozenset({"tools"}))
    denied = server("git", resources=["g:/1"], allowed=("*",))

    assert found(view_of(server("fs"), with_none, denied), uri) == f"resource:fs/{uri}"
    assert found(view_of(server("fs", allowed=("*", "resource:g:*"))), uri) is None
    assert found(view_of(with_none), uri) is None


def test_features_are_what_the_caller_can_have() -> None:
    shows_tools = server("fs", tools=["read"], prompts=["a"], resources=["f:/1"], allowed=("*",))

    assert view_of(shows_tools).features == {"tools", "completions"}
    assert view_of(shows_tools, server("git")).features == {"tools", "prompts", "resources", "completions"}


def test_the_signature_of_a_list_changes_exactly_when_the_list_does() -> None:
    before = view_of(server("fs", tools=["read"], prompts=["a"])).signatures
    after = view_of(server("fs", tools=["read"], prompts=["a", "b"])).signatures
    same = view_of(server("fs", tools=["read"], prompts=["a", "b"]), server("git")).signatures

    assert {kind for kind in before if before[kind] != after[kind]} == {"prompts"}
    assert same == after


def test_callers_without_a_session_share_state_only_with_themselves() -> None:
    fs = server("fs", tools=["read"])
    one, same = view_of(fs), view_of(fs, server("git"))
    other = view_of(fs, request=SessionRequest(servers=("fs",)))

    assert one.session_key == same.session_key
    assert one.session_key != other.session_key
    assert view_of(fs, only_server="fs").session_key != one.session_key


def wanted(view: View, method: str, **params: Any) -> dict[str, Any]:
    """What goes on to the server."""
    raw = {key: msgspec.Raw(msgspec.json.encode(value)) for key, value in params.items()}
    route = find_target(view, method, raw).route
    assert route is not None
    return {"to": route.server_id, **{key: msgspec.json.decode(value) for key, value in raw.items()}}


VIEW = view_of(
    server("fs", prompts=["greet"], resources=["f:/1"], templates=["f:/{x}/{y}"]),
    server("git", prompts=["greet"], resources=["f:/1"]),
)


def test_a_request_goes_on_under_its_servers_own_names() -> None:
    argument = {"name": "x", "value": "a"}

    assert wanted(VIEW, "prompts/get", name="git.greet", arguments={"a": "b"}) == {
        "to": "git",
        "name": "greet",
        "arguments": {"a": "b"},
    }
    assert wanted(VIEW, "resources/read", uri=alias_of("git", "f:/1")) == {"to": "git", "uri": "f:/1"}
    assert wanted(
        VIEW, "completion/complete", argument=argument, ref={"type": "ref/prompt", "name": "fs.greet"}
    ) == {
        "to": "fs",
        "argument": argument,
        "ref": {"type": "ref/prompt", "name": "greet"},
    }
    assert wanted(VIEW, "completion/complete", ref={"type": "ref/resource", "uri": "f:/{x}/{y}"}) == {
        "to": "fs",
        "ref": {"type": "ref/resource", "uri": "f:/{x}/{y}"},
    }


@pytest.mark.parametrize(
    ("method", "params", "name", "error"),
    [
        ("prompts/get", {"name": "greet"}, "prompt:greet", UnknownPrompt("Unknown prompt: greet")),
        ("resources/read", {"uri": "f:/1"}, "resource:f:/1", UnknownResource("Resource not found")),
        (
            "completion/complete",
            {"ref": {"type": "ref/prompt", "name": "hg.greet"}},
            "prompt:hg.greet",
            UnknownPrompt("Unknown prompt: hg.greet"),
        ),
    ],
)
def test_sco_22_what_is_not_there_and_what_is_hidden_answer_alike(
    method: str, params: dict[str, Any], name: str, error: Exception
) -> None:
    raw = {key: msgspec.Raw(msgspec.json.encode(value)) for key, value in params.items()}

    missing = find_target(VIEW, method, raw)

    assert (missing.route, missing.name, str(missing.unknown)) == (None, name, str(error))
    assert type(missing.unknown) is type(error)


@pytest.mark.parametrize(
    ("method", "params", "message"),
    [
        ("prompts/get", {}, "`name` must be a string"),
        ("prompts/get", {"name": 5}, "`name` must be a string"),
        ("prompts/get", {"name": ""}, "`name` is empty"),
        ("resources/read", {"uri": None}, "`uri` must be a string"),
        ("completion/complete", {}, "`ref` must be an object"),
        ("completion/complete", {"ref": []}, "`ref` must be an object"),
        ("completion/complete", {"ref": {}}, "`type` must be a string"),
        (
            "completion/complete",
            {"ref": {"type": "ref/tool", "name": "x"}},
            "`ref.type` must be `ref/prompt` or `ref/resource`",
        ),
    ],
)
def test_params_that_name_nothing_are_invalid(method: str, params: dict[str, Any], message: str) -> None:
    raw = {key: msgspec.Raw(msgspec.json.encode(value)) for key, value in params.items()}

    with pytest.raises(InvalidParams) as caught:
        find_target(VIEW, method, raw)

    assert str(caught.value) == message


def test_no_other_method_is_carried() -> None:
    with pytest.raises(MethodNotFound, match="no method `tasks/get`"):
        find_target(VIEW, "tasks/get", {})


@pytest.mark.parametrize("template", ["file:///pub/{x}", "file:///{+x}", "other:///{x}"])
@pytest.mark.parametrize(
    "uri",
    ["file:///pub/../priv/a", "file:///pub/%2e%2e/priv/a", "file:///pub/..%2Fpriv/a", "file:///pub/a\0.b"],
)
def test_sco_2_no_way_leads_out_of_what_a_pattern_allows(template: str, uri: str) -> None:
    """A server may take the URI for a path, and follow it."""
    allowed = ("resource:file:///pub/*", f"resource:{template}")
    view = view_of(server("fs", templates=[template], allowed=allowed))

    assert view.find_resource("file:///pub/b") is not None
    assert view.find_resource(uri) is view.find_resource(alias_of("fs", uri)) is None


@pytest.mark.parametrize(
    "uri",
    ["file:////priv/a", "FILE:///priv/a", "file:///%70riv/a", "file://localhost/priv/a", "file:///./priv/a"],
)
def test_sco_2_what_is_denied_is_denied_however_it_is_spelled(uri: str) -> None:
    request = SessionRequest(deny=("resource:file:///priv/*",))
    view = view_of(server("fs", templates=["file:///{+x}"]), request=request)

    assert view.find_resource(uri) is view.find_resource("file:///priv/a") is None
    assert view.find_resource(uri.replace("priv", "pub").replace("%70riv", "%70ub")) is not None
