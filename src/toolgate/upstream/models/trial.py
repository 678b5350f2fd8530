"""One look at a chat upstream, beside the connections in use, to see whether its record works."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

import msgspec

from toolgate.errors import ModelRefused, ToolgateError
from toolgate.model.chat import ChatUpstream
from toolgate.upstream.connection.contract import StartFailed
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.models.client import Models

TRIAL_S: Final = 10.0
_CHECK_URL: Final = "check `base_url`, which mostly ends in `/v1`"
_WITHOUT_LIST: Final = f"{_CHECK_URL}; one that lists no models may be asked all the same"
_HINTS: Final = {
    401: "check the secret that `auth_ref` or `headers` name",
    403: "check what the secret of `auth_ref` or `headers` may do",
    404: _WITHOUT_LIST,
    405: _WITHOUT_LIST,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTrial:
    """What came of asking an upstream for its models once. `error` is empty when all went well."""

    took_ms: int
    models: tuple[str, ...] = ()
    """All that it lists, whether or not callers get them."""
    error: str = ""
    hint: str = ""


TryModels = Callable[[ChatUpstream], Awaitable[ModelTrial]]
"""`try_models`, with what this process is given."""


async def try_models(secrets: Secrets, egress: Egress, upstream: ChatUpstream) -> ModelTrial:
    """Ask for the models of `upstream` over a connection of its own. Whatever goes wrong is in the report."""
    began_ns = time.monotonic_ns()
    names: tuple[str, ...] = ()
    error = hint = ""
    try:
        async with Models(secrets, egress) as models:
            deadline_s = asyncio.get_running_loop().time() + TRIAL_S
            listed = await models.models_of(upstream, deadline_s=deadline_s)
        names = tuple(msgspec.json.decode(one["id"], type=str) for one in listed)
    except ToolgateError as exc:
        error, hint = _explain(exc)
    return ModelTrial(
        took_ms=(time.monotonic_ns() - began_ns) // 1_000_000, models=names, error=error, hint=hint
    )


def _explain(exc: ToolgateError) -> tuple[str, str]:
    """What went wrong, and what an operator can do: the hints of errors are for callers."""
    if isinstance(exc.__cause__, StartFailed):
        # Callers are not told what a node lacks; who tries a record has to be.
        return str(exc.__cause__), "it must be there where the gateway runs, and on every node"
    if isinstance(exc, ModelRefused):
        return str(exc), _HINTS.get(exc.data["status"], "its server says why")
    return str(exc), f"{_CHECK_URL}; it must be reached from where the gateway runs"
