"""What the documents of the official MCP registry (2025-12) demand of a `server.json`, and of its answers."""

import importlib
from typing import Any, Final

Json = dict[str, Any]

# Has no type information, which the strict checker would hold against a plain import.
_Validator = importlib.import_module("jsonschema").Draft202012Validator

TEXT: Final[Json] = {"type": "string"}
FLAG: Final[Json] = {"type": "boolean"}
INPUT: Final[Json] = {
    "type": "object",
    "properties": {"value": TEXT, "default": TEXT, "isRequired": FLAG, "isSecret": FLAG},
}
VARIABLES: Final[Json] = {"type": "object", "additionalProperties": INPUT}
OPEN_INPUT: Final[Json] = {
    "type": "object",
    "properties": {**INPUT["properties"], "variables": VARIABLES},
}
PAIR: Final[Json] = {**OPEN_INPUT, "required": ["name"]}
ARGUMENT: Final[Json] = {
    **OPEN_INPUT,
    "anyOf": [
        {
            "properties": {"type": {"const": "positional"}},
            "anyOf": [{"required": ["value"]}, {"required": ["valueHint"]}],
        },
        {"properties": {"type": {"const": "named"}}, "required": ["name"]},
    ],
    "required": ["type"],
}
PACKAGE: Final[Json] = {
    "type": "object",
    "required": ["registryType", "identifier", "transport"],
    "properties": {
        "registryType": {"enum": ["npm", "pypi", "oci", "nuget", "mcpb"]},
        "identifier": TEXT,
        "version": {"type": "string", "minLength": 1, "maxLength": 255, "not": {"const": "latest"}},
        "transport": {"properties": {"type": {"const": "stdio"}}, "required": ["type"]},
        "runtimeHint": TEXT,
        "runtimeArguments": {"type": "array", "items": ARGUMENT},
        "packageArguments": {"type": "array", "items": ARGUMENT},
        "environmentVariables": {"type": "array", "items": PAIR},
    },
    "dependentRequired": {"runtimeArguments": ["runtimeHint"]},
    "additionalProperties": False,
}
REMOTE: Final[Json] = {
    "type": "object",
    "required": ["type", "url"],
    "properties": {
        "type": {"enum": ["streamable-http", "sse"]},
        "url": {"type": "string", "pattern": r"^(https?://[^\s]+|\{[a-zA-Z_][a-zA-Z0-9_]*\}[^\s]*)$"},
        "headers": {"type": "array", "items": PAIR},
        "variables": VARIABLES,
    },
    "additionalProperties": False,
}
SERVER: Final[Json] = {
    "type": "object",
    "required": ["name", "description", "version"],
    "properties": {
        "$schema": TEXT,
        "name": {
            "type": "string",
            "minLength": 3,
            "maxLength": 200,
            "pattern": r"^[a-zA-Z0-9.-]+/[a-zA-Z0-9._-]+$",
        },
        "description": {"type": "string", "minLength": 1, "maxLength": 100},
        "title": {"type": "string", "minLength": 1, "maxLength": 100},
        "version": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": r"^[^\^~<>=*]+$"},
        "packages": {"type": "array", "items": PACKAGE},
        "remotes": {"type": "array", "items": REMOTE},
    },
    "additionalProperties": False,
}
TIME: Final[Json] = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$"}
ANSWER: Final[Json] = {
    "type": "object",
    "required": ["server", "_meta"],
    "properties": {
        "server": SERVER,
        "_meta": {
            "required": ["io.modelcontextprotocol.registry/official"],
            "properties": {
                "io.modelcontextprotocol.registry/official": {
                    "required": ["status", "publishedAt", "updatedAt", "isLatest"],
                    "properties": {
                        "status": {"enum": ["active", "deprecated", "deleted"]},
                        "publishedAt": TIME,
                        "updatedAt": TIME,
                        "isLatest": FLAG,
                    },
                    "additionalProperties": False,
                }
            },
        },
    },
}
LIST: Final[Json] = {
    "type": "object",
    "required": ["servers", "metadata"],
    "properties": {
        "servers": {"type": "array", "items": ANSWER},
        "metadata": {
            "type": "object",
            "required": ["count"],
            "properties": {"nextCursor": TEXT, "count": {"type": "integer", "minimum": 0}},
            "additionalProperties": False,
        },
    },
    "additionalProperties": False,
}
NOT_FOUND: Final[Json] = {"type": "object", "required": ["error"], "properties": {"error": TEXT}}


def check_official(schema: Json, value: Any) -> None:
    """Fails when `value` is not what the official documents say."""
    _Validator(schema).validate(value)
