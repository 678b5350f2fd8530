"""Every example runs, as its own docstring says."""

import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from mcp import Client, StdioServerParameters
from mcp.types import Tool

from tests.contract.approval_samples import question
from tests.contract.stores import Clock
from tests.memory_audit import MemorySink
from tests.registry.memory_store import MemoryApprovals
from toolgate.audit.log.writer import AuditLog
from toolgate.govern.approvals import ApprovalWebhook, BodySigner
from toolgate.registry.approvals import NOTICE_MS
from toolgate.upstream.http.egress import Egress
from toolgate.upstream.http.fetch import Fetcher

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.anyio


def serve(name: str) -> Client:
    return Client(StdioServerParameters(command=sys.executable, args=[str(EXAMPLES / name)]))


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result
    assert result.structured_content is not None
    return result.structured_content.get("result", result.structured_content)


def check_tools(tools: list[Tool]) -> None:
    """Nine, and it is said which one destroys."""
    assert sorted(tool.name for tool in tools) == [
        "add_note",
        "append_to_note",
        "archive_note",
        "delete_note",
        "get_note",
        "list_notes",
        "list_tags",
        "search_notes",
        "tag_note",
    ]
    assert [one.name for one in tools if one.annotations and one.annotations.destructive_hint] == [
        "delete_note"
    ]


async def test_the_notes_server_says_which_of_its_nine_tools_destroys_and_keeps_notes() -> None:
    async with serve("notes_server.py") as client:
        check_tools((await client.list_tools()).tools)
        added = await call(client, "add_note", title="Tea", text="Buy oolong", tags=["home"])
        await call(client, "append_to_note", note_id=added["id"], text="and milk")
        await call(client, "tag_note", note_id=added["id"], tags=["shop"])
        found = await call(client, "search_notes", words="OOLONG milk")
        tags = await call(client, "list_tags")
        await call(client, "archive_note", note_id=added["id"])
        listed = await call(client, "list_notes", tag="home")
        await call(client, "delete_note", note_id=added["id"])
        gone = await client.call_tool("get_note", {"note_id": added["id"]})

    assert found == [
        {"id": 4, "title": "Tea", "text": "Buy oolong\nand milk", "tags": ["home", "shop"], "archived": False}
    ]
    assert tags == {"home": 2, "ideas": 1, "shop": 1, "work": 2}
    assert [note["title"] for note in listed] == ["Groceries"]
    assert gone.is_error


async def test_the_shop_server_sells_cancels_and_refunds() -> None:
    async with serve("shop_server.py") as client:
        names = sorted(tool.name for tool in (await client.list_tools()).tools)
        lines = [{"sku": "CUP-1", "quantity": 2}]
        price = await call(client, "quote_cart", lines=lines)
        order = await call(client, "place_order", lines=lines)
        left = await call(client, "check_stock", sku="CUP-1")
        sold_out = await client.call_tool("place_order", {"lines": lines})
        await call(client, "cancel_order", order_id=order["id"])
        await call(client, "restock_product", sku="CUP-1", quantity=5)
        back = await call(client, "search_products", words="cup")
        refunded = await call(client, "refund_order", order_id=order["id"])
        looked_up = await call(client, "get_order", order_id=order["id"])

    assert len(names) == 8
    assert (price, order["cents"], left) == (2990, 2990, 1)
    assert sold_out.is_error
    assert back == [{"sku": "CUP-1", "name": "Cup, white", "cents": 1250, "stock": 8}]
    assert refunded == looked_up == {**order, "state": "refunded"}


def test_the_client_without_a_url_says_how_to_use_it() -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / "list_and_call.py"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 1
    assert "list_and_call.py http://127.0.0.1:8080/api/mcp/t/notes" in done.stderr


async def test_the_receiver_of_the_approval_webhook_denies_at_once_or_takes_note(tmp_path: Path) -> None:
    secret, clock = "s3cret" * 8, Clock(int(time.time() * 1000))
    (tmp_path / "secret").write_text(f"{secret}\n")
    approvals = MemoryApprovals(clock)
    await approvals.request(question(tool="delete_file"), new_id="a")
    await approvals.request(question(tool="write_file"), new_id="b")
    with subprocess.Popen(
        [sys.executable, EXAMPLES / "approval_receiver.py", tmp_path / "secret", "0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as receiver:
        assert receiver.stdout is not None
        url = receiver.stdout.readline().strip()
        for one in (BodySigner("other" * 8, clock), BodySigner(secret, clock)):
            webhook = ApprovalWebhook(
                url,
                one,
                approvals=approvals,
                audit=AuditLog(MemorySink()),
                fetcher=Fetcher(Egress(allow_private=True)),
                own_url=str,
            )
            await webhook.notify_pending()
            clock.now_ms += NOTICE_MS
        printed = receiver.stdout.readline()
        receiver.kill()
    (noted, denied) = await approvals.list()

    assert (denied.state, denied.decided_by) == ("denied", "webhook:house rule")
    assert (noted.state, printed) == ("pending", "key:ada waits: toolgate approvals approve b\n")
