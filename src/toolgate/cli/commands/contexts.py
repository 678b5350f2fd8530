"""`toolgate login`, `logout` and `contexts`: the gateways that commands call, each by a name.

A key is checked against its gateway before it is saved. It is read from a file, from the environment or from
the terminal without echo, and never printed.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import typer
from rich.console import RenderableType
from rich.text import Text
from typer import Argument

from toolgate.catalog.clients import KEY_VARIABLE
from toolgate.cli.command import (
    DEFAULT_URL,
    JsonOption,
    UsageError,
    add_group,
    command,
    print_output,
)
from toolgate.cli.contexts import (
    URL_VARIABLE,
    Contexts,
    GatewayContext,
    check_context_name,
    encode_contexts,
    find_contexts_file,
    is_same_address,
    load_contexts,
    load_key_file,
    refuse_unknown,
)
from toolgate.cli.render import layout as ui
from toolgate.cli.rest import open_client
from toolgate.disk import replace_file
from toolgate.model.http import is_loopback

_LOOPBACK_NAME: Final = "local"
NameArgument = Annotated[str, Argument(help="Name of the context.")]

app = typer.Typer(add_completion=False)
contexts = add_group(app, "contexts")


@command(app, "login")
def log_in(
    url: Annotated[
        str | None,
        Argument(
            help=f"Address of the gateway. Default: that of the context, {URL_VARIABLE} or `{DEFAULT_URL}`."
        ),
    ] = None,
    *,
    name: Annotated[
        str | None, "--context", "Name to save it under. Default: the host, or `local` for this machine."
    ] = None,
    key_file: Annotated[
        Path | None, f"File with the key to save. Default: {KEY_VARIABLE}, else you are asked for it."
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Save the address of a gateway and a key to it.

    They are saved as a context, which becomes the current one: commands call its gateway. The key is sent to
    the gateway once before it is saved, so a wrong key is an error here. The file `contexts.toml` in your
    configuration directory can be read by you only.

    \b
    toolgate login https://tools.example.com --context prod
    toolgate login --context local --key-file admin.key
    """
    saved = load_contexts(find_contexts_file(os.environ))
    # To log in to a context again takes no address.
    known = saved.by_name.get(name or "")
    url = _check_url(url or (known.url if known else os.environ.get(URL_VARIABLE) or DEFAULT_URL))
    name = check_context_name(name) if name else _choose_name(saved, url)
    key = _read_key(url, key_file)
    caller = _identify_caller(url, key)
    by_name = {**saved.by_name, name: GatewayContext(url=url, key=key)}
    file = _save(Contexts(by_name=by_name, current=name))
    shown = {"context": name, "url": url, "file": str(file), **caller}
    warnings = _warn_about_plaintext(url, key)
    rendered = ui.group_parts(_render_login(shown), ui.render_warnings(warnings))
    print_output({**shown, "warnings": warnings}, rendered, as_json=as_json)


def _check_url(url: str) -> str:
    """`url`, if it is the address of a gateway that can be saved. Raises UsageError."""
    hint = "give one like `https://tools.example.com`"
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if not is_address or not url.isascii() or not url.isprintable():
        raise UsageError(f"`{url}` is not the address of a gateway", hint=hint)
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise UsageError("the address of a gateway has no user, query or fragment", hint=hint)
    return url.rstrip("/")


def _choose_name(saved: Contexts, url: str) -> str:
    """The host, or `local`; never the name of another gateway's context."""
    host = urlsplit(url).hostname or ""
    name = check_context_name(_LOOPBACK_NAME if is_loopback(host) else host.replace(":", "-").strip("-"))
    known = saved.by_name.get(name)
    if known is not None and not is_same_address(known.url, url):
        hint = "choose a name with --context; `--context` with this name replaces it"
        raise UsageError(f"context `{name}` is for `{known.url}`", hint=hint)
    return name


def _read_key(url: str, key_file: Path | None) -> str | None:
    """The key to save; None if a gateway on this machine is used without one."""
    key = load_key_file(key_file) if key_file is not None else os.environ.get(KEY_VARIABLE, "").strip()
    may_be_empty = is_loopback(urlsplit(url).hostname or "")
    if not key and sys.stdin.isatty():
        question = f"key for {url}{' (empty: none)' if may_be_empty else ''}"
        default = "" if may_be_empty else None
        key = typer.prompt(question, default=default, hide_input=True, show_default=False, err=True).strip()
    if not key and not may_be_empty:
        hint = f"give --key-file or set {KEY_VARIABLE}; only a terminal can ask for the key"
        raise UsageError("no key to log in with", hint=hint)
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise UsageError("a key has only printable ASCII characters, and no space", hint="copy it again")
    return key or None


