"""A server's record as a `server.json`, to be published elsewhere: the inverse of `server_json`.

It is made from a body whose secrets are masked already, and what is masked becomes something to fill in.
Nothing but a package that a known program runs, or a URL, can be started elsewhere: any other record is
refused.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolgate.errors import InvalidRecord
from toolgate.model.references import REFERENCE
from toolgate.redaction.records import MASK
from toolgate.redaction.secret_names import looks_secret
from toolgate.registry.interchange.server_json import REMOTES, RUNNERS, reference

Json = dict[str, Any]

SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
MAX_TITLE: Final = 100
"""Of characters, in titles and descriptions."""

_VERSION = re.compile(r"[0-9][\w.+!-]*")
_VERSION_SIGNS: Final = {"npm": "@", "nuget": "@", "pypi": "=="}
"""What parts an identifier from its version. Of an image the tag is part of the identifier."""
_VALUED: Final = frozenset(
    {
        *("-e", "--env", "--env-file", "-v", "--volume", "--mount", "-u", "--user", "-w", "--workdir"),
        *("-p", "--publish", "--network", "--add-host", "--name", "--platform", "--security-opt"),
        "--entrypoint",
    }
)
"""Options of `docker run` whose value is the next word."""
_BARE: Final = frozenset({"--init", "--read-only", "--privileged", "-t", "--tty"})
"""Those that have none."""
_IMPLIED: Final[Mapping[str, frozenset[str]]] = {
    "npm": frozenset({"-y", "--yes"}),
    "pypi": frozenset(),
    "oci": frozenset({"--rm", "-i", "--interactive"}),
    "nuget": frozenset({"-y", "--yes"}),
}
"""What goes without saying: whoever runs the package adds it."""
_HOLE = re.compile(rf"{REFERENCE.pattern}|{re.escape(MASK)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What a `server.json` says of a server besides how to run or reach it."""

    name: str
    """Namespace and name, with a slash between."""
    version: str
    title: str = ""
    description: str = ""

    def encode(self) -> Json:
        title = {"title": self.title[:MAX_TITLE]} if self.title else {}
        said = self.description or self.title or self.name
        return {
            "$schema": SCHEMA,
            "name": self.name,
            **title,
            "description": said[:MAX_TITLE],
            "version": self.version,
        }


def encode_server_json(identity: Identity, shown: Mapping[str, Any]) -> Json:
    """The `server.json` of a server whose body, masked, is `shown`. Or InvalidRecord."""
    if shown.get("package"):
        raise InvalidRecord(
            "this server runs from a package that is kept here",
            hint="publish the package's own sources, or the gateway's URL as `/v0.1/servers` shows it",
        )
    if shown.get("transport") == "stdio":
        return {**identity.encode(), "packages": [_package(shown["stdio"])]}
    return {**identity.encode(), "remotes": [_remote(str(shown.get("transport")), shown["http"])]}


def _package(stdio: Mapping[str, Any]) -> Json:
    command, env = str(stdio["command"]), dict(stdio.get("env") or {})
    env |= {name: reference(name) for name in stdio.get("env_from") or () if name not in env}
    kind = next((kind for kind, programs in RUNNERS.items() if command in programs), None)
    if kind is None:
        raise InvalidRecord(
            f"`{command[:80]}` is a program of the node, and no package that others could run",
            hint=f"what can be published is started by {', '.join(sorted(_programs()))}",
        )
    before, identifier, after = _cut(kind, command, [str(arg) for arg in stdio.get("args") or ()], env)
    is_usual = command == RUNNERS[kind][0] and not before
    return {
        "registryType": kind,
        **_versioned(kind, identifier),
        **({} if is_usual else {"runtimeHint": command}),
        "transport": {"type": "stdio"},
        **({"runtimeArguments": [_argument(one) for one in before]} if before else {}),
        **({"packageArguments": [_argument(one) for one in after]} if after else {}),
        **({"environmentVariables": [_named(*pair) for pair in env.items()]} if env else {}),
    }


def _programs() -> Iterator[str]:
    for programs in RUNNERS.values():
        yield from (f"`{one}`" for one in programs)


def _cut(
    kind: str, command: str, args: Sequence[str], env: Mapping[str, str]
) -> tuple[list[str], str, list[str]]:
    """What the program is told itself, the package, and what that is told. Or InvalidRecord."""
    words = list(args)
    if _needs_verb(kind, command) and words[:1] != ["run"]:
        raise _unreadable(command)
    del words[: _needs_verb(kind, command)]
    before: list[str] = []
    while words and words[0].startswith("-"):
        word = words.pop(0)
        if word in _IMPLIED[kind]:
            continue
        if kind == "oci" and word in _VALUED and words:
            value = words.pop(0)
            before += [] if word == "-e" and value in env else [word, value]
        elif "=" in word or (kind == "oci" and word in _BARE):
            before.append(word)
        else:
            raise _unreadable(command)  # the next word may be its value, or the package
    if not words:
        raise _unreadable(command)
    return before, words[0], words[1:]


def _needs_verb(kind: str, command: str) -> bool:
    return kind == "oci" or command == "pipx"


def _unreadable(command: str) -> InvalidRecord:
    return InvalidRecord(
        f"which package `{command}` runs cannot be told from its arguments",
        hint="write options that have a value as `--option=value`, before the package",
    )


def _versioned(kind: str, identifier: str) -> Json:
    sign = _VERSION_SIGNS.get(kind)
    if sign is not None:
        name, found, version = identifier.rpartition(sign)
        if found and name and _VERSION.fullmatch(version):
            return {"identifier": name, "version": version}
    if MASK in identifier or REFERENCE.search(identifier):
        raise InvalidRecord("the package's name is to be filled in on the node")
    return {"identifier": identifier}


def _remote(transport: str, http: Mapping[str, Any]) -> Json:
    kind = next(kind for kind, ours in REMOTES.items() if ours == transport)
    url, variables = _opened(str(http["url"]))
    headers = [_named(name, str(value)) for name, value in (http.get("headers") or {}).items()]
    if (name := http.get("auth_ref")) and "authorization" not in {one["name"].lower() for one in headers}:
        variable = re.sub(r"\W+", "_", str(name))
        headers.append(
            {
                "name": "Authorization",
                "value": f"Bearer {{{variable}}}",
                "variables": {variable: {"isRequired": True, "isSecret": True}},
            }
        )
    return {
        "type": kind,
        "url": url,
        **({"variables": variables} if variables else {}),
        **({"headers": headers} if headers else {}),
    }


def _argument(text: str) -> Json:
    value, variables = _opened(text)
    return {"type": "positional", "value": value} | ({"variables": variables} if variables else {})


def _named(name: str, text: str) -> Json:
    """A header or a variable. What is only to be filled in under its own name needs no text."""
    if text in {reference(name), MASK}:
        return {"name": name, "isRequired": True, "isSecret": looks_secret(name) or text == MASK}
    value, variables = _opened(text)
    return {"name": name, "value": value} | ({"variables": variables} if variables else {})


def _opened(text: str) -> tuple[str, Json]:
    """`text` with its references and masks as `{name}`, and what is known of each."""
    variables: Json = {}

    def open_up(match: re.Match[str]) -> str:
        name, default = match[1] or "SECRET", match[2]
        is_secret = match[1] is None or looks_secret(name) or default == MASK
        known: Json = {"default": default} if default and not is_secret else {"isRequired": True}
        variables[name] = known | ({"isSecret": True} if is_secret else {})
        return f"{{{name}}}"

    return _HOLE.sub(open_up, text), variables
