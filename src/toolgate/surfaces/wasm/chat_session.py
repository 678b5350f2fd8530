"""What the descriptors of chats stand for: sessions, which guests fill, and the answers to what they send.

All of it is kept by the host, and bounded: for one session, and for all that a guest has open.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final

import msgspec

from toolgate.chat.messages import MAX_MESSAGES
from toolgate.chat.requests import ChatRequest, parse_chat_request
from toolgate.errors import BodyTooLarge
from toolgate.model.raw import Members, encode_raw
from toolgate.surfaces.wasm.guest_tools import Arena, GuestTool
from toolgate.surfaces.wasm.session_params import SessionParams
from toolgate.wasm.faults import Errno, Fault
from toolgate.wasm.fds import EPOLLIN, EPOLLOUT, Entry, FdTable

MAX_SESSION_BYTES: Final = 4 * 1024 * 1024
"""Of the messages of one session, and as many of its tools."""
MAX_GUEST_TOOLS: Final = 128
"""As many as most models' servers take."""
MAX_KEPT_BYTES: Final = 32 * 1024 * 1024
"""Of all sessions and answers that a guest has open. What one send adds is bounded by its budgets."""


class ChatEntry(Entry):
    """A session or an answer."""


class ChatSession(ChatEntry):
    """Messages, parameters and tools of a guest's own, from which requests are made."""

    kind = "ChatSession"

    def __init__(self) -> None:
        super().__init__()
        self.params = SessionParams()
        self.tools: dict[str, GuestTool] = {}
        self._messages: list[msgspec.Raw] = []
        self._bytes = 0
        self._tool_bytes = 0
        self._is_sending = False

    @property
    def kept_bytes(self) -> int:
        """What the host keeps for it."""
        return self._bytes + self._tool_bytes + self.params.size

    @property
    def arena(self) -> Arena:
        return Arena(*self.params.arena)

    def poll_mask(self) -> int:
        return 0 if self._is_sending else EPOLLOUT

    def write_message(self, message: msgspec.Raw) -> None:
        """One more. Fault ENOMEM where there are too many, or too much in them."""
        if self._bytes + len(message) > MAX_SESSION_BYTES or len(self._messages) >= MAX_MESSAGES:
            raise Fault(Errno.ENOMEM)
        self._messages.append(message)
        self._bytes += len(message)

    def write_tool(self, tool: GuestTool) -> None:
        """One more; of two with one name the first stays. Fault ENOMEM as with messages."""
        if tool.name in self.tools:
            return
        is_too_much = self._tool_bytes + len(tool.declared) > MAX_SESSION_BYTES
        if is_too_much or len(self.tools) >= MAX_GUEST_TOOLS:
            raise Fault(Errno.ENOMEM)
        self.tools[tool.name] = tool
        self._tool_bytes += len(tool.declared)

    def request(self) -> ChatRequest:
        """What is asked now. Raises InvalidChat and BodyTooLarge."""
        if self._bytes > MAX_SESSION_BYTES:
            raise BodyTooLarge(
                f"the messages of this session are more than {MAX_SESSION_BYTES} bytes",
                hint="go on with a new session, and tell it what matters",
            )
        members: Members = {**self.params.forwarded, "messages": encode_raw(self._messages)}
        if self.params.model:
            members["model"] = encode_raw(self._model())
        if self.tools:
            members["tools"] = encode_raw([tool.declared for tool in self.tools.values()])
        return parse_chat_request(members)

    @contextmanager
    def sending(self) -> Iterator[None]:
        """While this is entered nothing else can be sent: two would tell one story each."""
        if self._is_sending:
            raise Fault(Errno.EAGAIN)
        self._is_sending = True
        try:
            yield
        finally:
            self._is_sending = False

    def go_on_with(self, history: Sequence[msgspec.Raw], *, of: ChatRequest) -> None:
        """What was said stands from now on where the messages of a request stood, before later ones."""
        later = self._messages[len(of.messages) :]
        self._messages = [*history, *later]
        self._bytes = sum(map(len, self._messages))

    def close(self) -> None:
        self._messages, self._bytes, self.tools = [], 0, {}

    def _model(self) -> str:
        backend, model = self.params.backend, self.params.model
        return f"{backend}/{model}" if backend else model


class ChatResponse(ChatEntry):
    """An answer, from when there is one; it can be read as often as one likes."""

    kind = "ChatResponse"

    def __init__(self) -> None:
        super().__init__()
        self.body: bytes | None = None
        self.usage: Members = {}

    @property
    def kept_bytes(self) -> int:
        return 0 if self.body is None else len(self.body)

    def poll_mask(self) -> int:
        return 0 if self.body is None else EPOLLIN

    def metrics(self) -> Mapping[str, object]:
        return self.usage

    def close(self) -> None:
        self.body, self.usage = None, {}


def check_kept(fds: FdTable) -> None:
    """Fault ENOMEM where a guest has as much open as it may."""
    chats = (entry for entry in fds.entries().values() if isinstance(entry, ChatSession | ChatResponse))
    if sum(chat.kept_bytes for chat in chats) >= MAX_KEPT_BYTES:
        raise Fault(Errno.ENOMEM)
