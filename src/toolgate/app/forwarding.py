"""The audit of a node, handed to its control. Apart from others: it knows gRPC, which `up` need not load."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from toolgate.app.components import node_id_of
from toolgate.audit.journal import Journal
from toolgate.audit.log.follower import followed
from toolgate.audit.tail import Read
from toolgate.proto import node_pb2
from toolgate.registry.replication.connection import GrpcControlLink
from toolgate.settings import Settings


@asynccontextmanager
async def open_forwarding(settings: Settings, journal: Journal, link: GrpcControlLink) -> AsyncIterator[None]:
    """What a node writes down is handed to its control, which it may be without for a while."""

    async def deliver(read: Read) -> int:
        return await link.record_events(
            node_pb2.RecordEventsRequest(
                node_id=node_id_of(settings),
                log=journal.name,
                after=read.after,
                upto=read.upto,
                events=read.lines,
            )
        )

    async with followed(journal, deliver, who="control"):
        yield
