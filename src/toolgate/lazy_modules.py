"""The modules that a process imports only when it first needs them, each with the reason.

All other imports are at the top of their files, where readers and import-linter see them. A test loads each
module named here, checks each use against the layers, and finds any other import by name.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Final

_PROCESS: Final = "one form of a process: a node loads no database"
_COMMAND: Final = "a command of the CLI: each loads only what it needs"
_GUESTS: Final = "wasmtime takes 0.25 s to load, and memory from then on; for the first guest"
_OTLP: Final = "OpenTelemetry takes as long to load as Toolgate; for the setting `otlp`"
_POSTGRESQL: Final = "the driver takes as long to load as Toolgate; for the setting `database`"

_COMMANDS: Final = (
    *("approvals", "audit", "call", "catalog", "changes", "completion", "connect", "contexts", "copies"),
    *("doctor", "keys", "packages"),
    *("pins", "policy", "profiles", "publish", "runs", "serve", "servers", "skills", "status", "tasks"),
    "top",
)
"""Modules of `toolgate.cli.commands`; each process needs one."""

LAZY_MODULES: Final[Mapping[str, str]] = {
    **{f"toolgate.cli.commands.{name}": _COMMAND for name in _COMMANDS},
    "toolgate.app.control": _PROCESS,
    "toolgate.app.node": _PROCESS,
    "toolgate.app.up": _PROCESS,
    "toolgate.audit.otlp": _OTLP,
    "toolgate.cli.commands.audit_verify": "the audit index takes as long as all else; for `audit verify`",
    "toolgate.cli.demo.demo": "the demo is a client as well; a gateway without it starts faster",
    "toolgate.gateway.auth.oidc": "token verification takes 0.1 s to load; for the setting `oidc`",
    "toolgate.gateway.search.semantic": "numpy and a model, an optional extra; for `semantic_model`",
    "toolgate.registry.database.postgresql": _POSTGRESQL,
    "toolgate.registry.interchange.yaml": "PyYAML; for files of other programs in YAML",
    "toolgate.registry.store.postgresql": _POSTGRESQL,
    "toolgate.surfaces.wasm.functions": _GUESTS,
    "toolgate.telemetry.tracing": _OTLP,
    "toolgate.wasm.module_cache": _GUESTS,
    "toolgate.wasm.slots": _GUESTS,
}
"""Module → the reason for loading it late."""


def load_lazily(name: str) -> Any:
    """Import the module `name`, which must be in `LAZY_MODULES`."""
    assert name in LAZY_MODULES, f"{name} is not declared in LAZY_MODULES"
    return import_module(name)
