"""`toolgate call`: one tool call through the gateway, as an MCP client with the same URL would make it.

The arguments are typed by the tool's input schema before anything is sent. A terminal gets text escaped; a
file or a pipe gets it as the tool sent it.
"""

import base64
import binascii
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Final

import typer
from rich.console import Group, RenderableType
from rich.text import Text
from typer import Argument

from toolgate.catalog.find_tools import DESCRIBE_TOOL
from toolgate.cli.command import CommandError, ExitCode, UsageError, command, open_console
from toolgate.cli.files import STANDARD_INPUT, load_object, read_text
from toolgate.cli.options import GatewayConnection, ScopeOptions
from toolgate.cli.render import layout as ui
from toolgate.cli.render.layout import JsonObject
from toolgate.cli.rest import START_TIMEOUT, Query, RestClient
from toolgate.cli.tool_arguments import ToolSignature, build_arguments, format_type, parse_signature
from toolgate.disk import replace_file
from toolgate.errors import UnknownTool

_CALL: Final = "/api/v1/mcp/call"
_FROM_FILE: Final = "@"

app = typer.Typer(add_completion=False)


@dataclass(frozen=True, kw_only=True)
class CallOptions:
    """Where arguments come from, and where the result goes."""

    args_json: Annotated[
        Path | None,
        "--args-json FILE",
        "JSON file with arguments, `-` for standard input. NAME=VALUE adds to it.",
    ] = None
    out: Annotated[Path | None, "Save the image, audio or file of the result here."] = None
    describe: Annotated[bool, "Show the arguments of the tool; call nothing."] = False


@command(app, "call")
def call_tool(
    tool: Annotated[str, Argument(help="Name of the tool, as `toolgate tools` lists it.")],
    connection: GatewayConnection,
    scope: ScopeOptions,
    options: CallOptions,
    arguments: Annotated[
        list[str] | None, "NAME=VALUE", "Arguments. Repeat a name for several elements of an array."
    ] = None,
) -> None:
    """Call a tool and print its result.

    Values are typed by the tool's schema: `limit=5`, `deep=true`, `until=null`, `paths=a paths=b`. Write
    arrays and objects as JSON. `NAME=@FILE` reads a value from a file, `NAME=@-` from standard input; begin a
    value with `@@` to send one `@`. The exit code is 1 if the tool reports an error.

    \b
    toolgate call git.git_log repo_path=. max_count=3
    toolgate call notes.add_note title=Plan text=@plan.md tags=work tags=ideas
    toolgate call git.git_log --describe
    """
    words = _parse_words(arguments or ())
    if options.out is not None and not options.out.parent.is_dir():
        raise UsageError(f"there is no directory `{options.out.parent}`", hint="create it, or name another")
    with connection.open() as client:
        definition = _describe_tool(client, tool, scope.query)
        signature = parse_signature(definition["inputSchema"])
        if options.describe:
            connection.show(definition, render_tool(definition, signature))
            return
        given = {} if options.args_json is None else load_object(options.args_json)
        sent = {"name": tool, "arguments": _check_json(build_arguments(tool, signature, words, given))}
        response = client.post(_CALL, sent, query=scope.query, timeout=START_TIMEOUT)
    parts = list_parts(response["result"])
    saved = _save_files(parts, options.out)
    if connection.as_json:
        connection.show(response, "")
    else:
        _print_parts(tool, parts, saved, is_error=response["is_error"])
    if response["is_error"]:
        raise typer.Exit(ExitCode.FAILED)


def render_tool(definition: JsonObject, signature: ToolSignature) -> RenderableType:
    """A tool and its arguments: name, type, whether it is needed or its default, and description."""
    hints = [name for name, holds in (definition.get("annotations") or {}).items() if holds is True]
    table = ui.grid("ARGUMENT", "TYPE*", "DEFAULT", "DESCRIPTION*")
    for one in signature.parameters.values():
        default = "" if one.default is None else json.dumps(one.default, ensure_ascii=False)
        needed = "(required)" if one.is_required else default
        table.add_row(ui.bold(one.name), format_type(one, signature.schema), needed, one.description)
    return ui.stack_parts(
        Group(ui.bold(definition["name"]), Text(ui.escape_block(str(definition.get("description") or "")))),
        ui.sentence(Text("hints: ", style=ui.DIM), ui.join_names(hints)) if hints else None,
        table if signature.parameters else Text("it takes no arguments"),
    )


