"""Named contexts: the address of a gateway and the key to it, in one file that only its owner can read.

`resolve_target` decides which gateway a command calls, and with which key. It never gives the key of a
context to another URL than the context's own, and nothing here prints a key.
"""

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from shlex import quote
from typing import Any, Final
from urllib.parse import urlsplit

from toolgate.catalog.clients import KEY_VARIABLE
from toolgate.cli.command import DEFAULT_URL, UsageError
from toolgate.cli.render.layout import encode_json

URL_VARIABLE: Final = "TOOLGATE_URL"
CONTEXT_VARIABLE: Final = "TOOLGATE_CONTEXT"

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
"""64 characters: a host name of usual length fits, and so does a column of `contexts list`."""
_DEFAULT_PORTS: Final = {"http": 80, "https": 443}
_HEADER: Final = "# Written by `toolgate login`. It holds keys: only its owner may read it.\n"
_FIX_FILE: Final = "correct the file, or remove it and run `toolgate login` again"


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayContext:
    """One gateway: its address, and the key to it if it needs one."""

    url: str
    key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contexts:
    """What the file holds."""

    by_name: Mapping[str, GatewayContext]
    current: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayTarget:
    """The gateway a command calls. `key`: that of `context`, or of the environment."""

    url: str
    key: str | None = field(default=None, repr=False)
    context: str | None = None
    """The context whose key it is. None: the key is of no context, or the gateway is called without one."""
    ignored: str | None = None
    """The context of `--context` whose address is not used, because another address outranks it."""


def resolve_target(
    environ: Mapping[str, str], *, url: str | None = None, context: str | None = None, has_key: bool = False
) -> GatewayTarget:
    """The gateway and the key: from the command line, else the environment, else a context.

    `url` and `context` are those of the command line; `has_key`: it names a key file. A context is that of
    `--context`, else of TOOLGATE_CONTEXT, else the current one. Raises UsageError.
    """
    url = url or environ.get(URL_VARIABLE) or None
    key = environ.get(KEY_VARIABLE, "").strip() or None
    has_key = has_key or key is not None
    if url is not None and has_key and context is None:
        return GatewayTarget(url=url, key=key)
    name, found = _select_context(context, environ, is_needed=url is None)
    if found is None:
        return GatewayTarget(url=url or DEFAULT_URL, key=key)
    is_own = url is None or is_same_address(url, found.url)
    if has_key or not is_own:
        return GatewayTarget(url=url or found.url, key=key, ignored=None if is_own else context)
    return GatewayTarget(url=url or found.url, key=found.key, context=name)


def _select_context(
    chosen: str | None, environ: Mapping[str, str], *, is_needed: bool
) -> tuple[str | None, GatewayContext | None]:
    """The context that applies. One that does not exist is an error if its address is needed."""
    contexts = load_contexts(find_contexts_file(environ))
    name = chosen or environ.get(CONTEXT_VARIABLE) or contexts.current
    if name is None or name in contexts.by_name:
        return name, contexts.by_name.get(name or "")
    if is_needed or chosen is not None:
        raise refuse_unknown(name)
    return None, None


def refuse_unknown(name: str) -> UsageError:
    hint = f"`toolgate contexts list` shows them; `toolgate login URL --context {quote(name)}` creates one"
    return UsageError(f"no context `{name}`", hint=hint)


def url_option(url: str) -> str:
    """The option that a suggested command needs to reach the gateway at `url`: none if it is the default."""
    try:
        contexts = load_contexts(find_contexts_file(os.environ))
    except UsageError:
        contexts = Contexts(by_name={})
    current = contexts.by_name.get(contexts.current or "")
    is_default = is_same_address(url, DEFAULT_URL if current is None else current.url)
    return "" if is_default else f" --url {quote(url)}"


def is_same_address(one: str, other: str) -> bool:
    """Whether two URLs name the same endpoint: scheme, host, port and path."""
    return _split_address(one) == _split_address(other)


