"""A program that opens many watches and hears of one change on each.

Arguments: address, key, how many. Prints `ready` when each has had its bookmark, and `heard` at the end.
"""

import asyncio
import sys
from typing import Any

import grpc.aio

from toolgate.proto import mcp_registry_pb2 as sms

PER_CHANNEL = 1_000
AT_ONCE = 100
"""A server refuses calls that come faster than it can look at them."""


async def main(address: str, key: str, count: int) -> None:
    metadata = (("authorization", f"Bearer {key}"),)
    calls: list[Any] = []
    for begin in range(0, count, PER_CHANNEL):
        # An option of its own keeps the library from sharing one connection among channels.
        channel: Any = grpc.aio.insecure_channel(address, options=(("toolgate.number", begin),))
        watch = channel.unary_stream(
            "/sms.McpRegistryService/WatchMcpServers",
            request_serializer=sms.WatchMcpServersRequest.SerializeToString,
            response_deserializer=sms.WatchMcpServersResponse.FromString,
        )
        for wave in range(begin, min(begin + PER_CHANNEL, count), AT_ONCE):
            opened = [
                watch(sms.WatchMcpServersRequest(), metadata=metadata)
                for _ in range(min(AT_ONCE, count - wave))
            ]
            await asyncio.gather(*(until(call, is_bookmark=True) for call in opened))
            calls += opened
    print("ready", flush=True)  # noqa: T201
    await asyncio.gather(*(until(call, is_bookmark=False) for call in calls))
    print("heard", flush=True)  # noqa: T201


async def until(call: Any, *, is_bookmark: bool) -> None:
    while bool((await call.read()).event.upserts) is is_bookmark:
        pass


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
