"""Every module that the program loads only when it is first needed, and why.

All other imports stand at the top of their files, where readers and import-linter see them. A test loads each
module named here, holds each use against the layers, and finds any other import by name.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

_PROCESS: Final = "one form of a process: a node loads no database"
_COMMAND: Final = "a command of the CLI: each loads only what it needs"
_GUESTS: Final = "wasmtime takes 0.25 s to load, and memory from then on; for the first guest"
_OTLP: Final = "OpenTelemetry takes as long to load as Toolgate; for the setting `otlp`"
_POSTGRESQL: Final = "the driver takes as long to load as Toolgate; for the setting `database`"

LAZY_MODULES: Final[Mapping[str, str]] = {
    "toolgate.app.control": _PROCESS,
    "toolgate.app.node": _PROCESS,
    "toolgate.app.up": _PROCESS,
    "toolgate.audit.otlp": _OTLP,
    "toolgate.cli.commands.approvals": _COMMAND,
    "toolgate.cli.commands.audit": _COMMAND,
    "toolgate.cli.commands.audit_verify": "the audit index takes as long as all else; for `audit verify`",
    "toolgate.cli.commands.catalog": _COMMAND,
    "toolgate.cli.commands.changes": _COMMAND,
    "toolgate.cli.commands.connect": _COMMAND,
    "toolgate.cli.commands.copies": _COMMAND,
    "toolgate.cli.commands.doctor": _COMMAND,
    "toolgate.cli.commands.keys": _COMMAND,
    "toolgate.cli.commands.packages": _COMMAND,
    "toolgate.cli.commands.pins": _COMMAND,
    "toolgate.cli.commands.policy": _COMMAND,
    "toolgate.cli.commands.profiles": _COMMAND,
    "toolgate.cli.commands.publish": _COMMAND,
    "toolgate.cli.commands.runs": _COMMAND,
    "toolgate.cli.commands.serve": _COMMAND,
    "toolgate.cli.commands.servers": _COMMAND,
    "toolgate.cli.commands.skill": _COMMAND,
    "toolgate.cli.commands.status": _COMMAND,
    "toolgate.cli.commands.tasks": _COMMAND,
    "toolgate.cli.commands.top": _COMMAND,
    "toolgate.cli.demo.demo": "the demo is a client as well; a gateway without it starts faster",
    "toolgate.gateway.auth.oidc": "token verification takes 0.1 s to load; for the setting `oidc`",
    "toolgate.gateway.search.semantic": "numpy and a model, an optional extra; for `semantic_model`",
    "toolgate.registry.database.postgresql": _POSTGRESQL,
    "toolgate.registry.interchange.yaml": "PyYAML; for Docker's catalog",
    "toolgate.registry.migrations": "Alembic takes longer to load than the registry, and runs once a release",
    "toolgate.registry.store.postgresql": _POSTGRESQL,
    "toolgate.surfaces.wasm.functions": _GUESTS,
    "toolgate.telemetry.tracing": _OTLP,
    "toolgate.wasm.module_cache": _GUESTS,
    "toolgate.wasm.slots": _GUESTS,
}
"""Module → why it is loaded late, and for what."""


def load_lazily(name: str) -> Any:
    """The module `name`, imported now unless it is there already. It must be in `LAZY_MODULES`."""
    assert name in LAZY_MODULES, f"{name} is not declared in LAZY_MODULES"
    return import_module(name)
