"""A skill's URL and a skill's task show the same tools, whatever it names."""

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.surfaces.rest_world import TASKS, open_rest, secret_of, stdio
from tests.upstream.memory_link import MemoryNet, MemoryServer, definition
from toolgate.catalog.skills import Skill, parse_skill
from toolgate.gateway.auth.identity import hash_key
from toolgate.model.names import ToolRef

SCOPE = "/api/v1/mcp/scope"
NARROW = "tg_narrow" * 6
OFFERED = {"git": ["log", "push", "get.status"], "notes": ["add", "get_one"], "web": ["get"]}
ENTRIES = (
    *("git.log", "git.push", "git/get.status", "git.get.status", "git.*", "git.get*", "git.none", "git.?og"),
    *("notes.add", "notes.get_?ne", "notes/*", "web.get", "off.on", "nowhere.*"),
)

skills = st.lists(st.sampled_from(ENTRIES), max_size=5).map(
    lambda tools: parse_skill({"id": "s", "tools": tools})
)


async def scopes_of(skill: Skill) -> list[tuple[Any, ...]]:
    """Of the URL and of the task, for someone who may see all and for one who may not."""
    net = MemoryNet(
        **{name: MemoryServer(tools=list(map(definition, tools))) for name, tools in OFFERED.items()}
    )
    key = {
        "key_id": "narrow",
        "role": "agent",
        "sha256": hash_key(NARROW),
        "ceiling": {"servers": ["git", "off"]},
    }
    async with open_rest(net) as world:
        await world.seed(
            server=[
                stdio("git"),
                stdio("notes", allowed_tools=["get*"]),
                stdio("web"),
                stdio("off", enabled=False),
            ],
            key=[key],
        )
        await world.post(TASKS, skill.task(), key=secret_of("publisher"))
        await world.served()
        return [
            (found["tools"], found["tokens"], found["prices"])
            for who in (secret_of("viewer"), NARROW)
            for query in (f"tools={skill.selection}", f"task={skill.skill_id}")
            for found in [await world.get(f"{SCOPE}?{query}", key=who)]
        ]


@settings(max_examples=25, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(skills)
def test_the_url_and_the_task_of_a_skill_have_the_same_scope(skill: Skill) -> None:
    by_url, by_task, narrow_by_url, narrow_by_task = asyncio.run(scopes_of(skill))

    assert by_task == by_url
    assert narrow_by_task == narrow_by_url


@pytest.mark.anyio
async def test_what_a_skill_names_and_may_be_called_is_its_scope() -> None:
    skill = Skill(
        skill_id="s", tools=(ToolRef("git", "log"), ToolRef("notes", "add"), ToolRef("notes", "get_one"))
    )

    by_url, by_task, *_ = await scopes_of(skill)

    assert by_url[0] == by_task[0] == ["git.log", "notes.get_one"]
