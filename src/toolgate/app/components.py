"""Work that goes on beside a process's other work, and is over when the process is.

What the processes have in common, each part built from the settings it needs.
"""

import asyncio
import logging
import secrets
import socket
import time
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from toolgate.audit.events import AdminRecorded
from toolgate.audit.log.writer import AuditLog
from toolgate.errors import Conflict, StartRefused, StorageFailed, ToolgateError
from toolgate.gateway.auth.failed_attempts import FailedAttempts
from toolgate.gateway.auth.identity import MIN_KEY_CHARS, Identities, TokenVerifier, can_authenticate
from toolgate.gateway.auth.issuer import (
    KEYS_ONLY,
    NoOidcLogin,
    NoResourceMetadata,
    OidcClient,
    OidcLogin,
    ResourceMetadata,
)
from toolgate.gateway.gateway import Gateway
from toolgate.gateway.search.index import open_semantic_search
from toolgate.govern.operator_policy import OperatorPolicy
from toolgate.govern.pins import follow_pins
from toolgate.lazy_modules import load_lazily
from toolgate.model.revisions import RecordWrite
from toolgate.model.servers import RedactionRules
from toolgate.model.snapshot import Snapshot
from toolgate.policy.scope import ScopeLimits
from toolgate.registry.files.reload import DirectoryLoader, ReloadReport
from toolgate.registry.replication.state import SESSION_SECRET_ID, RegistryState, watch_registry
from toolgate.registry.store.contract import Store
from toolgate.settings import Settings
from toolgate.surfaces.console.endpoint import ConsoleEndpoint
from toolgate.surfaces.console.files import find_console, load_console
from toolgate.surfaces.http.guard import LOOPBACK_NAMES
from toolgate.surfaces.http.messages import HttpHandler
from toolgate.telemetry import Metrics
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.fetch import Fetcher
from toolgate.upstream.models.client import TryModels, try_models
from toolgate.upstream.oauth.logins import Logins


