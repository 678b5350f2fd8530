"""Whom this process tells of calls that wait for a person."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from toolgate.app.background import in_background
from toolgate.app.components import egress_of, read_key_file, wall_ms
from toolgate.errors import StartRefused
from toolgate.gateway.gateway import Gateway
from toolgate.govern.approval_webhook import ApprovalWebhook, BodySigner
from toolgate.registry.store.contract import Store
from toolgate.settings import Settings
from toolgate.upstream.http.egress import EgressRefused
from toolgate.upstream.http.fetch import Fetcher, parse_secure_target

_log: Final = logging.getLogger(__name__)


@asynccontextmanager
async def open_webhook(
    settings: Settings, store: Store, gateway: Gateway
) -> AsyncIterator[ApprovalWebhook | None]:
    """The receiver is told while the block runs; None where there is none. Raises StartRefused."""
    config = settings.approval_webhook
    if config is None:
        yield None
        return
    egress = egress_of(settings)
    try:
        egress.check_literal(parse_secure_target(config.url))
    except EgressRefused as exc:
        raise StartRefused(f"setting `approval_webhook.url`: {exc}") from exc
    if settings.is_everywhere and not settings.public_url:
        _log.warning(
            "`approval_webhook` is told no URL to decide at: set `public_url`, where this gateway is reached"
        )
    secret = read_key_file(config.secret_file, "approval_webhook.secret_file")
    assert secret is not None  # the setting names a file
    webhook = ApprovalWebhook(
        config.url,
        BodySigner(secret, wall_ms),
        approvals=store.approvals,
        audit=gateway.audit,
        fetcher=Fetcher(egress),
        own_url=lambda: gateway.sending.approving.console_url,
    )
    async with in_background(webhook.run()):
        yield webhook
