"""The large gateway that pages are tried on is what it claims to be: here with fewer servers."""

from pathlib import Path

from tests.console.fleet import await_catalog, large_gateway


def test_every_server_is_listed_explained_found_and_called(tmp_path: Path) -> None:
    with large_gateway(tmp_path, servers=12, tools=4) as gateway:
        await_catalog(gateway)
        servers = gateway.get("/admin/api/mcp/servers")["servers"]
        decisions = gateway.get("/api/v1/mcp/explain")["tools"]
        found = gateway.get("/api/catalog/search?q=invoice&limit=50")["tools"]
        call = {"name": "fleet-011.read_invoice_1", "arguments": {"invoice_id": "7"}}
        response = gateway.http.post("/api/v1/mcp/call?tools=fleet-011.*", json=call).json()

        assert [one["server_id"] for one in servers] == [f"fleet-{number:03}" for number in range(12)]
        assert {one["health"]["state"] for one in servers} == {"connected"}
        assert len(decisions) == len(found) == 48
        assert all(one["allowed"] and one["tokens"] for one in decisions)
        assert response["result"]["content"] == [{"type": "text", "text": '{"invoice_id": "7"}'}]
