"""Builds the services that all processes share, each from the settings that it needs."""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolgate.audit.log.writer import AuditLog
from toolgate.errors import Conflict, StartRefused, ToolgateError
from toolgate.gateway.auth.identity import MIN_KEY_CHARS, FailedAttempts, Identities, TokenVerifier
from toolgate.gateway.auth.issuer import KEYS_ONLY, ResourceMetadata
from toolgate.gateway.cluster import Servers
from toolgate.gateway.gateway import Gateway, GatewayServices
from toolgate.lazy_modules import load_lazily
from toolgate.model.reports import EndedSession
from toolgate.model.revisions import RecordWrite
from toolgate.model.servers import RedactionRules
from toolgate.model.tools import Snapshot
from toolgate.policy.scope import ScopeLimits
from toolgate.registry.replication.state import SESSION_SECRET_ID
from toolgate.settings import Settings
from toolgate.surfaces.http.guard import LOOPBACK_NAMES
from toolgate.surfaces.mcp.session import ClientSessions
from toolgate.telemetry import Metrics
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.fetch import Fetcher

if TYPE_CHECKING:  # a node loads no SQL
    from toolgate.registry.store.sql_store import Store

SESSION_KEY_BYTES: Final = 32  # as long as a digest of HMAC-SHA256 (RFC 2104, section 3)
SYNC_EVERY_S: Final = 2.0
"""How late a node learns of a session that ended at another. Control polls its database once a second."""
MAX_SENT_AT_ONCE: Final = 1_000  # the limit of the control plane for one request
MAX_PENDING: Final = 10_000
"""Unsent ended sessions to keep while the control plane is unreachable. The oldest are dropped first."""

SyncEndedSessions = Callable[[Sequence[EndedSession], int], Awaitable[Sequence[EndedSession]]]
"""Sends sessions that ended here. Returns those that ended anywhere since a time."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProcessContext:
    """What each process has before it builds its services."""

    settings: Settings
    environ: Mapping[str, str]
    audit: AuditLog
    metrics: Metrics


@asynccontextmanager
async def run_in_background(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run all of `work` while the block runs. It has ended when this returns."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


@asynccontextmanager
async def call_regularly(
    work: Callable[[], object], *, every_s: float, at_end: Callable[[], object]
) -> AsyncIterator[None]:
    """Call `work` every `every_s` while the block runs, and `at_end` when it ends."""

    async def repeat() -> None:
        while True:
            await asyncio.sleep(every_s)
            work()

    try:
        async with run_in_background(repeat()):
            yield
    finally:
        at_end()


def wall_clock_ms() -> int:
    return int(time.time() * 1000)


def build_gateway(context: ProcessContext, servers: Servers, services: GatewayServices) -> Gateway:
    """A gateway with these settings. It serves nothing before it gets the registry's state."""
    settings = context.settings
    return Gateway(
        servers,
        context.audit,
        metrics=context.metrics,
        limits=ScopeLimits(
            max_tools=settings.max_tools,
            max_definition_tokens=settings.max_definition_tokens,
            on_too_many=settings.on_too_many,
        ),
        snapshot=Snapshot(
            environment=settings.environment,
            redaction=RedactionRules(hide=settings.redact_arguments, arguments=settings.audit.arguments),
        ),
        services=services,
    )


@asynccontextmanager
async def open_identities(
    context: ProcessContext, admin_key: str | None, *, awaits_keys: bool = False
) -> AsyncIterator[Identities]:
    """Opens authentication. Raises StartRefused if the settings would accept tokens that prove nothing."""
    settings = context.settings
    opening: AbstractAsyncContextManager[TokenVerifier | None] = nullcontext()
    if settings.oidc is not None:
        oidc = load_lazily("toolgate.gateway.auth.oidc")
        opening = oidc.open_oidc(settings.oidc, build_issuer_fetcher(settings))
    async with opening as verifier:
        yield Identities(
            admin_key=admin_key,
            trusts_local=settings.trust_loopback and settings.is_loopback,
            clock_s=time.time,
            verifier=verifier,
            failed_attempts=FailedAttempts(context.audit),
            awaits_keys=awaits_keys,
        )


def build_issuer_fetcher(settings: Settings) -> Fetcher:
    """Fetches from the issuer. An operator configured it, so the rules for servers do not apply."""
    return Fetcher(Egress(allow_private=settings.allow_private_upstreams))


