"""Pins: which definitions of a server were looked at and approved."""

from typing import Any, Final

from toolgate.surfaces.rest.collection import Collection, collection_endpoints
from toolgate.surfaces.rest.record_shapes import PinList, PinSent, PinShown, PinWritten
from toolgate.surfaces.rest.routing import Endpoint

PINS: Final = Collection(
    kind="pin", path="/admin/api/pins", sent=PinSent, shown=PinShown, listed=PinList, written=PinWritten
)

ENDPOINTS: Final[tuple[Endpoint[Any], ...]] = collection_endpoints(PINS)
