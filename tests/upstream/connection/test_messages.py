"""The headers by which modern HTTP servers check routing against the body."""

import msgspec
import pytest
from mcp.shared.inbound import decode_header_value, mcp_param_headers
from mcp.shared.inbound import encode_header_value as sdk_encode

from tests.upstream.memory_link import params
from toolgate.model.names import ToolRef
from toolgate.model.tools import ToolDefinition
from toolgate.upstream.connection.messages import build_mcp_headers, encode_header_value

CALL = "tools/call"
PATHS = ((("region",), "Region"), (("deep", "limit"), "Limit"))


def tool(
    *, param_headers: tuple[tuple[tuple[str, ...], str], ...] = (), native_name: str = ""
) -> ToolDefinition:
    return ToolDefinition(
        ref=ToolRef("one", "query"),
        raw=b"{}",
        digest="",
        tokens=0,
        native_name=native_name,
        param_headers=param_headers,
    )


@pytest.mark.parametrize(
    "text",
    [
        "plain text",
        "",
        " edge",
        "edge\t",
        "Grüße",
        "two\nlines",
        "\x00",
        "\x7f",
        "=?base64?aGk=?=",
        "=?base64?x",
        "😀",
        "a" * 5000,
    ],
)
def test_a_header_value_survives_http_exactly_as_the_official_sdk_encodes_it(text: str) -> None:
    encoded = encode_header_value(text)

    assert (encoded, decode_header_value(encoded)) == (sdk_encode(text), text)
    assert encoded.isascii()


def test_calls_that_need_only_the_name_share_one_mapping() -> None:
    first = build_mcp_headers(CALL, tool(), params("query", region="eu"))

    assert first == {"Mcp-Name": "query"}
    assert build_mcp_headers(CALL, tool(), params("query")) is first


def test_a_server_is_notified_its_own_name_of_a_tool_that_has_an_alias() -> None:
    headers = build_mcp_headers(CALL, tool(native_name="große Datei"), params("query"))

    assert headers == {"Mcp-Name": encode_header_value("große Datei")}


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        pytest.param({"region": "eu"}, {"Mcp-Param-Region": "eu"}, id="a string"),
        pytest.param({"region": "Zürich"}, {"Mcp-Param-Region": "=?base64?WsO8cmljaA==?="}, id="not ASCII"),
        pytest.param({"region": True}, {"Mcp-Param-Region": "true"}, id="a boolean"),
        pytest.param(
            {"region": 7, "deep": {"limit": -3}},
            {"Mcp-Param-Region": "7", "Mcp-Param-Limit": "-3"},
            id="integers, one nested",
        ),
        pytest.param({"region": 10**30}, {"Mcp-Param-Region": str(10**30)}, id="a large integer"),
        pytest.param({"region": None}, {}, id="null is no value"),
        pytest.param({"region": ["eu"], "deep": {"limit": {}}}, {}, id="what has no header form"),
        pytest.param({"deep": "flat"}, {}, id="a path that does not exist"),
        pytest.param({}, {}, id="nothing"),
    ],
)
def test_annotated_arguments_are_mirrored(arguments: dict[str, object], expected: dict[str, str]) -> None:
    mirrored = build_mcp_headers(CALL, tool(param_headers=PATHS), params("query", **arguments))

    assert mirrored == {"Mcp-Name": "query", **expected}
    by_sdk = mcp_param_headers(dict(PATHS), arguments)
    assert {name.lower(): value for name, value in by_sdk.items()} == {
        name.lower(): value for name, value in expected.items()
    }


def test_a_call_without_arguments_mirrors_none() -> None:
    bare = {"name": msgspec.Raw(b'"query"')}

    assert build_mcp_headers(CALL, tool(param_headers=PATHS), bare) == {"Mcp-Name": "query"}


@pytest.mark.parametrize(
    ("method", "members", "expected"),
    [
        ("prompts/get", {"name": "greet", "arguments": {}}, {"Mcp-Name": "greet"}),
        ("prompts/get", {"name": "grüße"}, {"Mcp-Name": "=?base64?Z3LDvMOfZQ==?="}),
        ("resources/read", {"uri": "file:///a b"}, {"Mcp-Name": "file:///a b"}),
        ("resources/read", {"uri": 7}, {}),
        ("resources/read", {}, {}),
        ("completion/complete", {"name": "greet"}, {}),
    ],
)
def test_prompts_and_resources_are_named_by_their_own_params(
    method: str, members: dict[str, object], expected: dict[str, str]
) -> None:
    sent = {name: msgspec.Raw(msgspec.json.encode(value)) for name, value in members.items()}

    assert build_mcp_headers(method, None, sent) == expected
