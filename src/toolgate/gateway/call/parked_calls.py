"""Calls that wait for input of a client that cannot be asked while they run.

A legacy server asks in the middle of a call; a modern client answers by sending its request again. So the
call runs as a task of its own: when its server asks, it is parked under a handle, and whoever brings the
handle back brings the answers. A parked call is this node's alone, lasts for a while, and costs its server
no place. A handle is good for once.
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
"""On a node, and of one principal."""
MAX_PARKED_BYTES: Final = 64 * 1024 * 1024
MAX_PARKED_BYTES_EACH: Final = 16 * 1024 * 1024
"""What their requests may have in all: a parked call keeps its arguments."""

Notify = Callable[[str, bytes], None]


@dataclass(frozen=True, slots=True)
class ServerQuestion:
    """What a server wants to know, and waits to be told."""

    method: str
    params: bytes
    answer: asyncio.Future[RpcResponse]


@dataclass(frozen=True, slots=True)
class PendingInput:
    """A call that goes on when the handle comes back with answers to these."""

    handle: str
    questions: Mapping[str, ServerQuestion]


class ParkableCall:
    """One call, and the client behind it as far as it can be reached. Also the call's `ClientChannel`."""

    has_session: Final = False

    def __init__(
        self,
        principal_id: str,
        capabilities: bytes,
        log_level: str,
        *,
        size: int = 0,
        agreement: ElicitedAnswer | None = None,
    ) -> None:
        """`size` is what the request has in bytes."""
        self.size = size
        self.elicited = agreement
        """What its client says to what it was asked the time before: whether the call may be made."""
        self.elicitation_due: ApprovalElicitation | None = None
        """What the client is to be asked before the call is made: it was refused for now."""
        self.principal_id = principal_id
        self.credential = principal_id
        """Who may go on with it: another token of the same subject may not."""
        self.capabilities = capabilities
        self.log_level = log_level
        self.rounds = 0
        self._questions: dict[str, ServerQuestion] = {}
        self._numbers = iter(range(1, 1_000_000))
        self._listener: Notify | None = None
        self._turn: asyncio.Future[None] | None = None
        self._failure: ToolgateError | None = None
        self._task: asyncio.Task[ServerResponse] | None = None

    # What the server's link sees

    def notify(self, method: str, params: bytes) -> None:
        if self._listener is not None:
            self._listener(method, params)

    async def ask(self, method: str, params: bytes) -> RpcResponse:
        if method not in CAPABILITY_OF:
            return UNSUPPORTED
        if not can_answer(self.capabilities, method, params):
            self._fail(missing_capability(method, params))
            return UNSUPPORTED
        answer: asyncio.Future[RpcResponse] = asyncio.get_running_loop().create_future()
        key = f"{CAPABILITY_OF[method]}-{next(self._numbers)}"
        self._questions[key] = ServerQuestion(method, params, answer)
        self._take_turn()
        try:
            return await answer
        finally:
            self._questions.pop(key, None)

    # What its owner does

    def start(self, call: Coroutine[Any, Any, ServerResponse]) -> None:
        self._task = asyncio.get_running_loop().create_task(call)
        self._task.add_done_callback(self._on_done)

    async def wait_for_turn(self, listener: Notify) -> ServerResponse | Mapping[str, ServerQuestion]:
        """What came of the call, or what its server wants to know. `listener` hears it meanwhile.

        Raises what the call raises. Whoever is cancelled here cancels the call.
        """
        assert self._task is not None  # started
        self._listener = listener
        try:
            while not (self._task.done() or self._questions or self._failure):
                self._turn = asyncio.get_running_loop().create_future()
                await self._turn
        except asyncio.CancelledError:
            self.cancel()
            raise
        finally:
            self._listener = self._turn = None
        if self._failure is not None:
            raise self._failure
        return self._task.result() if self._task.done() else dict(self._questions)

    def answer(self, responses: Mapping[str, msgspec.Raw]) -> None:
        """Bring what the client says. What it was not asked, or answers twice, has no effect."""
        for key, response in responses.items():
            question = self._questions.pop(key, None)
            if question is not None and not question.answer.done():
                question.answer.set_result(RpcResponse(result=bytes(response)))

    def cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()

    def _fail(self, failure: ToolgateError) -> None:
        self._failure = failure
        self.cancel()
        self._take_turn()

    def _take_turn(self) -> None:
        if self._turn is not None and not self._turn.done():
            self._turn.set_result(None)

    def _on_done(self, task: asyncio.Task[ServerResponse]) -> None:
        if not task.cancelled():
            task.exception()  # looked at: nobody may come back for it
        self._take_turn()


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
        return await self._attend(call, listener)

    async def resume(
        self, handle: str, credential: str, responses: Mapping[str, msgspec.Raw], listener: Notify
    ) -> ServerResponse | PendingInput:
        """Go on with a parked call. Raises InputStateRefused for a handle that is no longer one."""
        parked = self._parked.get(handle)
        if parked is None or parked[0].credential != credential:
            raise InputStateRefused(
                "no call waits for this input here",
                hint="it has ended, or another node has it: send the request again without `requestState`",
            )
        call = self._leave(handle)
        call.answer(responses)
        return await self._attend(call, listener)

    def close(self) -> None:
        """End them all."""
        for handle in tuple(self._parked):
            self._leave(handle).cancel()

    async def _attend(self, call: ParkableCall, listener: Notify) -> ServerResponse | PendingInput:
        came = await call.wait_for_turn(listener)
        if isinstance(came, ServerResponse):
            return came
        return PendingInput(self._park(call), came)

    def _park(self, call: ParkableCall) -> str:
        call.rounds += 1
        if call.rounds > MAX_ROUNDS:
            call.cancel()
            raise too_many_rounds()
        if not self._has_room_for(call):
            call.cancel()
            raise SessionLimit("too many calls wait for input", hint="answer or give up some of them")
        handle = secrets.token_urlsafe(16)
        timer = asyncio.get_running_loop().call_later(CALL_CEILING_S, self._expire, handle)
        self._parked[handle] = (call, timer)
        self._held[call.principal_id] += 1
        self._bytes[call.principal_id] += call.size
        return handle

    def _has_room_for(self, call: ParkableCall) -> bool:
        principal_id = call.principal_id
        return (
            len(self._parked) < MAX_PARKED
            and self._held[principal_id] < MAX_PARKED_EACH
            and self._bytes.total() + call.size <= MAX_PARKED_BYTES
            and self._bytes[principal_id] + call.size <= MAX_PARKED_BYTES_EACH
        )

    def _expire(self, handle: str) -> None:
        self._leave(handle).cancel()

    def _leave(self, handle: str) -> ParkableCall:
        call, timer = self._parked.pop(handle)
        timer.cancel()
        self._held[call.principal_id] -= 1
        self._bytes[call.principal_id] -= call.size
        if not self._held[call.principal_id]:
            del self._held[call.principal_id], self._bytes[call.principal_id]
        return call
