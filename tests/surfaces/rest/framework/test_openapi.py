"""The OpenAPI document: complete, consistent, and made from nothing but the table."""

import importlib
import re
from typing import Any

import pytest

from tests.surfaces.rest_world import DOCUMENT, SERVERS, open_rest
from toolgate.errors import WIRE
from toolgate.surfaces.rest.app import ENDPOINTS

pytestmark = pytest.mark.anyio

OPERATIONS = [
    (f"{method.upper()} {path}", operation)
    for path, item in DOCUMENT["paths"].items()
    for method, operation in item.items()
]


async def test_the_document_is_served_to_anyone_and_shows_every_endpoint() -> None:
    async with open_rest(trusts_local=False) as world:
        served = await world.get("/openapi.json")

    assert served == DOCUMENT
    assert {name for name, _ in OPERATIONS} == {f"{one.method} {one.path}" for one in ENDPOINTS}


def test_every_reference_leads_somewhere_and_no_schema_is_left_over() -> None:
    text = str(DOCUMENT)
    named = set(re.findall(r"#/components/schemas/(\w+)", text))

    assert named == set(DOCUMENT["components"]["schemas"])


def test_every_schema_is_one() -> None:
    validator = importlib.import_module("jsonschema").Draft202012Validator
    for schema in DOCUMENT["components"]["schemas"].values():
        validator.check_schema(schema)


def test_every_operation_says_what_it_is_and_how_it_fails() -> None:
    ids = [operation["operationId"] for _, operation in OPERATIONS]
    statuses = {str(wire.http) for wire in WIRE.values()} | {"200", "201", "202"}

    assert len(set(ids)) == len(ids)
    for name, operation in OPERATIONS:
        assert operation["summary"], name
        assert "None" not in operation["description"], name
        assert set(operation["responses"]) <= statuses, name
        assert {"401", "500"} <= set(operation["responses"]), name
        assert ("403" in operation["responses"]) == (operation["security"] != []), name
        assert ("415" in operation["responses"]) == ("requestBody" in operation), name


def test_every_parameter_of_a_path_is_described() -> None:
    for name, operation in OPERATIONS:
        described = {one["name"] for one in operation["parameters"] if one["in"] == "path"}
        assert described == set(re.findall(r"\{(\w+)\}", name)), name


def test_every_member_of_a_record_is_described() -> None:
    schemas: dict[str, Any] = DOCUMENT["components"]["schemas"]
    for name in ("ServerSent", "StdioBody", "HttpBody", "BudgetsBody", "TaskSent", "ProfileSent", "KeySent"):
        silent = [member for member, schema in schemas[name]["properties"].items() if not _says(schema)]
        assert silent == [], name


def _says(schema: dict[str, Any]) -> bool:
    return "description" in schema or "$ref" in schema


def test_a_server_in_an_answer_needs_only_what_every_server_has() -> None:
    operation = DOCUMENT["paths"][f"{SERVERS}/{{server_id}}"]["get"]
    schema = DOCUMENT["components"]["schemas"]["ServerShown"]

    assert operation["responses"]["200"]["content"]["application/json"]["schema"] == {
        "$ref": "#/components/schemas/ServerShown"
    }
    assert set(schema["required"]) == {
        *("server_id", "transport", "revision", "updated_at_ms"),
        *("health", "nodes", "login", "offer"),
    }
