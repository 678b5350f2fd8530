"""The policy once more, as plainly as it can be hints_of: a yes or no for one name, layer by layer.

It shares no code with the package. Nothing here is fast, ordered or explained.
"""

import re
from collections.abc import Iterable, Mapping

from tests.policy.worlds import World
from toolgate.model.names import ToolRef
from toolgate.model.tasks import Selection
from toolgate.model.tools import ServerTools


def matches(pattern: str, ref: ToolRef) -> bool:
    """The definition of a pattern, by way of regular expressions."""
    kind, _, bare = (
        pattern.partition(":") if pattern.startswith(("prompt:", "resource:")) else ("", "", pattern)
    )
    own_kind, _, name = ref.name.partition(":") if ":" in ref.name else ("", "", ref.name)
    server = re.match(r"[^/:]*(?=/)" if kind == "resource" else r"[^/]*(?=/)", bare)
    if kind != own_kind:
        return False
    if server is None:
        return glob(bare, name)
    return glob(server[0], ref.server_id) and glob(bare[server.end() + 1 :], name)


def parted(text: str) -> tuple[str, str]:
    kind, _, rest = text.partition(":")
    return (kind, rest) if kind in {"prompt", "resource"} else ("", text)


def glob(pattern: str, text: str) -> bool:
    parts = {"*": ".*", "?": "."}
    return re.fullmatch("".join(parts.get(c, re.escape(c)) for c in pattern), text, re.DOTALL) is not None


def is_stated(effect: str, hints_of: Mapping[str, bool]) -> bool:
    """What an allow pattern for an effect matches."""
    reads, destroys = hints_of.get("readOnlyHint") is True, hints_of.get("destructiveHint") is True
    if effect in {"read_only", "destructive"} and reads and destroys:
        return False
    return {
        "read_only": reads,
        "destructive": destroys,
        "idempotent": hints_of.get("idempotentHint") is True,
        "open_world": hints_of.get("openWorldHint") is True,
    }[effect]


def is_possible(effect: str, hints_of: Mapping[str, bool]) -> bool:
    """What a deny pattern for an effect matches."""
    if effect == "destructive" and hints_of.get("readOnlyHint") is True:
        return hints_of.get("destructiveHint") is True
    hints = {"read_only": "readOnlyHint", "destructive": "destructiveHint", "idempotent": "idempotentHint"}
    return hints_of.get(hints.get(effect, "openWorldHint")) is not False


def has_effect(world: World, pattern: str, ref: ToolRef, *, deny: bool) -> bool:
    server, _, effect = pattern.rpartition("@")
    offer = world.platform.servers[ref.server_id]
    if ":" in ref.name or (server and not glob(server.removesuffix("/"), ref.server_id)):
        return False
    hints_of = dict(offer.tools[ref.name].effects.hints) if ref.name in offer.tools else {}
    return is_possible(effect, hints_of) if deny else is_stated(effect, hints_of)


def any_matches(world: World, patterns: Iterable[str], ref: ToolRef, *, deny: bool = False) -> bool:
    return any(
        has_effect(world, pattern, ref, deny=deny) if "@" in pattern else matches(pattern, ref)
        for pattern in patterns
    )


def lists_admit(world: World, allow: Iterable[str] | None, deny: Iterable[str], ref: ToolRef) -> bool:
    is_allowed = allow is None or any_matches(world, allow, ref)
    return is_allowed and not any_matches(world, deny, ref, deny=True)


def selection_admits(world: World, selection: Selection, ref: ToolRef) -> bool:
    tags = world.platform.servers[ref.server_id].record.tags
    return (
        (selection.servers is None or ref.server_id in selection.servers)
        and (selection.tags is None or any(tag in tags for tag in selection.tags))
        and lists_admit(world, selection.allow, selection.deny, ref)
    )


def profile_admits(world: World, name: str | None, ref: ToolRef) -> bool:
    if name is None:
        return True
    profile = world.platform.profiles.get(name)
    return profile is not None and selection_admits(
        world, profile.selection_for(world.platform.environment), ref
    )


def names_of(offer: ServerTools) -> set[str]:
    prompts = {f"prompt:{name}" for name in offer.prompts}
    return {*offer.tools, *prompts, *(f"resource:{uri}" for uri in (*offer.resources, *offer.templates))}


