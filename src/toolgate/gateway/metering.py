"""Models as they are asked by those who have tokens to use up: refused where none are left, counted after."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from toolgate.chat.usage import asking_for_usage, is_usage_alone, reported_tokens
from toolgate.gateway.call.quota import Spending
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller
from toolgate.gateway.scope.token_counts import PER_BYTES, TOKENS
from toolgate.model.chat import ChatUpstream
from toolgate.model.quotas import Allowance
from toolgate.upstream.models.client import AskedModels, ModelAnswer, ModelEvents
from toolgate.upstream.models.events import ModelEvent


def metered(gateway: Gateway, models: AskedModels, caller: Caller) -> AskedModels:
    """`models`, as `caller` may ask them."""
    allowances = [one for one in gateway.allowances(caller) if one.budgets.tokens_per_day is not None]
    return MeteredModels(models, gateway.sending.spending, allowances) if allowances else models


class MeteredModels:
    """Counts what each answer took, as far as its server says so, out of `allowances`."""

    def __init__(self, models: AskedModels, spending: Spending, allowances: Sequence[Allowance]) -> None:
        self._models = models
        self._spending = spending
        self._allowances = allowances

    async def ask(
        self, upstream: ChatUpstream, path: str, body: bytes, *, deadline_s: float, may_retry: bool
    ) -> ModelAnswer:
        """See `Models.ask`. Raises BudgetExceeded, and ServerUnavailable where nobody knows what is left."""
        await self._spending.check_tokens(self._allowances)
        answer = await self._models.ask(upstream, path, body, deadline_s=deadline_s, may_retry=may_retry)
        self._spending.spent(self._allowances, reported_tokens(answer.body))
        return answer

    @asynccontextmanager
    async def stream(
        self, upstream: ChatUpstream, path: str, body: bytes, *, deadline_s: float, may_retry: bool
    ) -> AsyncIterator[ModelEvents | ModelAnswer]:
        """See `Models.stream`. Raises as `ask`.

        Nobody gets out of being counted by not asking: what was not asked for is not handed out either.
        """
        await self._spending.check_tokens(self._allowances)
        asking, tokens, events = asking_for_usage(body), 0, 0

        def hear(event: ModelEvent) -> bool:
            nonlocal tokens, events
            data, events = event.data or b"", events + 1
            # Some servers say with each event how many there were so far.
            tokens = max(tokens, reported_tokens(data))
            return asking is None or not is_usage_alone(data)

        async with self._models.stream(
            upstream, path, asking or body, deadline_s=deadline_s, may_retry=may_retry
        ) as answer:
            if isinstance(answer, ModelAnswer):
                tokens = reported_tokens(answer.body)
            else:
                answer.on_event = hear
            try:
                yield answer
            except BaseException:
                # What it took is said last: who leaves before that is charged for what there was, a token
                # for each event, and for what was asked.
                tokens = tokens or len(body) * TOKENS // PER_BYTES + events
                raise
            finally:
                self._spending.spent(self._allowances, tokens)
