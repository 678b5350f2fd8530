"""The gRPC API, from its table of RPCs."""

from itertools import groupby
from typing import Final

from pages.markdown import code, page, sentence, wrap
from toolgate.surfaces.grpc.dispatch import ANYONE, Rpc
from toolgate.surfaces.grpc.server import list_rpcs

_INTRO: Final = """
`toolgate control` serves these RPCs at `grpc.listen`. The messages are defined in `proto/`. The
[gRPC guide](../how-to/grpc.md) shows how to list and watch. Every RPC that needs a role may fail with
`UNAUTHENTICATED` and `PERMISSION_DENIED`, and any RPC with the status of its [error](errors.md).
"""


def rpcs_page() -> str:
    """grpc.md"""
    table = sorted(list_rpcs(with_reflection=True), key=lambda rpc: rpc.service)
    services = groupby(table, key=lambda rpc: rpc.service)
    return page("gRPC", _INTRO, *(_service(name, list(rpcs)) for name, rpcs in services))


def _service(name: str, rpcs: list[Rpc]) -> str:
    return "\n\n".join([f"## {code(name)}", *map(_section, rpcs)])


def _section(rpc: Rpc) -> str:
    asked, answered = rpc.descriptor.input_type.name, rpc.descriptor.output_type.name
    streams = "a stream of " if rpc.descriptor.server_streaming else ""
    what = f"{_who(rpc)} {sentence(rpc.handler.__doc__)} {code(asked)} to {streams}{code(answered)}."
    return f"### {code(rpc.method)}\n\n{wrap(what)}"


def _who(rpc: Rpc) -> str:
    if rpc.roles == ANYONE:
        return "Needs no credential."
    roles = (code(role) + ("" if role in {"admin", "node"} else " and above") for role in rpc.roles)
    return f"For {', and for '.join(roles)}."
