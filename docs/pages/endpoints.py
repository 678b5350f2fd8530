"""The REST API, from its route table."""

from typing import Any, Final

from pages.markdown import bullet, code, page, sentence, wrap
from toolgate.surfaces.rest.app import ENDPOINTS
from toolgate.surfaces.rest.framework.routing import ANYONE, RestEndpoint

_INTRO: Final = """
This page is an outline. `GET /openapi.json` of a running gateway has the complete API with all schemas.
Request and response bodies are JSON. Each role includes the ones before it: `agent`, `viewer`, `publisher`,
`admin`. If the gateway trusts loopback, a request from there without a key acts as the local administrator.
Every endpoint may fail with `unauthenticated`, `forbidden`, `invalid_request` and `internal`. Endpoints with
an id or a body may also fail with `invalid_record`, `parse_error`, `unsupported_media` and `too_large`. Each
endpoint lists its other errors. The MCP endpoint (`/api/mcp`) is not REST: see
[clients](../how-to/clients.md).
"""


def endpoints_page() -> str:
    """rest.md"""
    return page("REST", _INTRO, *map(_section, ENDPOINTS))


def _section(endpoint: RestEndpoint[Any]) -> str:
    blocks = [
        f"## {code(f'{endpoint.method} {endpoint.path}')}",
        wrap(f"{endpoint.summary}. {_who(endpoint)} {sentence(endpoint.handler.__doc__)}"),
    ]
    if endpoint.query:
        parameters = (bullet(f"{code(f'?{one.name}=')} {one.description}") for one in endpoint.query)
        blocks.append("\n".join(parameters))
    if endpoint.headers:
        blocks.append("\n".join(bullet(f"{code(one.name)}: {one.description}") for one in endpoint.headers))
    if endpoint.is_conditional:
        blocks.append("Accepts `If-Match` with the ETag of the record, and `If-None-Match: *`.")
    responses = [*map(str, endpoint.statuses), *(code(error.code) for error in endpoint.errors)]
    blocks.append(wrap(f"Responses: {', '.join(responses)}."))
    return "\n\n".join(blocks)


def _who(endpoint: RestEndpoint[Any]) -> str:
    if endpoint.role is ANYONE:
        return "Needs no credential."
    return f"Needs the role {code(endpoint.role)}{'' if endpoint.role == 'admin' else ' or above'}."
