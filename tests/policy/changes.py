"""Changes to a random world that may only ever take tools away, or that may change nothing at all."""

from collections.abc import Callable
from dataclasses import replace
from types import MappingProxyType

from tests.policy.worlds import ALL_PATTERNS, TAGS, Maker, World
from toolgate.model.tasks import Profile, Selection
from toolgate.model.tools import ServerTools, Snapshot
from toolgate.policy.layers import TaskPolicy

Items = tuple[str, ...]
EditSelection = Callable[[Selection], Selection]


def with_offers(platform: Snapshot, edit: Callable[[ServerTools], ServerTools]) -> Snapshot:
    servers = {server_id: edit(one) for server_id, one in platform.servers.items()}
    return replace(platform, servers=MappingProxyType(servers))


def with_profiles(platform: Snapshot, edit: EditSelection) -> Snapshot:
    profiles = {name: _edit_profile(one, edit) for name, one in platform.profiles.items()}
    return replace(platform, profiles=MappingProxyType(profiles))


def _edit_profile(profile: Profile, edit: EditSelection) -> Profile:
    return replace(
        profile,
        selection=edit(profile.selection),
        environments={name: edit(selection) for name, selection in profile.environments.items()},
    )


def with_task(world: World, edit: Callable[[TaskPolicy], TaskPolicy]) -> World:
    return world if world.task is None else replace(world, task=edit(world.task))


def add_deny(maker: Maker, world: World) -> World:
    """One more pattern on a denylist of one of the layers."""
    more = (maker.pick(ALL_PATTERNS),)

    def deny(selection: Selection) -> Selection:
        return replace(selection, deny=selection.deny + more)

    ceiling, request = world.ceiling, world.request
    edits: tuple[Callable[[], World], ...] = (
        lambda: replace(world, ceiling=replace(ceiling, deny=ceiling.deny + more)),
        lambda: replace(world, request=replace(request, deny=request.deny + more)),
        lambda: replace(world, platform=with_profiles(world.platform, deny)),
        lambda: with_task(world, lambda task: replace(task, deny=task.deny + more)),
        lambda: with_task(world, lambda task: replace(task, overrides=deny(task.overrides))),
    )
    return maker.pick(edits)()


def remove_allow(maker: Maker, world: World) -> World:
    """One entry less on a list that lets something through, or such a list where there was none."""

    def fewer(items: Items) -> Items:
        return maker.shuffled(items)[1:]

    def narrower(items: Items | None, choices: Items = ALL_PATTERNS) -> Items:
        return maker.some(choices) if items is None else fewer(items)

    def narrow(selection: Selection) -> Selection:
        edits: tuple[Callable[[], Selection], ...] = (
            lambda: replace(selection, servers=fewer(selection.servers or ())),
            lambda: replace(selection, tags=narrower(selection.tags, TAGS)),
            lambda: replace(selection, allow=narrower(selection.allow)),
        )
        return maker.pick(edits)()

    def drop_default(task: TaskPolicy) -> TaskPolicy:
        default = fewer(task.default)
        return replace(task, default=default, is_default_empty=not default)

    def drop_allowed(task: TaskPolicy) -> TaskPolicy:
        allowed = None if task.allowed is None else fewer(task.allowed)
        kept = tuple(one for one in task.default if allowed is None or one in allowed)
        return replace(
            task,
            allowed=allowed,
            default=kept,
            is_default_empty=task.is_default_empty or kept != task.default,
        )

    def drop_tool(offer: ServerTools) -> ServerTools:
        return replace(offer, record=replace(offer.record, allowed_tools=fewer(offer.record.allowed_tools)))

    ceiling, request, platform = world.ceiling, world.request, world.platform
    edits: tuple[Callable[[], World], ...] = (
        lambda: replace(world, platform=with_offers(platform, drop_tool)),
        lambda: replace(world, platform=with_profiles(platform, narrow)),
        lambda: replace(world, ceiling=replace(ceiling, servers=fewer(ceiling.servers or ()))),
        lambda: replace(world, ceiling=replace(ceiling, allow=narrower(ceiling.allow))),
        lambda: replace(world, ceiling=replace(ceiling, tasks=fewer(ceiling.tasks or ()))),
        # Where there was no `?tools=`, a new one may name a server of the task that is not in its default.
        lambda: replace(world, request=replace(request, tools=request.tools and fewer(request.tools))),
        lambda: replace(world, request=replace(request, allow=narrower(request.allow))),
        lambda: with_task(world, lambda task: replace(task, allow=narrower(task.allow))),
        lambda: with_task(world, lambda task: replace(task, overrides=narrow(task.overrides))),
        lambda: with_task(world, drop_default),
        lambda: with_task(world, drop_allowed),
    )
    return maker.pick(edits)()


def reorder(maker: Maker, world: World) -> World:
    """The same lists, each in another order and with one entry twice."""

    def other(items: Items) -> Items:
        return maker.shuffled(items + items[:1])

    def maybe(items: Items | None) -> Items | None:
        return None if items is None else other(items)

    def reorder_selection(one: Selection) -> Selection:
        return Selection(
            servers=maybe(one.servers), tags=maybe(one.tags), allow=maybe(one.allow), deny=other(one.deny)
        )

    def reorder_offer(one: ServerTools) -> ServerTools:
        record = replace(
            one.record, allowed_tools=other(one.record.allowed_tools), tags=other(one.record.tags)
        )
        names = maker.shuffled(tuple(one.tools))
        return replace(one, record=record, tools=MappingProxyType({name: one.tools[name] for name in names}))

    def reorder_task(one: TaskPolicy) -> TaskPolicy:
        return replace(
            one,
            default=other(one.default),
            allowed=maybe(one.allowed),
            allow=maybe(one.allow),
            deny=other(one.deny),
            overrides=reorder_selection(one.overrides),
            tags=maybe(one.tags),
        )

    platform = with_profiles(with_offers(world.platform, reorder_offer), reorder_selection)
    ids = maker.shuffled(tuple(platform.servers))
    ceiling, request = world.ceiling, world.request
    return replace(
        with_task(world, reorder_task),
        platform=replace(platform, servers=MappingProxyType({one: platform.servers[one] for one in ids})),
        ceiling=replace(
            ceiling,
            tasks=maybe(ceiling.tasks),
            servers=maybe(ceiling.servers),
            allow=maybe(ceiling.allow),
            deny=other(ceiling.deny),
        ),
        request=replace(
            request,
            servers=maybe(request.servers),
            tools=maybe(request.tools),
            allow=maybe(request.allow),
            deny=other(request.deny),
        ),
    )
