"""What a model is asked over the Responses API, round by round."""

from collections.abc import Sequence

import msgspec

from toolgate.chat.calls import ToolCall
from toolgate.chat.client_tools import ToolChoice
from toolgate.chat.responses_items import function_call_output
from toolgate.chat.responses_request import ResponsesRequest
from toolgate.chat.tool_loop import AskModel
from toolgate.model.raw import Members, decode_members, encode_raw


class ResponsesTranscript:
    """One conversation. Where the model's server keeps it, each round brings only what is new."""

    def __init__(
        self,
        request: ResponsesRequest,
        *,
        model: str,
        functions: Sequence[bytes],
        choice: ToolChoice,
    ) -> None:
        """`functions` are encoded as chat completions have them."""
        self._request = request
        self._model = model
        self._items: list[msgspec.Raw] = []
        self._tools = [*request.tools.others, *map(flat_function, functions)]
        self._choice = choice

    def body(self, ask: AskModel) -> bytes:
        """The request to the model's server."""
        choice = {
            "sent": self._choice.raw,
            "auto": self._choice.after_satisfied(),
            "none": b'"none"',
        }[ask.choice]
        body: dict[str, object] = {"model": self._model, **self._request.members, "input": self._items}
        if self._tools:
            body["tools"] = self._tools
        if choice is not None and (self._tools or choice != b'"none"'):
            body["tool_choice"] = msgspec.Raw(choice)
        if self._request.is_stream:
            body["stream"] = True
        return msgspec.json.encode(body)

    def begin(self, items: Sequence[msgspec.Raw]) -> None:
        """The input."""
        self._items = list(items)

    def take(self, items: Sequence[msgspec.Raw]) -> None:
        """A reply, as its server takes it back."""
        if self._request.in_conversation:
            self._items = []
        else:
            self._items += items

    def answer(self, call: ToolCall, content: str) -> None:
        """What came of one call of the newest reply."""
        output = function_call_output(call.call_id, content)
        self._items.append(encode_raw(output))


def flat_function(encoded: bytes) -> msgspec.Raw:
    """A function of chat completions as the Responses API has it: all in one level."""
    function: Members = decode_members(decode_members(encoded)["function"])
    return encode_raw({"type": "function", **function})
