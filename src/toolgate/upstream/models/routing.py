"""Routes a model's name to its chat upstream, and caches the model lists of all upstreams for a moment.

Asks the upstreams concurrently: a dead one delays a list by at most LIST_S, and hides no other's models.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

import msgspec

from toolgate.errors import ToolgateError
from toolgate.model.chat import ChatUpstream
from toolgate.model.json_text import UNREADABLE, Members, decode_array, decode_members, encode_raw
from toolgate.model.names import matches_glob


def find_upstream(upstreams: Mapping[str, ChatUpstream], model: str) -> tuple[ChatUpstream, str] | None:
    """The upstream for `model`, and the model's name there: `<upstream_id>/<model>`, or the first that serves
    it.
    """
    upstream_id, slash, name = model.partition("/")
    named = upstreams.get(upstream_id)
    if slash and named is not None and serves_model(named, name):
        return named, name
    for _, upstream in sorted(upstreams.items()):
        if serves_model(upstream, model):
            return upstream, model
    return None


def serves_model(upstream: ChatUpstream, model: str) -> bool:
    """Whether `upstream` takes requests for `model`."""
    return upstream.enabled and any(matches_glob(pattern, model) for pattern in upstream.models)


LIST_S: Final = 5.0
"""How long an upstream may take to list its models."""
KEEP_S: Final = 10.0
KEEP_FAILED_S: Final = 5.0
MAX_MODELS: Final = 10_000
"""Models of one upstream."""

_decode_id = msgspec.json.Decoder(str).decode


class FetchModelList(Protocol):
    """Lists the models of one upstream now. Raises ToolgateError."""

    async def __call__(self, upstream: ChatUpstream, *, deadline_s: float) -> list[Members]: ...


@dataclass(slots=True)
class _CachedList:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Concurrent callers share one request."""
    upstream: ChatUpstream | None = None
    listed: list[Members] = field(default_factory=list)
    until_s: float = 0.0


class ModelListCache:
    """The lists of all upstreams."""

    def __init__(self, fetch: FetchModelList) -> None:
        self._fetch = fetch
        self._cached: dict[str, _CachedList] = {}

    async def of_all(self, upstreams: Sequence[ChatUpstream], *, deadline_s: float) -> list[Members]:
        """All models that these upstreams list and serve, by the name that reaches each."""
        enabled = sorted((one for one in upstreams if one.enabled), key=lambda one: one.upstream_id)
        lists = await asyncio.gather(*(self._of(one, deadline_s) for one in enabled))
        return merge_models({one.upstream_id: one for one in enabled}, lists)

    async def _of(self, upstream: ChatUpstream, deadline_s: float) -> list[Members]:
        clock = asyncio.get_running_loop().time
        cached = self._cached.setdefault(upstream.upstream_id, _CachedList())
        async with cached.lock:
            if cached.upstream != upstream or cached.until_s <= clock():
                until_s = min(deadline_s, clock() + LIST_S)
                try:
                    cached.listed = await self._fetch(upstream, deadline_s=until_s)
                    cached.until_s = clock() + KEEP_S
                except ToolgateError:
                    # A caller's short deadline is not the upstream's failure.
                    keep_s = KEEP_FAILED_S if clock() < deadline_s else 0.0
                    cached.listed, cached.until_s = [], clock() + keep_s
                cached.upstream = upstream
            return cached.listed

    def keep_only(self, upstream_ids: Sequence[str]) -> None:
        """Forget all other upstreams."""
        self._cached = {one: self._cached[one] for one in upstream_ids if one in self._cached}


def parse_model_list(body: bytes) -> list[Members] | None:
    """The models with an `id` in a response to `/models`; None if it is not a list."""
    try:
        objects = [decode_members(one) for one in decode_array(decode_members(body)["data"])[:MAX_MODELS]]
    except (*UNREADABLE, KeyError):
        return None
    return [one for one in objects if _parse_id(one)]


def merge_models(upstreams: dict[str, ChatUpstream], lists: Sequence[list[Members]]) -> list[Members]:
    """All models by the name that reaches each: its id, or `<upstream_id>/<id>` if the id reaches another."""
    found: dict[str, Members] = {}
    for upstream, listed in zip(upstreams.values(), lists, strict=True):
        for one in listed:
            model = _parse_id(one)
            if not serves_model(upstream, model):
                continue
            reached = find_upstream(upstreams, model)
            is_own = reached is not None and reached[0] is upstream and reached[1] == model
            name = model if is_own else f"{upstream.upstream_id}/{model}"
            found.setdefault(name, {**one, "id": encode_raw(name)})
    return list(found.values())


def _parse_id(model: Members) -> str:
    """The model's id; empty if it has no valid one."""
    try:
        return _decode_id(model["id"])
    except (*UNREADABLE, KeyError):
        return ""
