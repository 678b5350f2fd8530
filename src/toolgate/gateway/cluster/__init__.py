"""The servers of this node and of others.

On a node, the gateway's servers are its own pool; on a control plane they are `ReportedServers`, built from
what nodes report. Both fulfil the contract `Servers`.

- `node`  a node reports itself
- `reported_servers`  the control plane shows what nodes report
- `drift`  definitions that changed since approval are quarantined

Never trusts one good list after a bad one: a change counts until the tool is approved again.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Protocol

from toolgate.model.servers import ServerRecord
from toolgate.model.tools import Pin, ServerTools, ToolDefinition
from toolgate.upstream.connection.contract import Acknowledgement, ClientChannel, Params
from toolgate.upstream.pool.connectors import TrialReport
from toolgate.upstream.pool.health import ServerHealth
from toolgate.upstream.pool.pool import NO_ORIGIN, CallOrigin, PoolLoad, ServerResponse


class Servers(Protocol):
    """The servers of the registry, with what they offer and their health."""

    @property
    def is_first_hand(self) -> bool:
        """Whether servers list their tools to this process, not to a node that may have an older record."""

    @property
    def unverified(self) -> AbstractSet[str]:
        """Servers shown by an earlier run or a manifest: they have not listed themselves."""

    def apply(self, records: Mapping[str, ServerRecord]) -> None:
        """Hold exactly `records` from now on. Returns at once; `tools()` has all of them afterwards."""

    def tools(self) -> Mapping[str, ServerTools]:
        """What each server offers, disabled ones included."""

    def offer(self, server_id: str, /) -> ServerTools | None:
        """What one server offers."""

    def set_pins(self, pins: Mapping[str, Pin], /) -> None:
        """Send no call of a tool that changed by one of `pins`, not even a call that waits already."""

    def health(self) -> Mapping[str, ServerHealth]:
        """The health of each server; the same servers as in `tools()`."""

    def load(self) -> PoolLoad:
        """What is in flight. Cheap, for gauges."""

    async def settled(self, server_ids: Iterable[str]) -> None:
        """Returns once waiting any longer for the first lists of these servers is pointless."""

    async def refresh(self, server_id: str) -> None:
        """List a server again now. Returns when that has ended, well or not."""

    async def test(self, record: ServerRecord) -> TrialReport:
        """Connect to the server of `record` and list it, next to the connections in use."""

    def end_session(self, session: str, /) -> None:
        """Drop what servers keep for this session."""

    def reconnect(self, server_id: str, principal_id: str, /) -> None:
        """A login to a server changed: for this principal, or, if empty, for all."""

    def end_principal(self, principal_id: str, /) -> None:
        """Drop what servers keep for this principal: it was removed."""

    def watch(self, server_id: str, uris: frozenset[str], /) -> Acknowledgement:
        """Subscribe to exactly these resources of a server. Returns at once."""

    async def call(
        self,
        server_id: str,
        method: str,
        params: Params,
        /,
        *,
        tool: ToolDefinition | None = None,
        client: ClientChannel | None = None,
        origin: CallOrigin = NO_ORIGIN,
    ) -> ServerResponse:
        """Send a request, at most once, within the server's limits. `client`: whom the server may ask."""
