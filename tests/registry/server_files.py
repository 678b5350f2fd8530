"""Server files, as tests write them."""

import json
from pathlib import Path
from typing import Any


def body(server_id: str, **more: Any) -> dict[str, Any]:
    """A server that starts the program of its own name."""
    return {"server_id": server_id, "transport": "stdio", "stdio": {"command": server_id}, **more}


def save(path: Path, *, server_id: str, **more: Any) -> None:
    path.write_text(json.dumps(body(server_id, **more)), "utf-8")
