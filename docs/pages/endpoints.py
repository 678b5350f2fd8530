"""The REST surface, from its route table."""

from typing import Any, Final

from pages.markdown import bullet, code, page, sentence, wrap
from toolgate.surfaces.rest.app import ENDPOINTS
from toolgate.surfaces.rest.framework.routing import ANYONE, RestEndpoint

_INTRO: Final = """
The whole surface with all shapes is at `GET /openapi.json` of a running gateway; this page is its outline.
Bodies and answers are JSON. Roles from below: `agent`, `viewer`, `publisher`, `admin`; each may do what
those below it may. On loopback a request without a key is the local administrator's. Every endpoint may
answer `unauthenticated`, `forbidden`, `invalid_request` and `internal`, and where it takes an id or a body
also `invalid_record`, `parse_error`, `unsupported_media` and `too_large`; the others stand with it. The MCP
door (`/api/mcp`) is not REST: see [clients](../how-to/clients.md).
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
        blocks.append("Takes `If-Match` with the record's ETag, and `If-None-Match: *`.")
    responses = [*map(str, endpoint.statuses), *(code(error.code) for error in endpoint.errors)]
    blocks.append(wrap(f"Answers {', '.join(responses)}."))
    return "\n\n".join(blocks)


def _who(endpoint: RestEndpoint[Any]) -> str:
    if endpoint.role is ANYONE:
        return "For anyone."
    return f"For {code(endpoint.role)}{'' if endpoint.role == 'admin' else ' and above'}."
