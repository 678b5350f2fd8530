"""Groups of options as one parameter."""

from dataclasses import dataclass
from inspect import signature
from typing import Annotated, Any

import typer
from typer import Option

from toolgate.cli.command import spread_options
from toolgate.cli.options import ScopeOptions


@dataclass(frozen=True, kw_only=True)
class Colours:
    ink: Annotated[str, Option("--ink")] = "black"
    paper: Annotated[str, Option("--paper")] = "white"


def test_a_group_is_many_options_to_the_parser_and_one_value_to_the_command() -> None:
    got: list[tuple[str, Colours]] = []

    @spread_options
    def paint(what: str, colours: Colours) -> None:
        """Paint it."""
        got.append((what, colours))

    paint(what="door", ink="red", paper="white")

    assert list(signature(paint).parameters) == ["what", "ink", "paper"]
    assert paint.__doc__ == "Paint it."
    assert got == [("door", Colours(ink="red"))]


def test_an_option_is_declared_by_its_help_and_by_its_spelling_if_the_parameter_has_another() -> None:
    @spread_options
    def paint(
        is_dry: Annotated[bool, "Wait for it."],
        files: Annotated[str, "--file -f PATH", "A file."],
        where: Annotated[str, "DOOR", "A door."],
    ) -> None:
        """Paint it."""

    app = typer.Typer()
    app.command()(paint)
    options: list[Any] = typer.main.get_command(app).params

    assert [(one.opts, one.secondary_opts, one.metavar, one.help) for one in options[:3]] == [
        (["--is-dry"], [], None, "Wait for it."),
        (["--file", "-f"], [], "PATH", "A file."),
        (["where"], [], "DOOR", "A door."),
    ]


def test_help_flows_to_the_width_of_the_terminal_and_examples_stay_lines() -> None:
    @spread_options
    def paint() -> None:
        """Paint it.

        It dries
        by itself.

        \b
        paint door
        paint wall
        """

    assert paint.__doc__ == "Paint it.\n\nIt dries by itself.\n\n\b\npaint door\npaint wall"


def test_sco_4_an_empty_selection_is_sent_and_an_absent_one_is_not() -> None:
    assert ScopeOptions(task="review", tools="").query == {"task": "review", "tools": ""}
