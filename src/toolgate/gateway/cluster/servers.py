"""What the gateway and the surfaces ask of the servers, wherever those run.

On a node they are its own pool. On a control without a node they are what the nodes report of them.

What is written down of a process that is started for a server: what the record says, never a secret.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Protocol

from toolgate.audit.events import ProcessSpawned
from toolgate.model.servers import ServerRecord
from toolgate.model.snapshot import Pin
from toolgate.model.tools import ServerTools, ToolDefinition
from toolgate.redaction.records import redact_command
from toolgate.upstream.connection.contract import Acknowledgement, ClientChannel, Params, Purpose
from toolgate.upstream.pool.connectors import TrialReport
from toolgate.upstream.pool.health import ServerHealth
from toolgate.upstream.pool.pool import NO_ORIGIN, CallOrigin, PoolLoad, ServerResponse


class ServerCaller(Protocol):
    """Servers, as far as they are asked."""

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
        """Ask a server, within its budgets. A call is sent at most once.

        `client` is who asks, where somebody does.
        """


class Servers(ServerCaller, Protocol):
    """The servers of the registry, and how they fare."""

    @property
    def is_first_hand(self) -> bool:
        """Whether servers say to this process what they offer, and no node that may know an older record."""

    @property
    def unverified(self) -> AbstractSet[str]:
        """The servers that did not list themselves what is shown of them: an earlier run or version did."""

    def apply(self, records: Mapping[str, ServerRecord]) -> None:
        """Hold exactly `records` from now on. Returns at once; `tools()` shows them all afterwards."""

    def tools(self) -> Mapping[str, ServerTools]:
        """What each server offers, as far as known; disabled ones too."""

    def offer(self, server_id: str, /) -> ServerTools | None:
        """What one server offers."""

    def set_pins(self, pins: Mapping[str, Pin], /) -> None:
        """Send no call of a tool that one of `pins` says has changed, however long it has waited already."""

    def health(self) -> Mapping[str, ServerHealth]:
        """How each server fares; the same servers as in `tools()`."""

    def load(self) -> PoolLoad:
        """What servers keep busy. Cheap, for gauges."""

    async def settled(self, server_ids: Iterable[str]) -> None:
        """Returns when there is nothing to gain by waiting for the first list of these any longer."""

    async def refresh(self, server_id: str) -> None:
        """List a server again now. Returns when that has ended, well or not."""

    async def test(self, record: ServerRecord) -> TrialReport:
        """Connect to the server of `record` and list it, beside the links in use."""

    def end_session(self, session: str, /) -> None:
        """Whatever servers keep for this session is not needed any more."""

    def reconnect(self, server_id: str, principal_id: str, /) -> None:
        """Somebody has logged in to a server or out of it: this principal for itself; empty: for all."""

    def end_principal(self, principal_id: str, /) -> None:
        """This principal will not come again."""

    def watch(self, server_id: str, uris: frozenset[str], /) -> Acknowledgement:
        """Hear from a server when one of these resources changes, and no other. Returns at once."""


def process_spawned(record: ServerRecord, purpose: Purpose, *, at_ms: int) -> ProcessSpawned:
    """The process of `record` is about to be started."""
    launch = record.stdio
    return ProcessSpawned(
        at_ms=at_ms,
        server_id=record.server_id,
        command="" if launch is None else redact_command(launch.command, launch.args),
        reason=purpose,
        package="" if record.package is None else record.package.sha256,
    )
