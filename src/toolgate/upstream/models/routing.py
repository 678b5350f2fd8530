"""Pure: which chat upstream is asked for a model."""

from collections.abc import Mapping

from toolgate.model.chat import ChatUpstream
from toolgate.policy.patterns import matches_text


def find_upstream(upstreams: Mapping[str, ChatUpstream], model: str) -> tuple[ChatUpstream, str] | None:
    """Who is asked for `model`, and by which name: `<upstream_id>/<model>`, or the first that serves it."""
    upstream_id, slash, name = model.partition("/")
    named = upstreams.get(upstream_id)
    if slash and named is not None and serves(named, name):
        return named, name
    for _, upstream in sorted(upstreams.items()):
        if serves(upstream, model):
            return upstream, model
    return None


def serves(upstream: ChatUpstream, model: str) -> bool:
    """Whether `upstream` is to be asked for `model`."""
    return upstream.enabled and any(matches_text(pattern, model) for pattern in upstream.models)
