"""`toolgate up`: the gateway itself, control and node in one process."""

import asyncio
import os
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from typer import Option

from toolgate import __version__
from toolgate.app.process import ServingApp, run
from toolgate.app.up import open_up
from toolgate.cli.failure import ExitCode, UsageError
from toolgate.cli.option_groups import command
from toolgate.cli.output import CommandOutput
from toolgate.cli.render.changes import render_reload
from toolgate.cli.render.up import render_ready
from toolgate.cli.setting_options import SettingOptions
from toolgate.lazy_modules import load_lazily
from toolgate.registry.files.reload import DirectoryLoader, ReloadReport
from toolgate.registry.store.engines import open_sqlite_store
from toolgate.settings import Settings

app = typer.Typer(add_completion=False)


@command(app, "up")
def up_command(
    settings: SettingOptions,
    *,
    is_demo: Annotated[
        bool, Option("--demo", help="With real servers and three tasks to try; installs them once.")
    ] = False,
    with_model: Annotated[
        bool,
        Option(
            "--model", help="With --demo: a small language model, too, to chat with; installs 130 MB once."
        ),
    ] = False,
    is_dry_run: Annotated[
        bool, Option("--dry-run", help="Show what the server files would change, and exit.")
    ] = False,
    as_json: Annotated[bool, Option("--json", help="Print what is printed as JSON.")] = False,
) -> None:
    """Start the gateway. It runs until Ctrl-C, and takes all its servers with it.

    Bound to loopback it asks for no key; bound to anything else it refuses to start without one.
    """
    if with_model and not is_demo:
        raise UsageError(
            "--model is part of the demo",
            hint="add --demo; a model of your own is registered with `toolgate chat-upstreams apply`",
        )
    if is_demo:
        _run_demo(settings, as_json=as_json, with_model=with_model)
    elif is_dry_run:
        _show_difference(settings.load(), CommandOutput(as_json=as_json))
    else:
        run(open_up, settings.load(), os.environ, partial(_print_ready, CommandOutput(as_json=as_json)))


async def _print_ready(output: CommandOutput, started: ServingApp, url: str) -> None:
    console = started.console_url(url)
    output.show({"url": url, "console": console, "version": __version__}, render_ready(url, console=console))


def _run_demo(options: SettingOptions, *, as_json: bool, with_model: bool) -> None:
    if options.registry_dir is not None:
        raise UsageError(
            "--demo brings its own servers", hint="leave out --mcp-registry-dir, or start without --demo"
        )
    kit = load_lazily("toolgate.cli.demo.demo")
    directory = options.data or kit.demo_directory(os.environ)
    demo = kit.Demo(directory, as_json=as_json, with_model=with_model)
    settings = options.load(data_dir=demo.directory, mcp_registry_dir=demo.registry_dir, log_level="warning")
    kit.check_port(settings.listen)
    demo.prepare()
    with demo.serve_model():
        run(open_up, settings, os.environ, demo.present)


def _show_difference(settings: Settings, output: CommandOutput) -> None:
    """What the server files would change, against the registry as it is."""
    if settings.mcp_registry_dir is None:
        raise UsageError("there is no directory to look at", hint="name it with --mcp-registry-dir DIR")
    report = asyncio.run(_preview(settings, settings.mcp_registry_dir))
    answer = {
        "applied": [str(one) for one in report.applied],
        "warnings": list(report.warnings),
        "problems": [str(one) for one in report.problems],
    }
    output.show(answer, render_reload(answer, is_dry_run=True))
    if report.problems:
        raise typer.Exit(ExitCode.FAILED)


async def _preview(settings: Settings, directory: Path) -> ReloadReport:
    async with AsyncExitStack() as stack:
        file = settings.registry_file
        if not file.exists():
            # A preview must not create a registry: it compares with an empty one.
            file = Path(stack.enter_context(TemporaryDirectory())) / file.name
        store = await stack.enter_async_context(open_sqlite_store(file, _zero_clock))
        loader = DirectoryLoader(
            store, directory, strict=settings.strict, recursive=settings.registry_recursive
        )
        return await loader.preview()


def _zero_clock() -> int:
    """For stores that are only read."""
    return 0
