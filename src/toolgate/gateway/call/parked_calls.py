"""Calls that wait for input of a client that cannot be asked while they run.

A session-based server asks in the middle of a call; a stateless client answers by sending its request again.
So the call runs as its own task. When its server asks, it is parked under a handle, and the next request with
the handle brings the answers. Only this node has a parked call, for a while; it takes no slot of its server.
A handle works once, and only for the credential that began the call.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from toolgate.errors import InputStateRefused, SessionLimit, ToolgateError
from toolgate.gateway.call.elicitation import (
    MAX_ROUNDS,
    UNSUPPORTED,
    ApprovalElicitation,
    ElicitedAnswer,
    can_answer,
    missing_capability,
    too_many_rounds,
)
from toolgate.model.protocol import CAPABILITY_OF
from toolgate.upstream.connection.contract import CALL_CEILING_S, RpcResponse
from toolgate.upstream.pool.pool import ServerResponse

MAX_PARKED: Final = 1_024
MAX_PARKED_EACH: Final = 64
"""Calls on a node, and of one principal. Each holds a task and a connection's state."""
MAX_PARKED_BYTES: Final = 64 * 1024 * 1024
MAX_PARKED_BYTES_EACH: Final = 16 * 1024 * 1024
"""Bytes of their requests together: a parked call keeps its arguments."""

Notify = Callable[[str, bytes], None]


@dataclass(frozen=True, slots=True)
class ServerQuestion:
    """A question of a server, and the future that its answer goes into."""

    method: str
    params: bytes
    answer: asyncio.Future[RpcResponse]


@dataclass(frozen=True, slots=True)
class PendingInput:
    """A parked call: it continues when the handle comes back with answers to these questions."""

    handle: str
    questions: Mapping[str, ServerQuestion]


class ParkableCall:
    """One call, and the `ClientChannel` that its server sees."""

    has_session: Final = False

    def __init__(
        self,
        principal_id: str,
        capabilities: bytes,
        log_level: str,
        *,
        size: int = 0,
        elicited: ElicitedAnswer | None = None,
        credential: str | None = None,
    ) -> None:
        """`size` is that of the request in bytes. `elicited`: the user's answer to our earlier question."""
        self.size = size
        self.elicited = elicited
        self.elicitation_due: ApprovalElicitation | None = None
        """The question to the client's user, because of which the call was refused for now."""
        self.principal_id = principal_id
        self.credential = principal_id if credential is None else credential
        """The credential that may continue the call: another token of the same subject may not."""
        self.capabilities = capabilities
        self.log_level = log_level
        self.rounds = 0
        self._questions: dict[str, ServerQuestion] = {}
        self._numbers = iter(range(1, 1_000_000))
        self._listener: Notify | None = None
        self._woken: asyncio.Future[None] | None = None
        self._failure: ToolgateError | None = None
        self._task: asyncio.Task[ServerResponse] | None = None

    # As the server's connection sees it

    def notify(self, method: str, params: bytes) -> None:
        if self._listener is not None:
            self._listener(method, params)

    async def ask(self, method: str, params: bytes) -> RpcResponse:
        if method not in CAPABILITY_OF:
            return UNSUPPORTED
        if not can_answer(self.capabilities, method, params):
            self._failure = missing_capability(method, params)
            self.cancel()
            self._wake()
            return UNSUPPORTED
        answer: asyncio.Future[RpcResponse] = asyncio.get_running_loop().create_future()
        key = f"{CAPABILITY_OF[method]}-{next(self._numbers)}"
        self._questions[key] = ServerQuestion(method, params, answer)
        self._wake()
        try:
            return await answer
        finally:
            self._questions.pop(key, None)

    # As `ParkedCalls` sees it

    def start(self, call: Coroutine[Any, Any, ServerResponse]) -> None:
        self._task = asyncio.get_running_loop().create_task(call)
        self._task.add_done_callback(self._on_done)

    async def wait_for_turn(self, listener: Notify) -> ServerResponse | Mapping[str, ServerQuestion]:
        """The response to the call, or the questions of its server. `listener` gets notifications meanwhile.

        Raises what the call raises. Cancelling this cancels the call.
        """
        assert self._task is not None  # started
        self._listener = listener
        try:
            while not (self._task.done() or self._questions or self._failure):
                self._woken = asyncio.get_running_loop().create_future()
                await self._woken
        except asyncio.CancelledError:
            self.cancel()
            raise
        finally:
            self._listener = self._woken = None
        if self._failure is not None:
            raise self._failure
        return self._task.result() if self._task.done() else dict(self._questions)

    def answer(self, responses: Mapping[str, msgspec.Raw]) -> None:
        """Pass on the client's answers. Unasked or repeated ones have no effect."""
        for key, response in responses.items():
            question = self._questions.pop(key, None)
            if question is not None and not question.answer.done():
                question.answer.set_result(RpcResponse(result=bytes(response)))

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _wake(self) -> None:
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)

    def _on_done(self, task: asyncio.Task[ServerResponse]) -> None:
        if not task.cancelled():
            task.exception()  # retrieved: no one may come back for it
        self._wake()


