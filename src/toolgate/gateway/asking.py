"""How a model is asked in a chat: its reply whole, or passed on while it comes."""

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Final

from toolgate.chat.completions import Transcript
from toolgate.chat.replies import Reply, parse_reply
from toolgate.chat.streamed_replies import Assembly, Delta
from toolgate.chat.tool_loop import AskModel, ToolLoop
from toolgate.chat.usage import add_usage
from toolgate.gateway.conversing import Heard
from toolgate.model.chat import ChatUpstream
from toolgate.model.raw import Members
from toolgate.telemetry import Metrics
from toolgate.upstream.models.client import AskedModels, ModelAnswer

PATH: Final = "/chat/completions"

OnDelta = Callable[[Delta], Awaitable[None]]


@dataclass(slots=True, kw_only=True)
class Asking:
    """The model's side of one conversation."""

    models: AskedModels
    upstream: ChatUpstream
    transcript: Transcript
    loop: ToolLoop
    deadline_s: float
    metrics: Metrics
    is_silent: Callable[[], bool] = lambda: True
    """Whether nothing was passed on yet, so that the model can be asked again as if it had not been."""
    replies: int = 0
    last: Reply | None = None
    usage: Members | None = field(default=None)
    """Of all replies together."""

    async def ask_whole(self, action: AskModel) -> Heard:
        """A reply at once."""
        began_s = time.perf_counter()
        return self._keep(parse_reply(await self._answer(action), nth=self.replies), began_s)

    async def ask_once(self) -> bytes:
        """What the model's server answers to the request as it is, and no part of the conversation."""
        began_s = time.perf_counter()
        body = await self._answer(AskModel(choice="sent"))
        self._measure(began_s)
        return body

    async def ask_streamed(self, action: AskModel, on_delta: OnDelta) -> Heard:
        """A reply in pieces: what may be shown of each is passed on, its calls are not."""
        began_s = time.perf_counter()
        body = self.transcript.body(action)
        assembly = Assembly(nth=self.replies)
        async with self.models.stream(
            self.upstream, PATH, body, deadline_s=self.deadline_s, may_retry=self._may_retry
        ) as events:
            if isinstance(events, ModelAnswer):  # asked for a stream, some answer whole all the same
                reply = parse_reply(events.body, nth=self.replies)
                await on_delta(Delta(fields=reply.without_calls(), choice=reply.choice, head=reply.head))
            else:
                async for event in events:
                    delta = None if event.data is None else assembly.feed(event.data)
                    if delta is not None:
                        await on_delta(delta)
                reply = assembly.finish()
        return self._keep(reply, began_s)

    @property
    def _may_retry(self) -> bool:
        return self.loop.calls_made == 0 and self.is_silent()

    async def _answer(self, action: AskModel) -> bytes:
        answer = await self.models.ask(
            self.upstream,
            PATH,
            self.transcript.body(action),
            deadline_s=self.deadline_s,
            may_retry=self._may_retry,
        )
        return answer.body

    def _measure(self, began_s: float) -> None:
        self.metrics.model_latency(self.upstream.upstream_id).add((time.perf_counter() - began_s) * 1e3)

    def _keep(self, reply: Reply, began_s: float) -> Heard:
        self._measure(began_s)
        self.replies += 1
        self.last = reply
        self.usage = add_usage(self.usage, reply.usage)
        self.transcript.take(reply)
        return Heard(reply.calls, reply.has_text)