def _split_address(url: str) -> tuple[object, ...]:
    """The parts that decide where a request goes; one without parts if it is not a URL."""
    try:
        parts = urlsplit(url)
        port = parts.port or _DEFAULT_PORTS.get(parts.scheme)
    except ValueError:
        return (url,)
    userinfo, _, _ = parts.netloc.rpartition("@")
    return parts.scheme, userinfo, parts.hostname, port, parts.path.rstrip("/"), parts.query


def check_context_name(name: str) -> str:
    """`name`, if a context can have it. Raises UsageError."""
    if _NAME.fullmatch(name) is None:
        hint = "use up to 64 letters, digits, `.`, `_` and `-`, and begin with a letter or a digit"
        raise UsageError(f"invalid context name `{name}`", hint=hint)
    return name


def find_contexts_file(environ: Mapping[str, str]) -> Path:
    """Where the contexts are, by the XDG base directory specification: relative paths in it do not count."""
    configured = Path(environ.get("XDG_CONFIG_HOME", ""))
    home = configured if configured.is_absolute() else Path.home() / ".config"
    return home / "toolgate" / "contexts.toml"


def load_contexts(file: Path) -> Contexts:
    """The contexts in a file that only its owner can read; none if there is no file. Raises UsageError."""
    try:
        with file.open("rb") as opened:
            mode = stat.S_IMODE(os.fstat(opened.fileno()).st_mode)
            if mode & (stat.S_IRWXG | stat.S_IRWXO):
                hint = f"run `chmod 600 {quote(str(file))}`; replace its keys if others may have read them"
                raise UsageError(f"others can read `{file}`, which holds keys (mode {mode:o})", hint=hint)
            return _parse_contexts(tomllib.loads(opened.read().decode("utf-8")))
    except FileNotFoundError:
        return Contexts(by_name={})
    except OSError as exc:
        raise UsageError(f"cannot read `{file}`: {exc.strerror}") from exc
    except ValueError as exc:
        # The text of a parser names a place in the file, never a value.
        raise UsageError(f"`{file}` is not a file of contexts: {exc}", hint=_FIX_FILE) from None


def _parse_contexts(document: Mapping[str, Any]) -> Contexts:
    """Raises ValueError, which says where the document is wrong."""
    current, tables = document.get("current"), document.get("contexts", {})
    if document.keys() - {"current", "contexts"} or not isinstance(tables, dict):
        raise ValueError("it holds `current` and `[contexts.NAME]`, and nothing else")
    by_name = {name: _parse_context(name, table) for name, table in tables.items()}
    if current is not None and not (isinstance(current, str) and current in by_name):
        raise ValueError("`current` is not the name of one of its contexts")
    return Contexts(by_name=by_name, current=current)


def _parse_context(name: str, table: Any) -> GatewayContext:
    where = f"`contexts.{name}`"
    if not isinstance(table, dict) or table.keys() - {"url", "key"}:
        raise ValueError(f"{where} holds `url` and `key`, and nothing else")
    if "url" not in table or not all(isinstance(one, str) for one in table.values()):
        raise ValueError(f"{where} needs `url`, and `url` and `key` are text")
    return GatewayContext(url=table["url"], key=table.get("key") or None)


def load_key_file(file: Path) -> str:
    """The one key in a file. Raises UsageError."""
    try:
        key = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as exc:
        hint = "give a file that holds one key and that you may read"
        raise UsageError(f"cannot read the key file `{file}`: {exc}", hint=hint) from exc
    if not key:
        hint = "write the key into it, as `toolgate keys create` printed it"
        raise UsageError(f"the key file `{file}` is empty", hint=hint)
    return key


def encode_contexts(contexts: Contexts) -> str:
    """The text of the file. A JSON string of printable text is a TOML string, too."""
    lines = [_HEADER]
    if contexts.current is not None:
        lines.append(f"current = {encode_json(contexts.current)}\n")
    for name, one in sorted(contexts.by_name.items()):
        lines += [f"\n[contexts.{encode_json(name)}]\n", f"url = {encode_json(one.url)}\n"]
        if one.key is not None:
            lines.append(f"key = {encode_json(one.key)}\n")
    return "".join(lines)
