"""Every place that takes patterns of tools takes effects, and every place that matches them has a definition.

Both lists are written out. A new place fails a test here until it is added, with effects in mind.
"""

import ast
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from pydantic import TypeAdapter, ValidationError

import toolgate
from toolgate.catalog.skills import parse_skill
from toolgate.errors import InvalidParams, InvalidRecord
from toolgate.model.tasks import Task
from toolgate.policy.layers import parse_session_params, parse_task_policy, parse_tools_selection
from toolgate.policy.patterns import parse_pattern
from toolgate.registry.records import fields
from toolgate.registry.records.body import StrictBody
from toolgate.registry.records.codec import parse_record
from toolgate.surfaces.rest import app

SOURCE = Path(toolgate.__file__).parent
Write = Callable[[list[str]], object]


def server(**fields: Any) -> object:
    return parse_record("server", "fs", {"transport": "stdio", "stdio": {"command": "x"}, **fields})


def task(key: str) -> Write:
    return lambda texts: parse_task_policy(Task(task_id="t", config={f"mcp.{key}": json.dumps(texts)}))


def overrides(key: str) -> Write:
    return lambda texts: parse_task_policy(
        Task(task_id="t", config={"mcp.profile_overrides": json.dumps({key: texts})})
    )


def key(part: str) -> Write:
    return lambda texts: parse_record(
        "key", "k", {"role": "agent", "sha256": "0" * 64, "ceiling": {part: texts}}
    )


PLACES: dict[str, Write] = {
    "server allowed_tools": lambda texts: server(allowed_tools=texts),
    "server approval_policy": lambda texts: server(
        approval_policy={"per_tool": dict.fromkeys(texts, "always")}
    ),
    "key allow": key("allow"),
    "key deny": key("deny"),
    "task allowlist": task("tool_allowlist"),
    "task denylist": task("tool_denylist"),
    "task overrides allow": overrides("tool_allowlist"),
    "task overrides deny": overrides("tool_denylist"),
    "profile allow": lambda texts: parse_record("profile", "p", {"allow": texts}),
    "profile deny": lambda texts: parse_record("profile", "p", {"deny": texts}),
    "profile environment": lambda texts: parse_record(
        "profile", "p", {"environments": {"dev": {"deny": texts}}}
    ),
    "?tools=": parse_tools_selection,
    "session allow": lambda texts: parse_session_params({"mcp.tool_allowlist": texts}),
    "session deny": lambda texts: parse_session_params({"mcp.tool_denylist": texts}),
    "skill": lambda texts: parse_skill({"id": "s", "tools": [f"fs.{text}" for text in texts]}),
    "import, installation, match": lambda texts: [parse_pattern(text) for text in texts],
}


@pytest.mark.parametrize("place", PLACES)
def test_every_place_takes_effects_and_refuses_unknown_ones_with_those_there_are(place: str) -> None:
    write = PLACES[place]

    write(["@read_only", "@destructive", "@idempotent", "@open_world"])
    with pytest.raises((InvalidRecord, InvalidParams)) as caught:
        write(["@readonly"])

    assert "`@read_only`" in f"{caught.value} {caught.value.hint}"


def bodies(base: type[StrictBody] = StrictBody) -> set[type[StrictBody]]:
    found = set(base.__subclasses__())
    return found | {one for each in found for one in bodies(each)}


def takes_patterns(hint: object) -> bool:
    return hint == fields.Patterns or any(map(takes_patterns, get_args(hint)))


def test_the_bodies_that_hold_patterns_of_tools_are_these() -> None:
    assert app.__name__  # which loads all shapes
    found = {
        f"{body.__name__}.{name}"
        for body in bodies()
        for name, hint in get_type_hints(body, include_extras=True).items()
        if name in body.__annotations__ and takes_patterns(hint)
    }

    assert found == {
        "CeilingBody.allow",
        "CeilingBody.deny",
        "ImportSent.allowed_tools",
        "InstallSent.allowed_tools",
        "SelectionBody.allow",
        "SelectionBody.deny",
        "ServerBody.allowed_tools",
    }


def test_a_list_of_patterns_is_checked_entry_by_entry() -> None:
    with pytest.raises(ValidationError, match="did you mean `@read_only`"):
        TypeAdapter(fields.Patterns).validate_python(["fs/@readonly"])


def calls_of(names: Sequence[str]) -> set[str]:
    found = set()
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Call):
                called = (
                    node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                )
                if called in names:
                    found.add(f"{file.relative_to(SOURCE)} {called}")
    return found


def test_patterns_are_matched_in_these_places_and_effects_decided_in_one() -> None:
    """Each has the approved definition at hand, or says that it is missing."""
    names = (
        "first_match",
        "match_effect",
        "find_matching",
        "can_match",
        "matches_any",
    )

    assert calls_of(names) == {
        "cli/commands/skills.py first_match",
        "gateway/scope/caller.py can_match",
        "govern/package_install.py first_match",
        "govern/visibility.py can_match",
        "govern/visibility.py first_match",
        "policy/admission.py first_match",
        "policy/compose.py can_match",
        "policy/compose.py matches_any",  # a key's denial of a whole server, by names alone
        "policy/learn.py first_match",
        "policy/lint.py can_match",
        "policy/lint.py find_matching",
        "policy/patterns.py match_effect",
        "policy/rules.py first_match",
        "policy/rules.py match_effect",
        "policy/rules.py matches_any",
        "surfaces/rest/resources/policies.py can_match",  # names servers that have not listed their tools
        "surfaces/rest/resources/policies.py find_matching",
        "surfaces/wasm/descriptors.py first_match",  # of a name alone, against the list before it
    }
    assert calls_of(("counts_as",)) == {"model/tools.py counts_as", "policy/patterns.py counts_as"}
