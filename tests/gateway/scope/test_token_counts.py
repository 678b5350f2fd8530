"""What results cost a model, by an estimate that looks at sizes alone."""

import json

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from toolgate.catalog.definitions import estimate_tokens
from toolgate.gateway.scope.token_counts import MEDIA_TOKENS, PER_BYTES, TOKENS, estimate_result
from toolgate.upstream.connection.contract import RpcResponse

PROSE = "The gateway lists what a task may use, and calls go through the same table. "
LISTING = msgspec.json.encode([{"path": f"src/{n}.py", "size": 17 * n, "is_open": True} for n in range(9)])


def result(**members: object) -> RpcResponse:
    return RpcResponse(msgspec.json.encode(members))


def text(encoded: str) -> dict[str, str]:
    return {"type": "text", "text": encoded}


@pytest.mark.parametrize("encoded", [PROSE * 9, LISTING.decode()], ids=["prose", "json"])
def test_an_estimate_is_near_what_the_definitions_are_counted_by(encoded: str) -> None:
    counted = estimate_tokens(msgspec.json.encode(encoded))

    assert estimate_result(result(content=[text(encoded)])) == pytest.approx(counted, rel=0.35)


@pytest.mark.parametrize(
    ("rpc", "expected"),
    [
        pytest.param(result(content=[text("x" * 33)]), 10, id="a text is counted with its quotes"),
        pytest.param(result(content=[text("x" * 33)], structuredContent={"a": "x" * 99}), 10, id="once"),
        pytest.param(result(content=[], structuredContent={"a": "x" * 27}), 10, id="an object alone"),
        pytest.param(result(content=[], isError=False), 0, id="nothing"),
        pytest.param(
            result(content=[{"type": "image", "data": "A" * 90_000}, text("x" * 33)]),
            MEDIA_TOKENS + 10,
            id="a picture costs the same however large it is",
        ),
        pytest.param(
            result(content=[{"type": "resource", "resource": {"text": "x" * 24}}]), 10, id="a resource"
        ),
        pytest.param(result(content="x" * 33), 10, id="invalid content"),
        pytest.param(result(messages=["x" * 31]), 10, id="a prompt"),
        pytest.param(RpcResponse(error=b'{"code":-1}'), 0, id="an error"),
    ],
)
def test_what_a_result_costs(rpc: RpcResponse, expected: int) -> None:
    assert estimate_result(RpcResponse(members=rpc.members) if rpc.members else rpc) == expected


@given(
    blocks=st.lists(
        st.dictionaries(
            st.sampled_from(("type", "text", "x")), st.sampled_from(("text", "a", '"', "}]", "\\"))
        ),
        max_size=2,
    ),
    is_spaced=st.booleans(),
)
@example(blocks=[{"type": "text", "text": "a"}], is_spaced=False)
@example(blocks=[{"type": "text", "text": 'say "a"'}], is_spaced=False)
@example(blocks=[{"type": "text", "text": "", "x": "a"}], is_spaced=False)
def test_a_text_alone_costs_what_it_does_among_others(blocks: list[dict[str, str]], is_spaced: bool) -> None:
    """What is told at a look, and what is read block by block, is one number."""
    content = json.dumps(blocks, separators=(", ", ": ") if is_spaced else (",", ":")).encode()
    quoted = sum(len(json.dumps(block["text"])) for block in blocks if "text" in block)

    rpc = RpcResponse(members={"content": msgspec.Raw(content)})
    assert estimate_result(rpc) == quoted * TOKENS // PER_BYTES