def _identify_caller(url: str, key: str | None) -> dict[str, Any]:
    """Who the gateway says the key belongs to. Raises CommandError if it refuses the key."""
    with open_client(url, key) as client:
        me = client.find("/api/v1/me")
        if me is not None:
            return {one: me[one] for one in ("principal", "role", "by")}
        # A node knows no callers by name, but checks their keys.
        client.get("/api/v1/mcp/health")
        return {"principal": None, "role": None, "by": "key" if key else "loopback"}


def _warn_about_plaintext(url: str, key: str | None) -> list[str]:
    parts = urlsplit(url)
    if key is None or parts.scheme == "https" or is_loopback(parts.hostname or ""):
        return []
    return ["`http` sends the key unencrypted: use an `https` address where others can read the network"]


def _render_login(shown: Mapping[str, Any]) -> RenderableType:
    known = shown["principal"] is not None
    caller = (" as ", ui.bold(shown["principal"]), ", role ", ui.cell(shown["role"])) if known else ()
    saved = f"saved as context {shown['context']}, which is now current"
    return ui.group_parts(
        ui.done("logged in to ", ui.bold(shown["url"]), *caller), ui.indent(ui.cell(saved, ui.DIM))
    )


@command(app, "logout")
def log_out(
    name: Annotated[str | None, Argument(help="Name of the context. Default: the current one.")] = None,
    *,
    as_json: JsonOption = False,
) -> None:
    """Remove a saved gateway and its key.

    The key stays valid for those who have it: `toolgate keys delete ID` revokes it.
    """
    _remove(name, as_json=as_json)


def _remove(name: str | None, *, as_json: bool) -> None:
    saved = load_contexts(find_contexts_file(os.environ))
    name = name or saved.current
    if name is None:
        raise UsageError("no context is current", hint="name one: `toolgate contexts list` shows them")
    if name not in saved.by_name:
        raise refuse_unknown(name)
    by_name = {one: context for one, context in saved.by_name.items() if one != name}
    left = Contexts(by_name=by_name, current=None if saved.current == name else saved.current)
    _save(left)
    note = "" if left.current else "; no context is current"
    shown = ui.done("context ", ui.bold(name), f" and its key are removed from this machine{note}")
    print_output({"deleted": name, "current": left.current}, shown, as_json=as_json)


@command(contexts, "list")
def list_contexts(*, as_json: JsonOption = False) -> None:
    """List the contexts with their addresses. Keys are not shown."""
    saved = load_contexts(find_contexts_file(os.environ))
    found = [
        {"name": name, "url": one.url, "has_key": one.key is not None, "current": name == saved.current}
        for name, one in sorted(saved.by_name.items())
    ]
    print_output(found, _render_contexts(found), as_json=as_json)


def _render_contexts(found: list[dict[str, Any]]) -> RenderableType:
    if not found:
        return Text("no contexts yet: save one with `toolgate login URL`")
    rows = (
        (
            ui.cell("*" if one["current"] else "", ui.OK),
            ui.bold(one["name"]),
            one["url"],
            "saved" if one["has_key"] else ui.cell("none", ui.DIM),
        )
        for one in found
    )
    return ui.grid("", "CONTEXT", "URL*", "KEY", rows=rows)


@command(contexts, "use")
def use_context(name: NameArgument, *, as_json: JsonOption = False) -> None:
    """Make a context the current one: commands call its gateway unless told otherwise."""
    saved = load_contexts(find_contexts_file(os.environ))
    if name not in saved.by_name:
        raise refuse_unknown(name)
    _save(replace(saved, current=name))
    url = saved.by_name[name].url
    shown = ui.done("context ", ui.bold(name), " is now current: ", ui.cell(url))
    print_output({"current": name, "url": url}, shown, as_json=as_json)


@command(contexts, "delete")
def delete_context(name: NameArgument, *, as_json: JsonOption = False) -> None:
    """Remove a context and its key from this machine, as `toolgate logout` does."""
    _remove(name, as_json=as_json)


def _save(saved: Contexts) -> Path:
    """Replace the file, in a directory of its own that only its owner can enter."""
    file = find_contexts_file(os.environ)
    try:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        file.parent.chmod(0o700)  # it may be older than its first key
        replace_file(file, encode_contexts(saved).encode("ascii"))
    except OSError as exc:
        hint = "set XDG_CONFIG_HOME to a directory that you may write to"
        raise UsageError(f"cannot write `{file}`: {exc.strerror}", hint=hint) from exc
    return file
