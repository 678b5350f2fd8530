"""Calls of tools that are not known yet, because their server is starting for the first time."""

import time

from toolgate.errors import ServerUnavailable
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.scope.caller import Trace
from toolgate.gateway.scope.explain import may_show
from toolgate.gateway.scope.view import View
from toolgate.upstream.pool.health import describe_slow_start


def check_started(gateway: Gateway, view: View, name: str, trace: Trace) -> None:
    """Raises ServerUnavailable where `name` can only be a tool of a server that was never listed yet.

    Never tells callers of a server that they may not know of: to them the tool is unknown.
    """
    server_id = view.caller.only_server or name.partition(".")[0]
    if name in view.routes or server_id not in view.scope.servers:
        return
    health = gateway.servers.health().get(server_id)
    if health is None or health.state != "starting":
        return
    if not may_show(gateway.snapshot, view.caller.principal, server_id):
        return
    gateway.record_unmade(view, name, trace=trace, code=ServerUnavailable.code)
    since_s = max(0.0, time.time() - health.since_ms / 1000)
    raise describe_slow_start(server_id, since_s, health.hint)
