"""A package's server started once on this machine, or connected to, in the way the gateway will."""

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from toolgate.cli.failure import CommandError
from toolgate.model.packages import PackageRef
from toolgate.model.servers import ServerRecord
from toolgate.model.tools import ToolDefinition
from toolgate.packages.connector import resolve_launch
from toolgate.packages.manifest import Manifest, build_server_body
from toolgate.registry.records.codec import parse_server
from toolgate.upstream.connection.contract import DEFAULT_LIMITS
from toolgate.upstream.connection.secrets import Secrets
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.sse_legacy import SseLegacyConnector
from toolgate.upstream.pool.connectors import Connectors, TrialReport, try_server
from toolgate.upstream.stdio.children import Warden
from toolgate.upstream.stdio.connector import StdioConnector
from toolgate.upstream.streamable import StreamableConnector

_UNPUBLISHED = PackageRef(version="0", sha256="0" * 64)


def list_package_tools(manifest: Manifest, directory: Path) -> Sequence[ToolDefinition]:
    """Every tool that the server lists. Raises CommandFailed where it does not start, or one is not right."""
    report = asyncio.run(_try(_record(manifest, directory)))
    if report.error:
        raise CommandError(
            f"the server of `{manifest.id}` does not run: {report.error}",
            hint="run its command by hand in the package's directory, with the variables of `run.env` alone",
            data={"stderr_tail": report.stderr_tail},
        )
    if report.quarantined:
        wrong = "; ".join(f"`{name}`: {why}" for name, why in report.quarantined.items())
        raise CommandError(
            f"tools of `{manifest.id}` cannot be offered: {wrong}",
            hint="mend their definitions in the server",
        )
    return tuple(report.tools.values())


def _record(manifest: Manifest, directory: Path) -> ServerRecord:
    record = replace(parse_server(build_server_body(manifest, _UNPUBLISHED)), package=None)
    if record.stdio is None:
        return record
    return replace(record, stdio=resolve_launch(record.stdio, directory.resolve()))


async def _try(record: ServerRecord) -> TrialReport:
    secrets, egress = Secrets(os.environ), Egress(allow_private=True)
    warden = Warden(max_children=1)
    try:
        openers = Connectors(
            {
                "stdio": StdioConnector(warden, secrets),
                "streamable_http": StreamableConnector(secrets, egress),
                "http_sse_legacy": SseLegacyConnector(secrets, egress),
            },
            DEFAULT_LIMITS,
        )
        return await try_server(record, openers, DEFAULT_LIMITS)
    finally:
        await warden.aclose()
