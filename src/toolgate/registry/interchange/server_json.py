"""Reads the `server.json` of the official MCP registry, and writes one to publish a server elsewhere.

Reading: a server becomes one record, from its first package that a known program can run, else its first
remote. Values to fill in, mostly keys, become references to variables of the node. Nothing is downloaded or
started, and `parse_server` checks the bodies later.

Writing: the source is a body with masked secrets, so masks become variables to fill in. Only a URL, or a
package that a known program runs, can run elsewhere: any other record is rejected.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from toolgate.errors import InvalidRecord
from toolgate.model.names import REFERENCE
from toolgate.redaction.shapes import MASK, looks_secret

Json = Mapping[str, Any]
RUNNERS: Final[Mapping[str, tuple[str, ...]]] = {
    "npm": ("npx", "bunx", "pnpx"),
    "pypi": ("uvx", "pipx"),
    "oci": ("docker", "podman", "nerdctl"),
    "nuget": ("dnx",),
}
"""Package type → the programs that run it: the default, and others that a package may request."""
_RUN_UNPROMPTED: Final[Mapping[str, tuple[str, ...]]] = {"npx": ("-y",), "pipx": ("run",), "dnx": ("--yes",)}
REMOTES: Final = {"streamable-http": "streamable_http", "sse": "http_sse_legacy"}
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][\w.-]*)\}")
_HARMLESS_OPTION = re.compile(
    r"--init|--read-only|--network=none|--pull=\w+|--platform=[\w/.-]+|(?:-e|--env)=.*"
)
_PROGRAMS_OWN = re.compile(
    r"(?:DOCKER|CONTAINER|CONTAINERD|PODMAN|LD|DYLD)_\w*|PATH|HOME|XDG_\w*|\w*_PROXY", re.IGNORECASE
)
_NOT_IN_VARIABLE = re.compile(r"[^A-Za-z0-9]+")


def is_server_json(document: Json) -> bool:
    return isinstance(document.get("name"), str) and ("packages" in document or "remotes" in document)


def parse_server_json(document: Json) -> dict[str, Any]:
    """Return the body of the server, without an id. Raises InvalidRecord if it cannot be run or reached."""
    reasons = []
    for member, parse in (("packages", _parse_package), ("remotes", _parse_remote)):
        for part in json_objects(document, member):
            try:
                return parse(part)
            except InvalidRecord as exc:
                reasons.append(str(exc))
    raise InvalidRecord("; ".join(reasons) or "it names no package and no remote")


def _parse_package(package: Json) -> dict[str, Any]:
    kind = str(package.get("registryType"))
    transport = json_object(package, "transport").get("type", "stdio")
    if kind not in RUNNERS:
        raise InvalidRecord(f"packages of type `{kind[:40]}` are not supported")
    if transport != "stdio":
        raise InvalidRecord(
            f"its {kind} package uses the transport `{str(transport)[:40]}`, which the gateway cannot start"
        )
    runners = RUNNERS[kind]
    hint = package.get("runtimeHint")
    command = hint if hint in runners else runners[0]
    env = dict(_named_texts(package, "environmentVariables"))
    options = list(_arguments(package, "runtimeArguments"))
    run = _RUN_UNPROMPTED.get(command, ())
    if kind == "oci":
        _check_container(options, env)
        run = ("run", "--rm", "-i", *(part for name in env for part in ("-e", name)))
    args = [
        *run,
        *options,
        _identifier(kind, package),
        *_arguments(package, "packageArguments"),
    ]
    launch = {"command": command, "args": args} | ({"env": env} if env else {})
    return {"transport": "stdio", "stdio": launch}


def _check_container(options: Sequence[str], env: Mapping[str, str]) -> None:
    """Raises InvalidRecord if the file decides how to run a container, not just which. That is any option
    that gives it more than its image, and any variable that configures the container program."""
    words = iter(options)
    for word in words:
        if word in {"-e", "--env"}:
            next(words, None)
        elif not _HARMLESS_OPTION.fullmatch(word):
            raise InvalidRecord(
                f"its oci package runs its container with `{word[:40]}`: import it without that option"
            )
    for name, text in env.items():
        if _PROGRAMS_OWN.fullmatch(name) and not text.startswith("${ENV:"):
            raise InvalidRecord(f"its oci package sets `{name[:40]}`, which configures the container program")


def _identifier(kind: str, package: Json) -> str:
    identifier, version = package.get("identifier"), package.get("version")
    if not isinstance(identifier, str):
        raise InvalidRecord(f"its {kind} package has no `identifier`")
    if not isinstance(version, str):
        return identifier
    if kind == "oci":
        has_tag = "@" in identifier or ":" in identifier.rpartition("/")[2]
        return identifier if has_tag else f"{identifier}:{version}"
    return f"{identifier}{_VERSION_SIGNS[kind]}{version}"


def _parse_remote(remote: Json) -> dict[str, Any]:
    transport = REMOTES.get(str(remote.get("type")))
    url = remote.get("url")
    if transport is None or not isinstance(url, str):
        raise InvalidRecord("its remote has no URL or an unknown type")
    headers = dict(_named_texts(remote, "headers"))
    endpoint = {"url": _fill_placeholders(url, remote)} | ({"headers": headers} if headers else {})
    return {"transport": transport, "http": endpoint}


def _named_texts(owner: Json, member: str) -> Iterator[tuple[str, str]]:
    for one in json_objects(owner, member):
        name = str(one.get("name"))
        if (text := _text(one, name)) is not None:
            yield name, text


def _arguments(package: Json, member: str) -> Iterator[str]:
    for one in json_objects(package, member):
        name = str(one.get("name") or one.get("valueHint") or "")
        text = _text(one, name.lstrip("-"))
        if one.get("type") != "named":
            yield from [] if text is None else [text]
        elif text is not None:
            yield from (name, text)
        elif "value" not in one and not one.get("valueHint") and one.get("format") in {None, "boolean"}:
            yield name


def _text(source: Json, name: str) -> str | None:
    """Return the text of one input. None: it may be omitted. Defaults of secrets are dropped: the operator
    must set them."""
    value, default = source.get("value"), source.get("default")
    if isinstance(value, str):
        return _fill_placeholders(value, source)
    is_secret = source.get("isSecret") is True
    if isinstance(default, str) and default and not is_secret:
        return make_reference(name, default)
    return make_reference(name) if is_secret or source.get("isRequired") is True else None


def _fill_placeholders(text: str, owner: Json) -> str:
    """Replace each `{name}` that the owner's `variables` define. Others stay as text."""
    variables = json_object(owner, "variables")

    def fill(match: re.Match[str]) -> str:
        if match[1] not in variables:
            return match[0]
        source = json_object(variables, match[1])
        found = _text({"isRequired": True, **source}, match[1])
        return make_reference(match[1]) if found is None else found

    return _PLACEHOLDER.sub(fill, text)


