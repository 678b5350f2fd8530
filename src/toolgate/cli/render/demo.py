"""What the demo shows once it serves: what each task sees, what that saves, and how to connect."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from toolgate.catalog.clients import PROGRAMS, Door
from toolgate.cli.defaults import DEFAULT_URL
from toolgate.cli.render.layout import DIM, OK, cell, count, grid, health_of, sentence, stack, verbatim
from toolgate.cli.render.up import render_console

Answer = Mapping[str, Any]


_PYTHON = """\
from openai import OpenAI

client = OpenAI(base_url="{base_url}", api_key="none")
messages = [{{"role": "user", "content": "What do my notes say about coffee?"}}]
print(client.chat.completions.create(model="{model}", messages=messages).choices[0].message.content)"""


class TaskView(NamedTuple):
    """A task and the gateway's answer about the tools it sees."""

    task_id: str
    answer: Answer


def render_demo(
    url: str,
    servers: Sequence[Answer],
    views: Sequence[TaskView],
    *,
    console: str | None = None,
    program: str = "toolgate",
    model: str | None = None,
) -> RenderableType:
    """The table, and the lines to paste. `program` is how this program can be called from here."""
    at = "" if url == DEFAULT_URL else f" --url {url}"
    first = views[0].task_id
    commands = [
        f"{program} connect cursor --task {first} --write{at}",
        f"{program} tools --task {first}{at}",
        f"{program} explain --task {first}{at}",
    ]
    return stack(
        Group(_headline(url, servers), *render_console(console)),
        _table(servers, views),
        Group(
            Text("Connect Claude Code to a task:", style="bold"), verbatim("\n".join(_claude_lines(views)))
        ),
        Group(
            Text("Another client, what it will see, and why it sees no more:", style="bold"),
            verbatim("\n".join(commands)),
        ),
        Group(
            Text("Look for a tool, or let a model find its tools by itself:", style="bold"),
            verbatim(f'{program} catalog search "what changed"{at}\n{url}/api/mcp/find'),
        ),
        None if model is None else _chat(f"{url}/t/{views[-1].task_id}/v1", model),
        Text("Ctrl-C stops the gateway and all its servers.", style=DIM),
    )


def _headline(url: str, servers: Sequence[Answer]) -> Text:
    tools = sum(health_of(one).get("tools", 0) for one in servers)
    return sentence(
        "\n",
        Text("Toolgate", style="bold"),
        " serves ",
        Text(f"{count(tools, 'tool')} of {count(len(servers), 'server')}", style=OK),
        " at ",
        cell(url, "bold"),
    )


def _table(servers: Sequence[Answer], views: Sequence[TaskView]) -> RenderableType:
    offered = {str(one["server_id"]): health_of(one).get("tools", 0) for one in servers}
    table = grid("TASK", "TOOLS", "TOKENS", "URL, AND WHAT IT SHOWS", flexible={"URL, AND WHAT IT SHOWS"})
    for view in views:
        answer = view.answer
        seen = Counter(str(tool["server_id"]) for tool in answer["tools"])
        shown = ", ".join(f"{name} {number}/{offered.get(name, 0)}" for name, number in sorted(seen.items()))
        table.add_row(
            cell(view.task_id, "bold"),
            cell(f"{len(answer['tools'])} of {answer['registered_tools']}"),
            cell(f"{answer['tokens']:,} of {answer['registered_tokens']:,}"),
            Text("\n").join([cell(answer["url"]), cell(shown, DIM)]),
        )
    return table


def _claude_lines(views: Sequence[TaskView]) -> list[str]:
    command = PROGRAMS["claude-code"].command
    assert command is not None  # Claude Code has one
    return [command(Door(name=view.task_id, url=view.answer["url"])) for view in views]


def _chat(base_url: str, model: str) -> RenderableType:
    """How to talk to the model: once from a shell, once from a program."""
    question = "What time is it in Tokyo?"
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": question}]})
    curl = f"curl {base_url}/chat/completions -H 'content-type: application/json' \\\n  -d '{body}'"
    return Group(
        Text("Chat with a model that uses the tools of a task, from a shell or in Python:", style="bold"),
        verbatim(curl),
        # Not a column in: Python would mind.
        Text(f"\n{_PYTHON.format(base_url=base_url, model=model)}", no_wrap=True, overflow="ignore"),
    )
