"""What all processes have in common, each part built from the settings that it needs."""

import asyncio
import logging
import secrets
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolgate.audit.log.writer import AuditLog
from toolgate.errors import Conflict, StartRefused
from toolgate.gateway.auth.failed_attempts import FailedAttempts
from toolgate.gateway.auth.identity import MIN_KEY_CHARS, Identities, TokenVerifier
from toolgate.gateway.auth.issuer import KEYS_ONLY, ResourceMetadata
from toolgate.gateway.cluster.servers import Servers
from toolgate.gateway.gateway import Gateway, GatewayServices
from toolgate.lazy_modules import load_lazily
from toolgate.model.revisions import RecordWrite
from toolgate.model.servers import RedactionRules
from toolgate.model.tools import Snapshot
from toolgate.policy.scope import ScopeLimits
from toolgate.registry.replication.state import SESSION_SECRET_ID
from toolgate.settings import Settings
from toolgate.surfaces.http.guard import LOOPBACK_NAMES
from toolgate.telemetry import Metrics
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.fetch import Fetcher

if TYPE_CHECKING:
    from toolgate.registry.store.sql_store import Store

SESSION_KEY_BYTES: Final = 32

_log = logging.getLogger(__name__)


@asynccontextmanager
async def run_in_background(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run all of `work` while the block runs; it has ended when this has."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


def wall_clock_ms() -> int:
    """The clock of records."""
    return int(time.time() * 1000)


def build_gateway(
    settings: Settings, servers: Servers, audit: AuditLog, metrics: Metrics, *, services: GatewayServices
) -> Gateway:
    """A gateway under these settings. It serves nothing before the registry is known."""
    return Gateway(
        servers,
        audit,
        metrics=metrics,
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
    settings: Settings, admin_key: str | None, audit: AuditLog, *, awaits_keys: bool = False
) -> AsyncIterator[Identities]:
    """Authentication. Raises StartRefused if tokens would be accepted that prove nothing."""
    async with AsyncExitStack() as stack:
        verifier: TokenVerifier | None = None
        if settings.oidc is not None:
            opening = load_lazily("toolgate.gateway.auth.oidc").open_oidc
            verifier = await stack.enter_async_context(opening(settings.oidc, build_issuer_fetcher(settings)))
        yield Identities(
            admin_key=admin_key,
            trusts_local=settings.trust_loopback and settings.is_loopback,
            clock_s=time.time,
            verifier=verifier,
            failed_attempts=FailedAttempts(audit),
            awaits_keys=awaits_keys,
        )


def build_issuer_fetcher(settings: Settings) -> Fetcher:
    """Fetches from the issuer. An operator named it, so the rules for servers do not apply."""
    return Fetcher(Egress(allow_private=settings.allow_private_upstreams))


def build_discovery(settings: Settings) -> ResourceMetadata:
    """How clients find the issuer of the tokens that this gateway accepts."""
    return KEYS_ONLY if settings.oidc is None else ResourceMetadata(settings.oidc.issuer, settings.public_url)


def read_key_file(path: Path | None, setting: str) -> str | None:
    """The key in a file that a setting names. Raises StartRefused."""
    if path is None:
        return None
    try:
        key = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        raise StartRefused(f"cannot read `{setting}` `{path}`: {exc}") from exc
    if len(key) < MIN_KEY_CHARS or len(set(key)) < MIN_KEY_CHARS // 4:
        raise StartRefused(
            f"the key in `{path}` is too short or too simple",
            hint="make one with `python -c 'import secrets; print(secrets.token_urlsafe(32))'`",
        )
    return key


async def load_session_key(store: "Store") -> bytes:
    """The key that signs session ids on every node: created at the first start, kept with the records."""
    stored = await store.get("secret", SESSION_SECRET_ID)
    if stored is not None:
        return bytes.fromhex(stored.body["hex"])
    body = {"secret_id": SESSION_SECRET_ID, "hex": secrets.token_hex(SESSION_KEY_BYTES)}
    try:
        await store.write(
            [RecordWrite(kind="secret", id=SESSION_SECRET_ID, body=body, if_revision=0)], actor="toolgate"
        )
    except Conflict:
        _log.debug("another replica was first to mint the session key")
    return await load_session_key(store)


def list_own_hosts(settings: Settings) -> set[str]:
    """The Host names that clients may use for this process."""
    if settings.is_everywhere and not settings.allowed_hosts:
        _log.warning(
            "`%s` is every address of this machine, and only calls to loopback are answered: "
            "set `allowed_hosts` to the names and addresses that clients call it by",
            settings.listen,
        )
    return {settings.address[0], *LOOPBACK_NAMES, *settings.allowed_hosts}


def find_console_url(settings: Settings, base_url: str) -> str:
    """Where people reach the console of this process; empty if that is not known."""
    return (settings.public_url or "").rstrip("/") or ("" if settings.is_everywhere else base_url)


def describe_gateway(gateway: Gateway) -> None:
    """The gauges of every process, read on each scrape."""
    metrics = gateway.metrics
    metrics.gauge("toolgate_registry_revision", "Revision served.", lambda: float(gateway.snapshot.revision))

    def states() -> Mapping[tuple[str, str], float]:
        return dict.fromkeys(gateway.servers.load().states.items(), 1.0)

    metrics.gauge(
        "toolgate_server_state", "1 for the state that a server is in.", states, labels=("server_id", "state")
    )