def build_discovery(settings: Settings) -> ResourceMetadata:
    """The metadata by which clients find the issuer of the tokens that this gateway accepts."""
    return KEYS_ONLY if settings.oidc is None else ResourceMetadata(settings.oidc.issuer, settings.public_url)


def read_key_file(path: Path | None, setting: str) -> str | None:
    """Read the key from the file that a setting names. Raises StartRefused."""
    if path is None:
        return None
    try:
        key = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise StartRefused(f"cannot read `{setting}` `{path}`: {exc}") from exc
    if len(key) < MIN_KEY_CHARS or len(set(key)) < MIN_KEY_CHARS // 4:
        hint = "create a key: `python -c 'import secrets; print(secrets.token_urlsafe(32))'`"
        raise StartRefused(f"`{setting}`: the key in `{path}` is too short or too simple", hint=hint)
    return key


async def load_session_key(store: "Store") -> bytes:
    """The key that signs session ids on every node. The first start creates it and stores it as a record."""
    stored = await store.get("secret", SESSION_SECRET_ID)
    if stored is not None:
        return bytes.fromhex(stored.body["hex"])
    body = {"secret_id": SESSION_SECRET_ID, "hex": secrets.token_hex(SESSION_KEY_BYTES)}
    minted = RecordWrite(kind="secret", id=SESSION_SECRET_ID, body=body, if_revision=0)
    try:
        await store.write([minted], actor="toolgate")
    except Conflict:
        _log.debug("another replica created the session key first")
    return await load_session_key(store)


def list_own_hosts(settings: Settings) -> set[str]:
    """The Host names that clients may use for this process."""
    if settings.is_everywhere and not settings.allowed_hosts:
        _log.warning(
            "`%s` binds every address of this machine, but the gateway accepts only loopback as a Host: "
            "set `allowed_hosts` to the names and addresses that clients use",
            settings.listen,
        )
    return {settings.address[0], *LOOPBACK_NAMES, *settings.allowed_hosts}


def read_public_url(settings: Settings) -> str | None:
    """The URL at which clients reach this process, if it differs from the address they call."""
    return None if settings.public_url is None else settings.public_url.rstrip("/")


def find_console_url(settings: Settings, base_url: str) -> str:
    """The base URL of this process's console for people; empty if it is not known."""
    return read_public_url(settings) or ("" if settings.is_everywhere else base_url)


def describe_gateway(gateway: Gateway) -> None:
    metrics = gateway.metrics
    served = "Revision of the registry that this process serves."
    metrics.gauge("toolgate_registry_revision", served, lambda: gateway.snapshot.revision)
    metrics.gauge(
        "toolgate_server_state",
        "1 for the current state of each server.",
        lambda: dict.fromkeys(gateway.servers.load().states.items(), 1.0),
        labels=("server_id", "state"),
    )


@dataclass(slots=True, eq=False)
class EndedSessionExchange:
    """Sends the sessions that ended here, and receives those that ended elsewhere. Run `run` in its own
    task."""

    sessions: ClientSessions
    sync: SyncEndedSessions
    every_s: float = SYNC_EVERY_S
    retry_s: float = SYNC_EVERY_S
    """The pause after a failure, which may be much shorter than `every_s`."""
    _pending: list[EndedSession] = field(default_factory=list, init=False)
    _after_ms: int = field(default=0, init=False)
    _news: asyncio.Event = field(default_factory=asyncio.Event, init=False)

    def __post_init__(self) -> None:
        self.sessions.on_ended = self._on_ended

    def _on_ended(self, ended: EndedSession) -> None:
        self._pending.append(ended)
        del self._pending[:-MAX_PENDING]
        self._news.set()

    async def run(self) -> None:
        is_failing = False
        while True:
            try:
                await self.sync_once()
                is_failing = False
            except ToolgateError as exc:
                if not is_failing:
                    _log.warning("cannot send ended sessions to other nodes; retrying: %s", exc)
                is_failing = True
                await asyncio.sleep(self.retry_s)
                continue
            if not self._pending:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.every_s):
                        await self._news.wait()

    async def sync_once(self) -> None:
        self._news.clear()
        sent = self._pending[:MAX_SENT_AT_ONCE]
        received = await self.sync(sent, self._after_ms)
        known = set(sent)  # meanwhile more sessions may have ended, and the oldest may be dropped
        self._pending = [one for one in self._pending if one not in known]
        self.sessions.apply_ended([one.nonce for one in received])
        self._after_ms = max((one.at_ms for one in received), default=self._after_ms)