def _parse_words(words: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """The texts of each name, in order; those of files are read."""
    texts = defaultdict(list)
    for word in words:
        name, is_pair, text = word.partition("=")
        if not is_pair or not name:
            hint = "write an argument like `limit=5`; `toolgate call TOOL --describe` shows which there are"
            raise UsageError(f"`{word}` is not NAME=VALUE", hint=hint)
        if text.startswith(_FROM_FILE * 2):
            text = text.removeprefix(_FROM_FILE)
        elif text.startswith(_FROM_FILE):
            text = read_text(Path(text.removeprefix(_FROM_FILE) or STANDARD_INPUT))
        texts[name].append(text)
    return texts


def _describe_tool(client: RestClient, tool: str, query: Query) -> Mapping[str, Any]:
    """The definition of a tool of the scope. Raises CommandError if the scope has no such tool.

    Find mode describes single tools of every scope, however large, at nodes as well.
    """
    finding = {**query, "mode": "find"}
    asked = {"name": DESCRIBE_TOOL, "arguments": {"name": tool}}
    response = client.post(_CALL, asked, query=finding, timeout=START_TIMEOUT)
    definition: Mapping[str, Any] | None = response["result"].get("structuredContent")
    if response["is_error"] or definition is None:
        names = [one["name"] for one in client.get("/api/v1/mcp/tools", finding)["tools"]]
        # One that has this name at its server may be meant, or one that is written like it.
        near = [one for one in names if one.endswith(f".{tool}")] or get_close_matches(tool, names, n=1)
        meant = f"did you mean `{near[0]}`? " if near else ""
        hint = f"{meant}`toolgate tools` lists the tools that this key and URL can call"
        raise CommandError(f"no tool `{tool}` in this scope", hint=hint, code=UnknownTool.code)
    return definition


def _check_json(arguments: dict[str, Any]) -> dict[str, Any]:
    """`arguments`, if JSON can say them: TOML and Python's reader know infinity, and dates."""
    try:
        json.dumps(arguments, allow_nan=False)
    except (ValueError, TypeError, RecursionError) as exc:
        raise UsageError(
            f"the arguments are not JSON: {exc}", hint="correct the file of --args-json"
        ) from exc
    return arguments


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultFile:
    """An image, a recording or another file. `content` is None if the tool sent no valid Base64."""

    kind: str
    media_type: str
    content: bytes | None

    def describe(self) -> str:
        size = "invalid Base64" if self.content is None else f"{len(self.content):,} bytes"
        return f"{self.kind} {self.media_type}, {size}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultLink:
    """A resource that can be read at the server."""

    uri: str
    name: str


ResultPart = str | ResultFile | ResultLink
"""Text is of the tool, or its structured content as JSON."""


def list_parts(result: JsonObject) -> list[ResultPart]:
    """What a `CallToolResult` holds. What text and structured content both say is there once."""
    blocks = [one for one in result.get("content") or () if isinstance(one, Mapping)]
    texts = [str(one.get("text", "")) for one in blocks if one.get("type") == "text"]
    data = result.get("structuredContent")
    is_structured = isinstance(data, Mapping) and not _is_plain(data, texts)
    parts: list[ResultPart] = []
    if not (is_structured and _is_repeated(data, texts)):
        parts += texts
    if is_structured:
        parts.append(ui.encode_json(data, indent=2))
    return [*parts, *_list_others(blocks)]


def _is_plain(data: Mapping[str, Any], texts: Sequence[str]) -> bool:
    """Whether the data is one text or number in a wrapper, which the text says by itself."""
    if data.keys() != {"result"} or len(texts) != 1 or isinstance(data["result"], list | dict):
        return False
    return data["result"] in (texts[0], _parse(texts[0]))


def _is_repeated(data: Any, texts: Sequence[str]) -> bool:
    """Whether the texts are the data as JSON: servers send both, for clients that read only one."""
    values = [_parse(text) for text in texts]
    inner = data["result"] if data.keys() == {"result"} else data
    return values in ([data], [inner], inner)


def _parse(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _list_others(blocks: Sequence[JsonObject]) -> Iterator[ResultPart]:
    for block in blocks:
        kind, resource = block.get("type"), block.get("resource")
        if kind in {"image", "audio"}:
            yield _parse_file(str(kind), block.get("mimeType"), block.get("data"))
        elif kind == "resource" and isinstance(resource, Mapping) and "blob" in resource:
            yield _parse_file("file", resource.get("mimeType"), resource["blob"])
        elif kind == "resource" and isinstance(resource, Mapping):
            yield str(resource.get("text", ""))
        elif kind == "resource_link":
            yield ResultLink(uri=str(block.get("uri", "")), name=str(block.get("name", "")))


def _parse_file(kind: str, media_type: Any, data: Any) -> ResultFile:
    try:
        content = base64.b64decode(data, validate=True) if isinstance(data, str) else None
    except (binascii.Error, ValueError):
        content = None
    return ResultFile(kind=kind, media_type=str(media_type or "of no type"), content=content)


def _save_files(parts: Sequence[ResultPart], out: Path | None) -> list[Path]:
    """Write each file of the result: the first to `out`, the next to `out-2`, and so on."""
    contents = [one.content for one in parts if isinstance(one, ResultFile) and one.content is not None]
    if out is None:
        return []
    saved = [out if at == 1 else out.with_stem(f"{out.stem}-{at}") for at in range(1, len(contents) + 1)]
    try:
        for path, content in zip(saved, contents, strict=True):
            replace_file(path, content, keeps_mode=True)
    except OSError as exc:
        hint = "the tool was called; name a file in a directory that you may write to"
        raise CommandError(f"cannot write `{out}`: {exc.strerror}", hint=hint) from exc
    if not contents:
        console = open_console(to_stderr=True)
        console.print(ui.render_warnings([f"the result has no image, audio or file: `{out}` is not written"]))
    return saved


def _print_parts(tool: str, parts: Sequence[ResultPart], saved: Sequence[Path], *, is_error: bool) -> None:
    """The result on standard output, texts on lines of their own; that of a failed tool on standard error."""
    console, paths = open_console(to_stderr=is_error), iter(saved)
    if is_error:
        console.print(ui.failed(ui.bold(tool), " reports an error"))
    for part in parts:
        if isinstance(part, ResultFile):
            path = next(paths, None) if part.content is not None else None
            line = part.describe() if path is None else f"{part.describe()}, in {path}"
        elif isinstance(part, ResultLink):
            line = f"resource {part.uri} {part.name}"
        else:
            text = ui.escape_block(part) if console.file.isatty() else part
            # Straight to the file: a console would wrap the lines. Half a surrogate pair cannot be encoded.
            end = "" if text.endswith("\n") else "\n"
            console.file.write(text.encode(errors="replace").decode() + end)
            continue
        console.print(ui.cell(line), soft_wrap=True)
