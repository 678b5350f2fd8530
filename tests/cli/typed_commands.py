"""Every command of the reference with the least that it needs, and what it asks a gateway first.

`{tmp}` is a directory with the files of `write_files`. A command without a request asks no gateway.
"""

import hashlib
import json
from pathlib import Path
from typing import Any, Final, NamedTuple

import typer

from toolgate.cli.command import ExitCode
from toolgate.cli.root import COMMANDS, app

SHA256: Final = "ab" * 32
WASM: Final = b"\0asm\1\0\0\0"


class Typed(NamedTuple):
    """The rest of a command line, its first request, and its exit code where the gateway knows no path."""

    words: str = ""
    request: str = ""
    code: int = ExitCode.FAILED


SERVERS: Final = "/admin/api/mcp/servers"
RUN: Final = "/api/v1/tasks/job/invocations"


def _record_verbs(noun: str, path: str, file: str) -> dict[str, Typed]:
    """The verbs that every kind of record has, on a record `x`."""
    return {
        f"{noun} list": Typed("", f"GET {path}"),
        f"{noun} get": Typed("x", f"GET {path}/x"),
        f"{noun} apply": Typed(f"-f {{tmp}}/{file}", f"PUT {path}/x"),
        f"{noun} delete": Typed("x", f"DELETE {path}/x"),
        f"{noun} history": Typed("x", f"GET {path}/x/history"),
        f"{noun} diff": Typed("x --since 1", f"GET {path}/x/diff"),
        f"{noun} rollback": Typed("x --to 1", f"POST {path}/x/rollback"),
    }