def make_reference(name: str, default: str | None = None) -> str:
    variable = _NOT_IN_VARIABLE.sub("_", name).strip("_").upper() or "VALUE"
    variable = f"_{variable}" if variable[0].isdigit() else variable
    usable = default is not None and "}" not in default
    return f"${{ENV:{variable}:-{default}}}" if usable else f"${{ENV:{variable}}}"


def json_object(owner: Json, member: str) -> Json:
    """Return a member if it is an object, else an empty one."""
    found = owner.get(member)
    return found if isinstance(found, dict) else {}


def json_objects(owner: Json, member: str) -> list[Json]:
    found = owner.get(member)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def json_texts(owner: Json, member: str) -> list[str]:
    """The texts of a list."""
    found = owner.get(member)
    return [one for one in found if isinstance(one, str)] if isinstance(found, list) else []


JsonObject = dict[str, Any]
SCHEMA: Final = "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json"
MAX_TITLE: Final = 100  # characters of titles and descriptions, by that schema
_VERSION = re.compile(r"[0-9][\w.+!-]*")
_VERSION_SIGNS: Final = {"npm": "@", "nuget": "@", "pypi": "=="}
"""What separates an identifier from its version. The tag of an image is part of its identifier."""
_VALUED: Final = frozenset(
    {
        *("-e", "--env", "--env-file", "-v", "--volume", "--mount", "-u", "--user", "-w", "--workdir"),
        *("-p", "--publish", "--network", "--add-host", "--name", "--platform", "--security-opt"),
        "--entrypoint",
    }
)
"""Options of `docker run` whose value is the next argument."""
_BARE: Final = frozenset({"--init", "--read-only", "--privileged", "-t", "--tty"})  # options without a value
_IMPLIED: Final[Mapping[str, frozenset[str]]] = {
    "npm": frozenset({"-y", "--yes"}),
    "pypi": frozenset(),
    "oci": frozenset({"--rm", "-i", "--interactive"}),
    "nuget": frozenset({"-y", "--yes"}),
}
"""Options that every runner of the package adds anyway."""
_HOLE = re.compile(rf"{REFERENCE.pattern}|{re.escape(MASK)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedIdentity:
    """The members of a `server.json` that do not describe how to run or reach the server."""

    name: str
    """Namespace and name, separated by a slash."""
    version: str
    title: str = ""
    description: str = ""

    def encode(self) -> JsonObject:
        title = {"title": self.title[:MAX_TITLE]} if self.title else {}
        description = (self.description or self.title or self.name)[:MAX_TITLE]
        named = {"$schema": SCHEMA, "name": self.name, **title}
        return {**named, "description": description, "version": self.version}


def encode_server_json(identity: PublishedIdentity, shown: Mapping[str, Any]) -> JsonObject:
    """Encode a server whose masked body is `shown`. Raises InvalidRecord if it cannot run elsewhere."""
    if shown.get("package"):
        raise InvalidRecord(
            "the server runs from a Toolgate package, which a `server.json` cannot name",
            hint="publish the package's own sources, or the gateway's URL as `/v0.1/servers` shows it",
        )
    if shown.get("transport") == "stdio":
        return {**identity.encode(), "packages": [_encode_package(shown["stdio"])]}
    return {**identity.encode(), "remotes": [_encode_remote(str(shown.get("transport")), shown["http"])]}


def _encode_package(stdio: Mapping[str, Any]) -> JsonObject:
    command, env = str(stdio["command"]), dict(stdio.get("env") or {})
    env |= {name: make_reference(name) for name in stdio.get("env_from") or () if name not in env}
    kind = next((kind for kind, programs in RUNNERS.items() if command in programs), None)
    if kind is None:
        known = sorted(f"`{program}`" for programs in RUNNERS.values() for program in programs)
        raise InvalidRecord(
            f"`{command[:80]}` is a program of the node, not a package that others can run",
            hint=f"use one of these programs to start a published server: {', '.join(known)}",
        )
    args = [str(arg) for arg in stdio.get("args") or ()]
    before, identifier, after = _split_command(kind, command, args, env)
    is_usual = command == RUNNERS[kind][0] and not before
    return {
        "registryType": kind,
        **_split_version(kind, identifier),
        **({} if is_usual else {"runtimeHint": command}),
        "transport": {"type": "stdio"},
        **({"runtimeArguments": _encode_arguments(before)} if before else {}),
        **({"packageArguments": _encode_arguments(after)} if after else {}),
        **({"environmentVariables": [_encode_named(*pair) for pair in env.items()]} if env else {}),
    }


def _encode_arguments(words: Sequence[str]) -> list[JsonObject]:
    return [{"type": "positional", **_encode_text(word)} for word in words]


def _split_command(
    kind: str, command: str, args: Sequence[str], env: Mapping[str, str]
) -> tuple[list[str], str, list[str]]:
    """Split into the runner's options, the package, and its arguments. Raises InvalidRecord."""
    words, before = list(args), list[str]()
    if kind == "oci" or command == "pipx":
        if words[:1] != ["run"]:
            raise _unreadable(command)
        del words[0]
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
            raise _unreadable(command)  # the next argument may be its value, or the package
    if not words:
        raise _unreadable(command)
    return before, words[0], words[1:]


def _unreadable(command: str) -> InvalidRecord:
    return InvalidRecord(
        f"cannot find the package in the arguments of `{command}`",
        hint="write options that have a value as `--option=value`, before the package",
    )


def _split_version(kind: str, identifier: str) -> JsonObject:
    sign = _VERSION_SIGNS.get(kind)
    if sign is not None:
        name, found, version = identifier.rpartition(sign)
        if found and name and _VERSION.fullmatch(version):
            return {"identifier": name, "version": version}
    if MASK in identifier or REFERENCE.search(identifier):
        raise InvalidRecord("the package name is a variable of the node")
    return {"identifier": identifier}


def _encode_remote(transport: str, http: Mapping[str, Any]) -> JsonObject:
    kind = next(kind for kind, ours in REMOTES.items() if ours == transport)
    headers = [_encode_named(name, str(value)) for name, value in (http.get("headers") or {}).items()]
    if (name := http.get("auth_ref")) and "authorization" not in {one["name"].lower() for one in headers}:
        variable = re.sub(r"\W+", "_", str(name))
        filled = {variable: {"isRequired": True, "isSecret": True}}
        headers.append({"name": "Authorization", "value": f"Bearer {{{variable}}}", "variables": filled})
    endpoint = {"type": kind, **_encode_text(str(http["url"]), "url")}
    return endpoint | ({"headers": headers} if headers else {})


def _encode_named(name: str, text: str) -> JsonObject:
    """Encode a header or a variable. If the user fills it in under its own name, it has no value."""
    if text in {make_reference(name), MASK}:
        return {"name": name, "isRequired": True, "isSecret": looks_secret(name) or text == MASK}
    return {"name": name, **_encode_text(text)}


def _encode_text(text: str, member: str = "value") -> JsonObject:
    """Replace references and masks by `{name}`. Returns the text as that member, and its variables."""
    variables: JsonObject = {}

    def open_up(match: re.Match[str]) -> str:
        name, default = match[1] or "SECRET", match[2]
        is_secret = match[1] is None or looks_secret(name) or default == MASK
        known: JsonObject = {"default": default} if default and not is_secret else {"isRequired": True}
        variables[name] = known | ({"isSecret": True} if is_secret else {})
        return f"{{{name}}}"

    filled = {member: _HOLE.sub(open_up, text)}
    return filled | ({"variables": variables} if variables else {})