def platform_admits(world: World, ref: ToolRef) -> bool:
    offer = world.platform.servers.get(ref.server_id)
    return (
        offer is not None
        and offer.record.enabled
        and ref.name in names_of(offer)
        and ref.name not in offer.quarantined
        and any_matches(world, offer.record.allowed_tools, ref)
    )


def key_admits(world: World, ref: ToolRef) -> bool:
    ceiling = world.ceiling
    task_id = None if world.task is None else world.task.task_id
    return (
        (ceiling.tasks is None or task_id in ceiling.tasks)
        and (ceiling.servers is None or ref.server_id in ceiling.servers)
        and lists_admit(world, ceiling.allow, ceiling.deny, ref)
    )


def default_servers(world: World) -> set[str]:
    task, platform = world.task, world.platform
    assert task is not None
    if task.default or task.is_default_empty or (task.profile is None and task.tags is None):
        return set(task.default)
    if task.profile is None:
        chosen = Selection(tags=task.tags)
    elif task.profile in platform.profiles:
        chosen = platform.profiles[task.profile].selection_for(platform.environment)
    else:
        return set()
    if chosen.servers is not None:
        return set(chosen.servers)
    return {
        server_id
        for server_id, offer in platform.servers.items()
        if chosen.tags is None or any(tag in offer.record.tags for tag in chosen.tags)
    }


def allowed_servers(world: World) -> set[str]:
    assert world.task is not None
    return default_servers(world) if world.task.allowed is None else set(world.task.allowed)


def task_admits(world: World, ref: ToolRef) -> bool:
    task = world.task
    return task is None or (
        task.enabled
        and ref.server_id in allowed_servers(world)
        and selection_admits(world, Selection(tags=task.tags, allow=task.allow, deny=task.deny), ref)
        and profile_admits(world, task.profile, ref)
        and selection_admits(world, task.overrides, ref)
    )


def is_requested(world: World, server_id: str) -> bool:
    request = world.request
    if request.servers is not None:
        return server_id in request.servers
    if world.task is None:
        return True
    if request.tools is None:
        return server_id in default_servers(world)
    with_server = [text for text in request.tools if "/" in text]
    is_named = any(glob(text.split("/")[0], server_id) for text in with_server)
    is_default = len(with_server) < len(request.tools) and server_id in default_servers(world)
    return is_named or is_default


def is_asked_for(world: World, ref: ToolRef) -> bool:
    """`?tools=` chooses among tools; what else a server has comes with any tool of it that is chosen."""
    tools = world.request.tools
    if tools is None or ":" not in ref.name:
        return tools is None or any_matches(world, tools, ref)
    offer = world.platform.servers[ref.server_id]
    return any(
        any_matches(world, tools, ToolRef(ref.server_id, tool)) for tool in (*offer.tools, *offer.quarantined)
    )


def request_admits(world: World, ref: ToolRef) -> bool:
    request = world.request
    return (
        request.enabled is not False
        and is_requested(world, ref.server_id)
        and is_asked_for(world, ref)
        and lists_admit(world, request.allow, request.deny, ref)
        and profile_admits(world, request.profile, ref)
    )


def refusal_code(world: World) -> str | None:
    task, request = world.task, world.request
    if task is None:
        return None
    if world.ceiling.tasks is not None and task.task_id not in world.ceiling.tasks:
        return "not_found"
    asks_too_much = not set(request.servers or ()) <= allowed_servers(world)
    return "mcp_policy_denied" if asks_too_much or (request.enabled and not task.enabled) else None


LAYERS = (platform_admits, key_admits, task_admits, request_admits)


def registered(world: World) -> set[ToolRef]:
    return {
        ToolRef(server_id, name)
        for server_id, offer in world.platform.servers.items()
        for name in (*names_of(offer), *offer.quarantined)
    }


def expected(world: World) -> tuple[ToolRef, ...]:
    """Exactly what a scope without limits must hold."""
    if refusal_code(world) is not None:
        return ()
    return tuple(sorted(ref for ref in registered(world) if all(admits(world, ref) for admits in LAYERS)))