TYPED: Final[dict[str, Typed]] = {
    "up": Typed("--listen nowhere --data {tmp}/none"),
    "control": Typed("--listen nowhere --data {tmp}/none"),
    "node": Typed("--listen nowhere --data {tmp}/none"),
    "connect": Typed("generic --frozen", "GET /api/v1/mcp/scope"),
    "tools": Typed("", "GET /api/v1/mcp/tools"),
    "call": Typed("git.git_log", "POST /api/v1/mcp/call"),
    "run": Typed("job", f"POST {RUN}"),
    "skills check": Typed("{tmp}/skill.json", "GET /api/v1/mcp/explain"),
    "skills url": Typed("{tmp}/skill.json", code=ExitCode.OK),
    "skills apply": Typed("{tmp}/skill.json", "POST /admin/api/apply"),
    "integrations": Typed("", "GET /api/v1/me/integrations"),
    "integrations list": Typed("", "GET /api/v1/me/integrations"),
    "integrations on": Typed("x", "PUT /api/v1/me/integrations/x"),
    "integrations off": Typed("x", "PUT /api/v1/me/integrations/x"),
    "integrations reset": Typed("x", "DELETE /api/v1/me/integrations/x"),
    "login": Typed("{url} --key-file {tmp}/key", "GET /api/v1/me"),
    "logout": Typed("none", code=ExitCode.USAGE),
    "contexts list": Typed(code=ExitCode.OK),
    "contexts use": Typed("none", code=ExitCode.USAGE),
    "contexts delete": Typed("none", code=ExitCode.USAGE),
    **_record_verbs("servers", SERVERS, "server.json"),
    "servers add": Typed("x --url https://x.example/mcp", f"GET {SERVERS}/x"),
    "servers test": Typed("x", f"POST {SERVERS}/x/test"),
    "servers refresh": Typed("x", f"POST {SERVERS}/x/refresh"),
    "servers login": Typed("x", "POST /api/v1/mcp/servers/x/login"),
    "servers logout": Typed("x", "DELETE /api/v1/mcp/servers/x/login"),
    "servers tools": Typed("x", f"GET {SERVERS}/x/tools"),
    "servers export": Typed("x", f"GET {SERVERS}/x/server.json"),
    "servers import": Typed("{tmp}/mcp.json", f"POST {SERVERS}/import"),
    **_record_verbs("tasks", "/admin/api/tasks", "task.json"),
    **_record_verbs("profiles", "/admin/api/profiles", "profile.json"),
    "profiles rollout": Typed("x --share 10", "GET /admin/api/profiles/x"),
    "profiles promote": Typed("x", "GET /admin/api/profiles/x"),
    "profiles compare": Typed("x", "GET /admin/api/profiles/x/versions"),
    **_record_verbs("pins", "/admin/api/pins", "pin.json"),
    "pins review": Typed("x", "GET /admin/api/pins/x/diff"),
    "pins approve": Typed("x", "GET /admin/api/pins"),
    "keys list": Typed("", "GET /admin/api/keys"),
    "keys get": Typed("x", "GET /admin/api/keys/x"),
    "keys history": Typed("x", "GET /admin/api/keys/x/history"),
    "keys create": Typed("x", "POST /admin/api/keys"),
    "keys set-quota": Typed("x --none", "PUT /admin/api/keys/x/budgets"),
    "keys delete": Typed("x", "DELETE /admin/api/keys/x"),
    **_record_verbs("chat-upstreams", "/admin/api/chat-upstreams", "upstream.json"),
    "chat-upstreams test": Typed("x", "POST /admin/api/chat-upstreams/x/test"),
    "packages": Typed("", "GET /api/packages"),
    "packages list": Typed("", "GET /api/packages"),
    "packages init": Typed("{tmp}/new", code=ExitCode.OK),
    "packages publish": Typed("{tmp}/package", "GET /api/packages/x"),
    "packages install": Typed("x", "POST /api/packages/x/install"),
    "packages get": Typed("x", "GET /api/packages/x"),
    "packages delete": Typed("x 1.0.0", "DELETE /api/packages/x/1.0.0"),
    "packages uninstall": Typed("x", "DELETE /api/packages/x"),
    "modules list": Typed("", "GET /admin/api/modules"),
    "modules get": Typed(SHA256, f"GET /admin/api/modules/{SHA256}"),
    "modules upload": Typed("{tmp}/a.wasm", f"GET /api/uploads/{hashlib.sha256(WASM).hexdigest()}"),
    "modules delete": Typed(SHA256, f"DELETE /admin/api/modules/{SHA256}"),
    "catalog": Typed("", "GET /api/catalog"),
    "catalog list": Typed("", "GET /api/catalog"),
    "catalog get": Typed("x", "GET /api/catalog"),
    "catalog search": Typed("write a note", "GET /api/catalog/search"),
    "catalog quality": Typed("", "GET /api/v1/catalog/quality"),
    "catalog backfill": Typed("", "POST /admin/api/catalog/backfill"),
    "plan": Typed("-f {tmp}/server.json", "POST /admin/api/plan"),
    "apply": Typed("-f {tmp}/server.json", "POST /admin/api/apply"),
    "diff": Typed("-f {tmp}/server.json", "POST /admin/api/plan", ExitCode.USAGE),
    "reload": Typed("", "POST /admin/api/registry/reload"),
    "lint": Typed("", "GET /admin/api/lint"),
    "learn": Typed("job", "GET /admin/api/tasks/job/learn"),
    "unused": Typed("", "GET /admin/api/unused"),
    "approvals list": Typed("", "GET /admin/api/approvals"),
    "approvals get": Typed("x", "GET /admin/api/approvals/x"),
    "approvals approve": Typed("x", "POST /admin/api/approvals/x/approve"),
    "approvals deny": Typed("x", "POST /admin/api/approvals/x/deny"),
    "explain": Typed("", "GET /api/v1/mcp/explain"),
    "audit": Typed("", "GET /admin/api/audit"),
    "audit verify": Typed("--data {tmp}/none"),
    "doctor": Typed("--data {tmp}", "GET /healthz"),
    "top": Typed("--once --interval 0.2s", "GET /metrics"),
    "watch": Typed("", "GET /admin/api/watch"),
    "invocations list": Typed("job", f"GET {RUN}"),
    "invocations get": Typed("job x", f"GET {RUN}/x"),
    "invocations logs": Typed("job x", f"GET {RUN}/x/logs"),
    "invocations cancel": Typed("job x", f"POST {RUN}/x/cancel"),
    "quotas": Typed("", "GET /admin/api/budgets"),
    "tokens": Typed("", "GET /admin/api/tokens"),
    "tokens price": Typed("", "GET /api/v1/mcp/scope"),
    "nodes": Typed("", "GET /admin/api/nodes"),
    "nodes list": Typed("", "GET /admin/api/nodes"),
    "nodes get": Typed("x", "GET /admin/api/nodes"),
    "backup": Typed("", "POST /admin/api/backup"),
    "restore": Typed("{tmp}/none --data {tmp}/data"),
    "completion": Typed("bash", code=ExitCode.OK),
}


def write_files(directory: Path) -> None:
    """The files that the commands name."""
    stdio = {"transport": "stdio", "stdio": {"command": "x"}}
    documents: dict[str, Any] = {
        "server.json": {"server_id": "x", **stdio},
        "task.json": {"task_id": "x"},
        "profile.json": {"profile_id": "x"},
        "pin.json": {"server_id": "x", "tools": {}},
        "upstream.json": {"upstream_id": "x", "base_url": "http://127.0.0.1:1/v1", "models": ["*"]},
        "skill.json": {"id": "x", "tools": ["git.git_log"]},
        "mcp.json": {"mcpServers": {}},
    }
    for name, document in documents.items():
        (directory / name).write_text(json.dumps(document), "utf-8")
    (directory / "key").write_text("tg_key\n", "utf-8")
    (directory / "a.wasm").write_bytes(WASM)
    package = directory / "package"
    package.mkdir()
    manifest = {"manifestSchemaVersion": "v2", "id": "x", "name": "X", "version": "1.0.0", "tools": []}
    (package / "manifest.json").write_text(json.dumps(manifest), "utf-8")


def walk_commands() -> dict[str, Any]:
    """Every command that can be typed, with its full name."""
    root: Any = typer.main.get_command(app)
    found: dict[str, Any] = {}
    for name in COMMANDS:
        command = root.get_command(None, name)
        subcommands = getattr(command, "commands", {})
        if not subcommands or command.invoke_without_command:
            found[name] = command
        found |= {f"{name} {verb}": one for verb, one in subcommands.items()}
    return found
