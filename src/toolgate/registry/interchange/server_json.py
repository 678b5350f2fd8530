"""The `server.json` of the official MCP registry, as bodies of ours.

A server becomes one record: its first package that a known program can run, else its first remote. What has
to be filled in before it runs (keys, mostly) becomes a reference to a variable of the node; nothing is
downloaded or started here, and nothing that is read is checked: a body still has to pass `parse_server`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from toolgate.errors import InvalidRecord

Json = Mapping[str, Any]

RUNNERS: Final[Mapping[str, tuple[str, ...]]] = {
    "npm": ("npx", "bunx", "pnpx"),
    "pypi": ("uvx", "pipx"),
    "oci": ("docker", "podman", "nerdctl"),
    "nuget": ("dnx",),
}
"""Package type to the programs that run it: the usual one, and others that a package may ask for."""
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
    """Whether a JSON object looks like a `server.json`."""
    return isinstance(document.get("name"), str) and ("packages" in document or "remotes" in document)


def parse_server_json(document: Json) -> dict[str, Any]:
    """The body of the server, without an id. Raises InvalidRecord if nothing in it can be run or reached."""
    packages, remotes = _objects(document, "packages"), _objects(document, "remotes")
    reasons = []
    for make, part in [*((_package, one) for one in packages), *((_remote, one) for one in remotes)]:
        try:
            return make(part)
        except InvalidRecord as exc:
            reasons.append(str(exc))
    raise InvalidRecord("; ".join(reasons) or "it names no package and no remote")


def server_json_name(document: Json) -> tuple[str, str]:
    """What the server's id is made of, and the name it shows: `io.github.ada/weather` is `weather`."""
    name = str(document.get("name", ""))
    return name.rpartition("/")[2] or name, str(document.get("title") or name)


def _package(package: Json) -> dict[str, Any]:
    kind = str(package.get("registryType"))
    transport = _object(package, "transport").get("type", "stdio")
    if kind not in RUNNERS:
        raise InvalidRecord(f"packages of type `{kind[:40]}` cannot be run")
    if transport != "stdio":
        raise InvalidRecord(
            f"its {kind} package listens by itself (`{str(transport)[:40]}`), it is not started"
        )
    runners = RUNNERS[kind]
    hint = package.get("runtimeHint")
    command = hint if hint in runners else runners[0]
    env = dict(_variables(package))
    if kind == "oci":
        _check_container(list(_arguments(package, "runtimeArguments")), env)
    args = [
        *_runner_arguments(kind, command, env),
        *_arguments(package, "runtimeArguments"),
        _identifier(kind, package),
        *_arguments(package, "packageArguments"),
    ]
    launch = {"command": command, "args": args} | ({"env": env} if env else {})
    return {"transport": "stdio", "stdio": launch}


def _runner_arguments(kind: str, command: str, env: Mapping[str, str]) -> list[str]:
    """What the program needs to run a package without asking, and to hand variables on to it."""
    if kind == "oci":
        return ["run", "--rm", "-i", *(part for name in env for part in ("-e", name))]
    return {"npx": ["-y"], "pipx": ["run"], "dnx": ["--yes"]}.get(command, [])


def _check_container(options: Sequence[str], env: Mapping[str, str]) -> None:
    """A stranger's file says what to run, never how: no option that gives a container more than its image,
    and no variable that the program which starts it would take for its own. Or InvalidRecord.
    """
    words = iter(options)
    for word in words:
        if word in {"-e", "--env"}:
            next(words, None)
        elif not _HARMLESS_OPTION.fullmatch(word):
            raise InvalidRecord(
                f"its oci package wants its container run with `{word[:40]}`: import it without, and add that"
            )
    for name, text in env.items():
        if _PROGRAMS_OWN.fullmatch(name) and not text.startswith("${ENV:"):
            raise InvalidRecord(f"its oci package sets `{name[:40]}`, which is the container program's own")


def _identifier(kind: str, package: Json) -> str:
    identifier, version = package.get("identifier"), package.get("version")
    if not isinstance(identifier, str):
        raise InvalidRecord(f"its {kind} package has no `identifier`")
    if not isinstance(version, str):
        return identifier
    match kind:
        case "oci":
            has_tag = "@" in identifier or ":" in identifier.rpartition("/")[2]
            return identifier if has_tag else f"{identifier}:{version}"
        case "pypi":
            return f"{identifier}=={version}"
        case _:
            return f"{identifier}@{version}"


def _remote(remote: Json) -> dict[str, Any]:
    transport = REMOTES.get(str(remote.get("type")))
    url = remote.get("url")
    if transport is None or not isinstance(url, str):
        raise InvalidRecord("its remote has no URL, or is of a type that is not known")
    headers = {
        str(one.get("name")): text
        for one in _objects(remote, "headers")
        if (text := _text(one, str(one.get("name")))) is not None
    }
    endpoint = {"url": _filled(url, remote)} | ({"headers": headers} if headers else {})
    return {"transport": transport, "http": endpoint}


def _variables(package: Json) -> Iterator[tuple[str, str]]:
    for one in _objects(package, "environmentVariables"):
        name = str(one.get("name"))
        text = _text(one, name)
        if text is not None:
            yield name, text


def _arguments(package: Json, member: str) -> Iterator[str]:
    for one in _objects(package, member):
        name = str(one.get("name") or one.get("valueHint") or "")
        text = _text(one, name.lstrip("-"))
        if one.get("type") != "named":
            yield from [] if text is None else [text]
        elif text is not None:
            yield from (name, text)
        elif "value" not in one and not one.get("valueHint") and one.get("format") in {None, "boolean"}:
            yield name


def _text(wanted: Json, name: str) -> str | None:
    """What stands for one thing that is to be filled in; None: it may be left out.

    Of a secret not even the default is taken over: who fills it in shall know.
    """
    value, default = wanted.get("value"), wanted.get("default")
    if isinstance(value, str):
        return _filled(value, wanted)
    is_secret = wanted.get("isSecret") is True
    if isinstance(default, str) and default and not is_secret:
        return reference(name, default)
    return reference(name) if is_secret or wanted.get("isRequired") is True else None


def _filled(text: str, owner: Json) -> str:
    """`text` with each `{name}` as the owner's `variables` say. Others are part of the text."""
    variables = _object(owner, "variables")

    def fill(match: re.Match[str]) -> str:
        if match[1] not in variables:
            return match[0]
        wanted = _object(variables, match[1])
        found = _text({"isRequired": True, **wanted}, match[1])
        return reference(match[1]) if found is None else found

    return _PLACEHOLDER.sub(fill, text)


def reference(name: str, default: str | None = None) -> str:
    """To the variable of the node that holds what goes by this name elsewhere."""
    variable = _NOT_IN_VARIABLE.sub("_", name).strip("_").upper() or "VALUE"
    variable = f"_{variable}" if variable[0].isdigit() else variable
    usable = default is not None and "}" not in default
    return f"${{ENV:{variable}:-{default}}}" if usable else f"${{ENV:{variable}}}"


def _object(owner: Json, member: str) -> Json:
    found = owner.get(member)
    return found if isinstance(found, dict) else {}


def _objects(owner: Json, member: str) -> list[Json]:
    found = owner.get(member)
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
