"""What a caller gets of a conversation that has ended."""

import json
from typing import Any

import msgspec
import pytest
from openai.types.chat import ChatCompletion

from toolgate.chat.completions import ClientCompletion, encode_completion, select_handed_calls
from toolgate.chat.model_completion import ModelCompletion, parse_completion

HEAD = {name: msgspec.Raw(raw) for name, raw in (("id", b'"c1"'), ("created", b"1"), ("model", b'"m"'))}


def call(call_id: str, name: str) -> dict[str, Any]:
    return {
        "id": call_id,
        "type": "function",
        "function": {"name": name, "arguments": "{}"},
        "extra": call_id,
    }


def make_completion(*calls: Any, finish_reason: str = "stop", **message: Any) -> ModelCompletion:
    sent_text = {"role": "assistant", **message} | ({"tool_calls": list(calls)} if calls else {})
    choice = {"index": 0, "message": sent_text, "finish_reason": finish_reason}
    return parse_completion(
        json.dumps({"id": "c1", "created": 1, "model": "m", "choices": [choice]}).encode()
    )


def encoded(ending: ClientCompletion) -> Any:
    encoded = encode_completion(ending)
    ChatCompletion.model_validate_json(encoded, strict=True)
    return json.loads(encoded)


def test_an_answer_is_the_message_as_the_model_wrote_it() -> None:
    response = make_completion(content="hello", reasoning_content="hm")

    assert encoded(ClientCompletion(head=HEAD, completion=response)) == {
        "id": "c1",
        "created": 1,
        "model": "m",
        "object": "chat.completion",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hello", "reasoning_content": "hm"},
                "finish_reason": "stop",
                "logprobs": None,
            }
        ],
    }


def test_calls_that_were_run_here_are_not_in_the_answer() -> None:
    shown = encoded(
        ClientCompletion(head=HEAD, completion=make_completion(call("a", "f"), finish_reason="tool_calls"))
    )

    assert shown["choices"][0]["message"] == {"role": "assistant", "content": None}
    assert shown["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize(
    ("sent_text", "shown"), [("length", "length"), ("content_filter", "content_filter"), ("eos", "stop")]
)
def test_only_reasons_that_clients_know_are_passed_on(sent_text: str, shown: str) -> None:
    assert (
        ClientCompletion(
            head=HEAD, completion=make_completion(content="a", finish_reason=sent_text)
        ).finish_reason
        == shown
    )


@pytest.mark.parametrize("last", [None, make_completion(call("a", "f"))])
def test_a_closing_is_where_the_model_has_sent_nothing(last: ModelCompletion | None) -> None:
    ending = ClientCompletion(
        head=HEAD, completion=last, closing="Stopped.", extension={"stopped": "time_limit"}
    )

    shown = encoded(ending)
    assert shown["choices"][0]["message"] == {"role": "assistant", "content": "Stopped."}
    assert shown["choices"][0]["finish_reason"] == "stop"
    assert shown["toolgate"] == {"stopped": "time_limit"}


def test_functions_of_the_caller_are_handed_over_as_the_model_called_them() -> None:
    mixed = make_completion(call("a", "ours"), call("b", "own"), call("c", "own"), content="both")
    handed = select_handed_calls(mixed, mixed.calls[1:], "tgc_x")
    usage = {
        "total_tokens": msgspec.Raw(b"3"),
        "prompt_tokens": msgspec.Raw(b"1"),
        "completion_tokens": msgspec.Raw(b"2"),
    }
    ending = ClientCompletion(head=HEAD, completion=mixed, calls=handed, usage=usage)

    shown = encoded(ending)
    message = shown["choices"][0]["message"]
    assert message["tool_calls"] == [call("b", "own") | {"id": "tgc_x"}, call("c", "own")]
    assert (message["content"], shown["choices"][0]["finish_reason"]) == ("both", "tool_calls")
    assert shown["usage"]["total_tokens"] == 3
    deltas = [json.loads(msgspec.json.encode(one))["tool_calls"][0] for one in ending.call_deltas]
    assert [(one["index"], one["id"], one["extra"]) for one in deltas] == [(0, "tgc_x", "b"), (1, "c", "c")]


def test_ids_stay_where_nothing_is_hidden() -> None:
    own = make_completion(call("b", "own"))

    assert [json.loads(bytes(one["id"])) for one in select_handed_calls(own, own.calls, None)] == ["b"]


def test_a_caller_that_knows_functions_alone_gets_one() -> None:
    own = make_completion(call("b", "own"))
    ending = ClientCompletion(
        head=HEAD, completion=own, calls=select_handed_calls(own, own.calls, None), is_legacy=True
    )

    shown = encoded(ending)
    assert shown["choices"][0]["message"]["function_call"] == {"name": "own", "arguments": "{}"}
    assert "tool_calls" not in shown["choices"][0]["message"]
    assert ending.finish_reason == "function_call"
    assert [list(one) for one in ending.call_deltas] == [["function_call"]]
