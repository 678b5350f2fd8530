"""One look at a chat upstream, beside the connections in use, to see whether its record works."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelTrial:
    """What came of asking an upstream for its models once. `error` is empty when all went well."""

    took_ms: int
    models: tuple[str, ...] = ()
    """All that it lists, whether or not callers get them."""
    error: str = ""
    hint: str = ""
