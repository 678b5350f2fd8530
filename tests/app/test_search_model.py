"""The model that `semantic_model` names: all of a process searches with it, or the process does not start."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import pytest

from toolgate.app.control import open_control
from toolgate.app.node import open_node
from toolgate.app.process import ServingApp
from toolgate.app.up import open_up
from toolgate.errors import StartRefused
from toolgate.settings import GrpcSettings, Settings

pytestmark = pytest.mark.anyio

Open = Callable[[Settings, Mapping[str, str]], AbstractAsyncContextManager[ServingApp]]


@pytest.mark.parametrize("open_process", [open_up, open_control, open_node])
async def test_no_process_starts_with_a_model_that_is_none(tmp_path: Path, open_process: Open) -> None:
    key = tmp_path / "node.key"
    key.write_text("k" * 16 + "0123456789abcdef", "utf-8")
    settings = Settings(
        listen="127.0.0.1:0",
        grpc=GrpcSettings(listen="127.0.0.1:0"),
        data_dir=tmp_path / "data",
        semantic_model=tmp_path,
        control=("127.0.0.1:1",),
        control_key_file=key,
    )

    with pytest.raises(StartRefused, match="cannot load a model from"):
        async with open_process(settings, {}):
            pytest.fail("started")
