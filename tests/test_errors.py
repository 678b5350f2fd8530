"""Errors: each has one code, and each code one form on each wire."""

import errno
import re
from collections.abc import Iterator

import pytest

from toolgate.errors import WIRE, ServerBusy, ToolgateError, Wire

JSON_RPC = {-32700, -32600, -32601, -32602, -32603}
MCP = {-32020, -32021, -32022}
GRPC = {
    "ABORTED",
    "ALREADY_EXISTS",
    "CANCELLED",
    "DATA_LOSS",
    "DEADLINE_EXCEEDED",
    "FAILED_PRECONDITION",
    "INTERNAL",
    "INVALID_ARGUMENT",
    "NOT_FOUND",
    "OUT_OF_RANGE",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "UNAUTHENTICATED",
    "UNAVAILABLE",
    "UNIMPLEMENTED",
    "UNKNOWN",
}


def family(parent: type[ToolgateError]) -> Iterator[type[ToolgateError]]:
    yield parent
    for child in parent.__subclasses__():
        yield from family(child)


# Other tests may define errors, too: only those of the product count.
ERRORS = [error for error in family(ToolgateError) if error.__module__.startswith("toolgate")]


@pytest.mark.requirement("002-101")
def test_every_error_has_its_own_code_and_every_code_an_error() -> None:
    codes = sorted(error.code for error in ERRORS)

    assert codes == sorted(WIRE)


@pytest.mark.parametrize("error", ERRORS)
def test_every_error_has_a_docstring_and_a_hint(error: type[ToolgateError]) -> None:
    assert error.__doc__
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", error.code)
    assert error is ToolgateError or error.default_hint != ToolgateError.default_hint


@pytest.mark.parametrize("code", WIRE)
def test_every_code_has_a_valid_form_on_each_wire(code: str) -> None:
    wire = WIRE[code]

    assert 400 <= wire.http < 600
    assert wire.grpc in GRPC
    assert hasattr(errno, wire.errno)


@pytest.mark.parametrize("code", WIRE)
def test_json_rpc_codes_are_standard_mcps_or_outside_the_reserved_range(code: str) -> None:
    number = WIRE[code].jsonrpc

    assert number in JSON_RPC | MCP or not -32768 <= number <= -32000


def test_json_rpc_codes_of_toolgate_are_unique() -> None:
    own = [wire.jsonrpc for wire in WIRE.values() if wire.jsonrpc not in JSON_RPC]

    assert len(own) == len(set(own))


def test_an_error_carries_its_message_hint_and_data() -> None:
    plain = ServerBusy("`fs` is busy")
    error = ServerBusy("`fs` is busy", hint="wait", data={"queue": 64})

    assert (str(plain), plain.hint, plain.data) == ("`fs` is busy", ServerBusy.default_hint, {})
    assert (error.hint, error.data, error.retryable) == ("wait", {"queue": 64}, True)
    assert plain.detail == {"code": "mcp_busy", "message": "`fs` is busy", "hint": ServerBusy.default_hint}
    assert error.detail == {
        "code": "mcp_busy",
        "message": "`fs` is busy",
        "hint": "wait",
        "data": {"queue": 64},
    }
    assert error.wire == Wire(http=503, jsonrpc=-31022, grpc="RESOURCE_EXHAUSTED", errno="EAGAIN")


def test_an_unknown_tool_and_invalid_params_are_one_code_on_the_mcp_wire() -> None:
    assert WIRE["unknown_tool"].jsonrpc == WIRE["invalid_params"].jsonrpc == -32602
