"""Write the message code in `src/toolgate/proto/` from the definitions next to this file.

Only messages are generated: the RPCs are rows of `surfaces/grpc/`'s own table, each with the role it needs.
"""

import sys
from pathlib import Path
from typing import Final

from grpc_tools import protoc

ROOT: Final = Path(__file__).resolve().parent
GENERATED: Final = ROOT.parent / "src" / "toolgate" / "proto"
SOURCES: Final = {
    "mcp_registry.proto": "sms",
    "task.proto": "sms",
    "policy.proto": "toolgate/v1",
    "node.proto": "toolgate/v1",
}


def generate(into: Path) -> None:
    """Write `<name>_pb2.py` and `.pyi` for every source into the directory `into`."""
    for name, package in SOURCES.items():
        # The virtual path keeps these files apart from any of the same name in another program's pool.
        arguments = [
            "protoc",
            f"-Itoolgate/proto={ROOT / package}",
            f"--python_out={into.parent.parent}",
            f"--pyi_out={into.parent.parent}",
            f"toolgate/proto/{name}",
        ]
        if protoc.main(arguments) != 0:
            sys.exit(f"{name}: protoc failed")


if __name__ == "__main__":
    generate(GENERATED)