@asynccontextmanager
async def run_in_background(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """All of `work` goes on while the block runs, and has ended when this has."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


if TYPE_CHECKING:
    from toolgate.gateway.search.semantic import SemanticSearch

VECTORS_FILE: Final = "vectors.sqlite3"
COMPACT_EVERY_S: Final = 600
SESSION_KEY_BYTES: Final = 32

_log = logging.getLogger(__name__)


def wall_clock_ms() -> int:
    """What records are dated by."""
    return int(time.time() * 1000)


def choose_node_id(settings: Settings) -> str:
    """What this process is called where several are."""
    return settings.node_id or socket.gethostname()


def build_limits(settings: Settings) -> ScopeLimits:
    """How large a scope may be."""
    return ScopeLimits(
        max_tools=settings.max_tools,
        max_definition_tokens=settings.max_definition_tokens,
        on_too_many=settings.on_too_many,
    )


def empty_snapshot(settings: Settings) -> Snapshot:
    """What is served before anything is known of the registry: nothing, by the rules of this process."""
    return Snapshot(
        environment=settings.environment,
        redaction=RedactionRules(hide=settings.redact_arguments, arguments=settings.audit.arguments),
    )


def build_operator_policy(settings: Settings) -> OperatorPolicy:
    """What is demanded of every record that is written."""
    return OperatorPolicy(
        allowed_commands=settings.allowed_commands,
        requires_plan=settings.require_plan,
        egress=build_egress(settings),
    )


def build_egress(settings: Settings) -> Egress:
    """Where servers may be."""
    return Egress(
        allow_private=settings.allow_private_upstreams, allowed_hosts=settings.allowed_upstream_hosts
    )


def build_model_trial(settings: Settings, environ: Mapping[str, str]) -> TryModels:
    """How chat upstreams are tried from this process."""
    return partial(try_models, Secrets(environ, settings.secrets_dir), build_egress(settings))


@asynccontextmanager
async def open_identities(
    settings: Settings, admin_key: str | None, audit: AuditLog, *, awaits_keys: bool = False
) -> AsyncIterator[Identities]:
    """Who callers are. Raises StartRefused where tokens would be taken that prove nothing."""
    async with AsyncExitStack() as stack:
        verifier: TokenVerifier | None = None
        if settings.oidc is not None:
            # Only where it is used: what verifies tokens takes a tenth of a second to load.
            oidc = load_lazily("toolgate.gateway.auth.oidc")
            config = oidc.OidcConfig(**settings.oidc.model_dump(exclude={"client_id", "scopes"}))
            verifier = await stack.enter_async_context(oidc.open_oidc(config, build_issuer_fetcher(settings)))
        yield Identities(
            admin_key=admin_key,
            trusts_local=settings.trust_loopback and settings.is_loopback,
            clock_s=time.time,
            verifier=verifier,
            failed_attempts=FailedAttempts(audit),
            awaits_keys=awaits_keys,
        )


def build_issuer_fetcher(settings: Settings) -> Fetcher:
    """What reaches the issuer: an operator named it, so it is not held to where servers may be."""
    return Fetcher(Egress(allow_private=settings.allow_private_upstreams))


def build_oidc_login(settings: Settings, identities: Identities) -> OidcLogin | NoOidcLogin:
    """How people log in to the console with a browser."""
    oidc = settings.oidc
    if oidc is None or oidc.client_id is None:
        return NoOidcLogin()
    client = OidcClient(issuer=oidc.issuer, client_id=oidc.client_id, scopes=oidc.scopes)
    return OidcLogin(client, build_issuer_fetcher(settings), identities)


def open_search_model(settings: Settings) -> AbstractAsyncContextManager["SemanticSearch | None"]:
    """What lets searches go by meaning too; None where no model is set. Raises StartRefused."""
    return open_semantic_search(settings.semantic_model, vectors=settings.data_dir / VECTORS_FILE)


def build_discovery(settings: Settings) -> ResourceMetadata | NoResourceMetadata:
    """How clients find the issuer of the tokens that this gateway accepts."""
    if settings.oidc is None:
        return KEYS_ONLY
    return ResourceMetadata(settings.oidc.issuer, settings.public_url)


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


async def refuse_public_without_keys(settings: Settings, store: Store, admin_key: str | None) -> None:
    """Off loopback everybody could call: not without keys."""
    if settings.is_loopback or admin_key is not None or settings.oidc is not None:
        return
    if (await store.list("key")).records:
        return
    raise StartRefused(
        f"`{settings.listen}` is reachable from other machines and no key is configured",
        hint="listen on 127.0.0.1, or put a key of 32 characters into a file and set `admin_key_file`",
    )


async def load_session_key(store: Store) -> bytes:
    """The key that signs session ids on every node: minted with the first start, kept with the records."""
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
    """The names a caller may call this process by."""
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


def build_console_endpoint(beyond: HttpHandler) -> ConsoleEndpoint:
    """The console of this installation, in front of `beyond`. Raises StartRefused where it cannot be read."""
    directory = find_console()
    return ConsoleEndpoint(None if directory is None else load_console(directory), beyond)


async def load_directory(settings: Settings, store: Store, audit: AuditLog) -> DirectoryLoader | None:
    """The directory of server files, read once; None where none is configured."""
    if settings.mcp_registry_dir is None:
        return None

    def note(report: ReloadReport, by: str) -> None:
        for change in report.applied:
            audit.record(
                AdminRecorded(
                    at_ms=wall_clock_ms(),
                    principal=by,
                    operation="reload",
                    kind="server",
                    record_id=change.server_id,
                    revision=report.revision,
                )
            )

    loader = DirectoryLoader(
        store,
        settings.mcp_registry_dir.expanduser(),
        strict=settings.strict,
        recursive=settings.registry_recursive,
        on_applied=note,
    )
    await loader.reload()
    return loader


@asynccontextmanager
async def follow_registry(
    store: Store,
    gateway: Gateway,
    identities: Identities,
    loader: DirectoryLoader | None,
    *,
    logins: Logins | None = None,
) -> AsyncIterator[None]:
    """The registry is applied once before anything is served, and followed from then on.

    What the gateway finds to have changed in pinned tools is written into it.
    """
    first = asyncio.Event()

    async def follow() -> None:
        async for state in watch_registry(store):
            identities.apply(state.keys)
            gateway.apply(state)
            if logins is not None:
                await _forget_useless_logins(logins, state)
            first.set()

    async with asyncio.TaskGroup() as tasks:
        running = [
            tasks.create_task(each)
            for each in (follow(), _keep_compacting(store), follow_pins(store, gateway))
        ]
        if loader is not None:
            running.append(tasks.create_task(loader.watch()))
        await first.wait()
        try:
            yield
        finally:
            for task in running:
                task.cancel()


async def _forget_useless_logins(logins: Logins, state: RegistryState) -> None:
    try:
        await logins.tidy(state.servers, lambda principal_id: can_authenticate(principal_id, state.keys))
    except StorageFailed as exc:
        _log.warning("a login that is of no use any more was forgotten, and its file stays: %s", exc)


async def _keep_compacting(store: Store) -> None:
    while True:
        await asyncio.sleep(COMPACT_EVERY_S)
        try:
            await store.compact()
        except ToolgateError as exc:
            _log.warning("the change log was not compacted: %s", exc)


def describe_gateway(metrics: Metrics, gateway: Gateway) -> None:
    """The gauges of every process, read when somebody looks."""
    metrics.gauge("toolgate_registry_revision", "Revision served.", lambda: float(gateway.snapshot.revision))

    def states() -> Mapping[tuple[str, str], float]:
        return dict.fromkeys(gateway.servers.load().states.items(), 1.0)

    metrics.gauge(
        "toolgate_server_state", "1 for the state that a server is in.", states, labels=("server_id", "state")
    )