class ParkedCalls:
    """The parked calls of a node."""

    def __init__(self) -> None:
        self._parked: dict[str, tuple[ParkableCall, asyncio.TimerHandle]] = {}
        self._held: Counter[str] = Counter()
        self._bytes: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._parked)

    async def run(
        self, call: ParkableCall, work: Coroutine[Any, Any, ServerResponse], listener: Notify
    ) -> ServerResponse | PendingInput:
        """Begin `work`, whose client is `call`."""
        call.start(work)
        return await self._wait(call, listener)

    async def resume(
        self, handle: str, credential: str, responses: Mapping[str, msgspec.Raw], listener: Notify
    ) -> ServerResponse | PendingInput:
        """Continue a parked call. Raises InputStateRefused for an invalid handle."""
        parked = self._parked.get(handle)
        if parked is None or parked[0].credential != credential:
            raise InputStateRefused(
                "no call waits for this input here",
                hint="it has ended, or another node has it: send the request again without `requestState`",
            )
        call = self._remove(handle)
        call.answer(responses)
        return await self._wait(call, listener)

    def close(self) -> None:
        """Cancel all of them."""
        for handle in tuple(self._parked):
            self._expire(handle)

    async def _wait(self, call: ParkableCall, listener: Notify) -> ServerResponse | PendingInput:
        turn = await call.wait_for_turn(listener)
        return turn if isinstance(turn, ServerResponse) else PendingInput(self._park(call), turn)

    def _park(self, call: ParkableCall) -> str:
        call.rounds += 1
        if call.rounds > MAX_ROUNDS:
            call.cancel()
            raise too_many_rounds()
        principal_id = call.principal_id
        if (
            len(self._parked) >= MAX_PARKED
            or self._held[principal_id] >= MAX_PARKED_EACH
            or self._bytes.total() + call.size > MAX_PARKED_BYTES
            or self._bytes[principal_id] + call.size > MAX_PARKED_BYTES_EACH
        ):
            call.cancel()
            raise SessionLimit("too many calls wait for input", hint="answer or give up some of them")
        handle = secrets.token_urlsafe(16)
        timer = asyncio.get_running_loop().call_later(CALL_CEILING_S, self._expire, handle)
        self._parked[handle] = (call, timer)
        self._held[principal_id] += 1
        self._bytes[principal_id] += call.size
        return handle

    def _expire(self, handle: str) -> None:
        self._remove(handle).cancel()

    def _remove(self, handle: str) -> ParkableCall:
        call, timer = self._parked.pop(handle)
        timer.cancel()
        self._held[call.principal_id] -= 1
        self._bytes[call.principal_id] -= call.size
        if not self._held[call.principal_id]:
            del self._held[call.principal_id], self._bytes[call.principal_id]
        return call
