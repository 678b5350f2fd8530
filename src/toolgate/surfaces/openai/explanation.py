"""Why a chat has the tools it has, as far as its caller may know."""

from typing import Any

from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Caller
from toolgate.gateway.scope.explain import explain_to, visible_servers
from toolgate.model.principals import Principal
from toolgate.policy.scope import Scope


def explained(gateway: Gateway, asker: Principal, caller: Caller, scope: Scope) -> dict[str, Any]:
    """The decisions on `scope`, which is the caller's."""
    found = explain_to(gateway, asker, caller)
    return {
        "servers": visible_servers(gateway.snapshot, asker, scope),
        "tokens": scope.tokens,
        "decisions": [*found.servers, *found.tools],
    }
