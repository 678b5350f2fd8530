"""Pure: which chat upstream is asked for a model.

Which models there are, over all chat upstreams: asked at once, remembered for a moment.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from toolgate.errors import ToolgateError
from toolgate.model.chat import ChatUpstream
from toolgate.model.json_text import UNREADABLE, Members, decode_array, decode_members, encode_raw
from toolgate.policy.patterns import matches_glob


def find_upstream(upstreams: Mapping[str, ChatUpstream], model: str) -> tuple[ChatUpstream, str] | None:
    """Who is asked for `model`, and by which name: `<upstream_id>/<model>`, or the first that serves it."""
    upstream_id, slash, name = model.partition("/")
    named = upstreams.get(upstream_id)
    if slash and named is not None and serves_model(named, name):
        return named, name
    for _, upstream in sorted(upstreams.items()):
        if serves_model(upstream, model):
            return upstream, model
    return None


def serves_model(upstream: ChatUpstream, model: str) -> bool:
    """Whether `upstream` is to be asked for `model`."""
    return upstream.enabled and any(matches_glob(pattern, model) for pattern in upstream.models)


LIST_S: Final = 5.0
"""How long an upstream may take: one that is dead costs no more, and nobody but itself."""
KEEP_S: Final = 10.0
KEEP_FAILED_S: Final = 5.0
MAX_MODELS: Final = 10_000
"""Of one upstream."""

_decode_id = msgspec.json.Decoder(str).decode


class FetchModelList(Protocol):
    """Asks one upstream now. Raises ToolgateError."""

    async def __call__(self, upstream: ChatUpstream, *, deadline_s: float) -> list[Members]: ...


@dataclass(slots=True)
class _CachedList:
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    """However many want it, one asks."""
    upstream: ChatUpstream | None = None
    listed: list[Members] = field(default_factory=list)
    until_s: float = 0.0


class ModelListCache:
    """The lists of all upstreams."""

    def __init__(self, ask: FetchModelList) -> None:
        self._ask = ask
        self._remembered: dict[str, _CachedList] = {}

    async def of_all(self, upstreams: Sequence[ChatUpstream], *, deadline_s: float) -> list[Members]:
        """Every model that one of `upstreams` has and is asked for, by the name that reaches it."""
        asked = sorted((one for one in upstreams if one.enabled), key=lambda one: one.upstream_id)
        lists = await asyncio.gather(*(self._of(one, deadline_s) for one in asked))
        return merge_models({one.upstream_id: one for one in asked}, lists)

    async def _of(self, upstream: ChatUpstream, deadline_s: float) -> list[Members]:
        clock = asyncio.get_running_loop().time
        known = self._remembered.setdefault(upstream.upstream_id, _CachedList())
        async with known.asking:
            if known.upstream != upstream or known.until_s <= clock():
                until_s = min(deadline_s, clock() + LIST_S)
                try:
                    known.listed = await self._ask(upstream, deadline_s=until_s)
                    known.until_s = clock() + KEEP_S
                except ToolgateError:
                    # That somebody was in a hurry is not the upstream's failure.
                    keep_s = KEEP_FAILED_S if clock() < deadline_s else 0.0
                    known.listed, known.until_s = [], clock() + keep_s
                known.upstream = upstream
            return known.listed

    def forget(self, kept: Sequence[str]) -> None:
        """Remember no others than `kept`."""
        self._remembered = {one: self._remembered[one] for one in kept if one in self._remembered}


def parse_model_list(body: bytes) -> list[Members] | None:
    """The models in an answer to `/models`; None where it is none. What has no `id` is left out."""
    try:
        objects = [decode_members(one) for one in decode_array(decode_members(body)["data"])[:MAX_MODELS]]
    except (*UNREADABLE, KeyError):
        return None
    return [one for one in objects if _id_of(one)]


def merge_models(upstreams: dict[str, ChatUpstream], lists: Sequence[list[Members]]) -> list[Members]:
    """Every model by the name that reaches it: its own, or `<upstream_id>/<id>` where that is another's."""
    found: dict[str, Members] = {}
    for upstream, listed in zip(upstreams.values(), lists, strict=True):
        for one in listed:
            model = _id_of(one)
            if not serves_model(upstream, model):
                continue
            reached = find_upstream(upstreams, model)
            is_own = reached is not None and reached[0] is upstream and reached[1] == model
            name = model if is_own else f"{upstream.upstream_id}/{model}"
            found.setdefault(name, {**one, "id": encode_raw(name)})
    return list(found.values())


def _id_of(model: Members) -> str:
    """Empty where there is none."""
    try:
        return _decode_id(model["id"])
    except (*UNREADABLE, KeyError):
        return ""
