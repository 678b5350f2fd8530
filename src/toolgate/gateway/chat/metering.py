"""Token quotas of models: checked before a model is prompted, charged with what its server reports."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from toolgate.chat.replies import is_usage_only, reported_tokens, request_usage
from toolgate.gateway.call.quota import QuotaLeases
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller
from toolgate.gateway.scope.token_counts import PER_BYTES, TOKENS
from toolgate.model.chat import ChatUpstream
from toolgate.model.principals import HolderQuotas
from toolgate.upstream.models.client import ModelEventStream, ModelResponse, PromptableModels
from toolgate.upstream.models.streams import ModelEvent


def meter_models(gateway: Gateway, models: PromptableModels, caller: Caller) -> PromptableModels:
    """Return `models`, charged to the caller's daily token quotas if it has any."""
    allowances = [one for one in gateway.quotas_of(caller) if one.budgets.tokens_per_day is not None]
    return MeteredModels(models, gateway.quotas, allowances) if allowances else models


class MeteredModels:
    """Charges the tokens of each response to `allowances`, if the model's server reports them."""

    def __init__(
        self, models: PromptableModels, spending: QuotaLeases, allowances: Sequence[HolderQuotas]
    ) -> None:
        self._models = models
        self._spending = spending
        self._allowances = allowances

    async def ask(
        self, upstream: ChatUpstream, path: str, body: bytes, *, deadline_s: float, may_retry: bool
    ) -> ModelResponse:
        """See `Models.ask`.

        Raises BudgetExceeded, and ServerUnavailable if the control plane cannot be asked.
        """
        await self._spending.check_tokens(self._allowances)
        response = await self._models.ask(upstream, path, body, deadline_s=deadline_s, may_retry=may_retry)
        self._spending.record_tokens(self._allowances, reported_tokens(response.body))
        return response

    @asynccontextmanager
    async def stream(
        self, upstream: ChatUpstream, path: str, body: bytes, *, deadline_s: float, may_retry: bool
    ) -> AsyncIterator[ModelEventStream | ModelResponse]:
        """See `Models.stream`. Raises as `ask`.

        Requests usage even if the client does not, so that leaving it out does not evade the quota. The
        client then does not see the event that reports it.
        """
        await self._spending.check_tokens(self._allowances)
        metered_body, tokens, events = request_usage(body), 0, 0

        def on_event(event: ModelEvent) -> bool:
            nonlocal tokens, events
            data, events = event.data or b"", events + 1
            # Some servers report a running total with each event.
            tokens = max(tokens, reported_tokens(data))
            return metered_body is None or not is_usage_only(data)

        async with self._models.stream(
            upstream, path, metered_body or body, deadline_s=deadline_s, may_retry=may_retry
        ) as response:
            if isinstance(response, ModelResponse):
                tokens = reported_tokens(response.body)
            else:
                response.on_event = on_event
            try:
                yield response
            except BaseException:
                # Servers report usage last. A client that leaves earlier pays a token for each event, and for
                # its request.
                tokens = tokens or len(body) * TOKENS // PER_BYTES + events
                raise
            finally:
                self._spending.record_tokens(self._allowances, tokens)
