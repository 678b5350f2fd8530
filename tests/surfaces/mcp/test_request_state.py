"""States that clients of the stateless era hand back."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolgate.errors import InputStateRefused, ServerUnavailable
from toolgate.gateway.auth.signing import Signer
from toolgate.surfaces.mcp.input_required import (
    MAX_STATE_BYTES,
    STATE_LIFETIME_S,
    SealedState,
    StateSealer,
    request_digest,
)
from toolgate.upstream.connection.contract import Params

KEY = b"k" * 32


def raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(msgspec.json.encode(value))


class Clock:
    now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


def test_a_state_comes_back_as_it_was_sealed_on_any_node_with_the_key() -> None:
    state = StateSealer(Signer(KEY), Clock()).seal("server", "théirs", credential="ada", request="r")

    opened = StateSealer(Signer(KEY), Clock()).open(raw(state), credential="ada", request="r")

    assert opened == SealedState("server", "théirs", "ada", "r", 1_000 + STATE_LIFETIME_S)


@pytest.mark.parametrize(
    ("principal", "request_"), [("eve", "r"), ("ada", "another")], ids=["principal", "request"]
)
def test_a_state_of_another_principal_or_request_is_refused(principal: str, request_: str) -> None:
    seals = StateSealer(Signer(KEY), Clock())
    state = seals.seal("parked", "handle", credential="ada", request="r")

    with pytest.raises(InputStateRefused):
        seals.open(raw(state), credential=principal, request=request_)


def test_a_state_lasts_for_a_while() -> None:
    clock = Clock()
    seals = StateSealer(Signer(KEY), clock)
    state = raw(seals.seal("again", "", credential="ada", request="r"))
    clock.now_s += STATE_LIFETIME_S
    seals.open(state, credential="ada", request="r")
    clock.now_s += 1

    with pytest.raises(InputStateRefused, match="expired"):
        seals.open(state, credential="ada", request="r")


@pytest.mark.parametrize("value", [None, 7, "", "x", "ünsigned", {"a": 1}, "A" * 100])
def test_what_was_never_sealed_is_refused(value: object) -> None:
    with pytest.raises(InputStateRefused):
        StateSealer(Signer(KEY), Clock()).open(raw(value), credential="ada", request="r")


@given(position=st.integers(min_value=0), replacement=st.sampled_from("ABab09-_"))
def test_a_state_with_any_character_changed_is_refused(position: int, replacement: str) -> None:
    seals = StateSealer(Signer(KEY), Clock())
    state = seals.seal("server", "theirs", credential="ada", request="r")
    at = position % len(state)
    if state[at] == replacement:
        return

    with pytest.raises(InputStateRefused):
        seals.open(raw(state[:at] + replacement + state[at + 1 :]), credential="ada", request="r")


def test_a_token_signed_for_another_purpose_or_with_another_key_is_no_state() -> None:
    payload = msgspec.json.encode(SealedState("parked", "h", "ada", "r", 9_999))
    seals = StateSealer(Signer(KEY), Clock())

    for token in (Signer(KEY).sign(b"session", payload), Signer(b"x" * 32).sign(b"requestState", payload)):
        with pytest.raises(InputStateRefused):
            seals.open(raw(token.decode()), credential="ada", request="r")


def test_a_server_cannot_make_clients_carry_a_load() -> None:
    with pytest.raises(ServerUnavailable, match="longer"):
        StateSealer(Signer(KEY), Clock()).seal(
            "server", "x" * (MAX_STATE_BYTES + 1), credential="a", request="r"
        )


def test_a_digest_tells_requests_apart_and_not_the_rounds_of_one() -> None:
    asked: Params = {"name": raw("t"), "arguments": raw({"a": 1, "b": 2})}
    again: Params = {
        "arguments": raw({"b": 2, "a": 1}),
        "name": raw("t"),
        "requestState": raw("s"),
        "inputResponses": raw({}),
        "_meta": raw({"progressToken": 2}),
    }
    other: Params = {**asked, "arguments": raw({"a": 1, "b": 3})}

    digest = request_digest("tools/call", asked, server_id="one")

    assert digest == request_digest("tools/call", again, server_id="one")
    assert digest != request_digest("tools/call", other, server_id="one")
    assert digest != request_digest("prompts/get", asked, server_id="one")
    assert digest != request_digest("tools/call", asked, server_id="two")
