"""The shapes around records. A record has its own in the registry, which alone decides what may be stored;
here stands what REST adds to it.
"""

from typing import Annotated, Any, Final, Literal

from pydantic import Field, JsonValue, create_model

from toolgate.model.principals import IntegrationState, Role
from toolgate.model.reports import HealthState
from toolgate.registry.records.fields import Name, OAuthScope, ServerId, Sha256, UnixTime
from toolgate.registry.records.policy_bodies import CeilingBody, ProfileBody, QuotasBody, TaskBody
from toolgate.registry.records.server_bodies import PinBody, ServerBody, StrictBody
from toolgate.surfaces.rest.framework.response import ResponseShape, Revision
from toolgate.upstream.oauth.logins import Login
from toolgate.upstream.pool.health import ServerHealth

# Servers, tasks, profiles: as the registry has them, with the revision that last wrote them.


class ServerOnNode(ResponseShape, frozen=True, kw_only=True):
    """A server as a node reported it last."""

    node_id: str
    state: HealthState
    last_error: str
    hint: str
    """What a start is waiting for, or what to do about the newest failure."""
    tools: int
    restarts: int
    since_ms: int
    """By the node's clock: when it entered this state."""
    verified_ms: int
    """By the node's clock: when the server last listed its tools. 0: never."""


class ServerShown(ServerBody):
    """A server: its record with secrets masked and when it was last changed, how it fares here (null: not
    known yet), and on nodes; and the login by which the gateway uses it (null: none).
    """

    revision: Revision
    updated_at_ms: int
    health: ServerHealth | None
    nodes: list[ServerOnNode]
    login: Login | None


class TaskShown(TaskBody):
    """A task."""

    revision: Revision


class ProfileShown(ProfileBody):
    """A profile."""

    revision: Revision


class PinShown(PinBody):
    """The approved definitions of a server, and its tools that wait for approval: changed and new ones."""

    revision: Revision
    waiting: list[str]


Digest = Annotated[
    str,
    Field(
        description="Of the change log up to `revision`: another one there is another history; see `watch`."
    ),
]
NextCursor = Annotated[str | None, Field(description="Where the next page begins; null: there is none.")]

ID: Final = Field(description="Its name. May be left out where the path has it.")
_CHANGED: Final = Field(
    description="What is stored here stays as long as `tools` approves of the same definition. A tool that "
    "is named with null is approved of as it is in `tools`."
)
Ignored = Annotated[Any, Field(description="Ignored: so that what was read can be sent back as it is.")]
JsonTexts = Annotated[
    dict[str, JsonValue],
    Field(description="As of a task; a value that is not text is stored as its JSON text."),
]

ServerSent = create_model(
    "ServerSent",
    __base__=ServerBody,
    __doc__="A server to be stored.",
    server_id=(Annotated[ServerId | None, ID], None),
    revision=(Ignored, None),
    updated_at_ms=(Ignored, None),
    health=(Ignored, None),
    nodes=(Ignored, None),
    login=(Ignored, None),
)
TaskSent = create_model(
    "TaskSent",
    __base__=TaskBody,
    __doc__="A task to be stored.",
    task_id=(Annotated[Name | None, ID], None),
    config=(JsonTexts, {}),
    revision=(Ignored, None),
)
ProfileSent = create_model(
    "ProfileSent",
    __base__=ProfileBody,
    __doc__="A profile to be stored.",
    profile_id=(Annotated[Name | None, ID], None),
    revision=(Ignored, None),
)
PinSent = create_model(
    "PinSent",
    __base__=PinBody,
    __doc__="The definitions of a server to be approved.",
    server_id=(Annotated[ServerId | None, ID], None),
    changed=(Annotated[dict[str, Sha256 | None], _CHANGED], {}),
    revision=(Ignored, None),
    waiting=(Ignored, None),
)


class ServerList(ResponseShape, frozen=True, kw_only=True):
    """A page of the servers, at one revision."""

    revision: Revision
    digest: Digest = ""
    servers: list[ServerShown]
    next_cursor: NextCursor


class TaskList(ResponseShape, frozen=True, kw_only=True):
    """A page of the tasks, at one revision."""

    revision: Revision
    digest: Digest = ""
    tasks: list[TaskShown]
    next_cursor: NextCursor


class ProfileList(ResponseShape, frozen=True, kw_only=True):
    """A page of the profiles, at one revision."""

    revision: Revision
    digest: Digest = ""
    profiles: list[ProfileShown]
    next_cursor: NextCursor


class PinList(ResponseShape, frozen=True, kw_only=True):
    """A page of the pins, at one revision."""

    revision: Revision
    digest: Digest = ""
    pins: list[PinShown]
    next_cursor: NextCursor


class Deleted(ResponseShape, frozen=True, kw_only=True):
    """A record that is gone."""

    revision: Revision
    """Of the registry, with the record gone."""
    warnings: list[str]
    """What now refers to nothing."""


class ServerWritten(ResponseShape, frozen=True, kw_only=True):
    """A server as it is stored now."""

    revision: Revision
    server: ServerShown
    warnings: list[str]
    """What is amiss with it, and with what names it."""


class TaskWritten(ResponseShape, frozen=True, kw_only=True):
    """A task as it is stored now."""

    revision: Revision
    task: TaskShown
    warnings: list[str]
    """What is amiss with it, and with what names it."""


class ProfileWritten(ResponseShape, frozen=True, kw_only=True):
    """A profile as it is stored now."""

    revision: Revision
    profile: ProfileShown
    warnings: list[str]
    """What is amiss with it, and with what names it."""


class PinWritten(ResponseShape, frozen=True, kw_only=True):
    """A pin as it is stored now."""

    revision: Revision
    pin: PinShown
    warnings: list[str]
    """What is amiss with it, and with what names it."""


class ToolDifferenceShown(ResponseShape, frozen=True, kw_only=True):
    """A tool of a pinned server that is not, or once was not, as it was approved."""

    tool: str
    state: Literal["changed", "new", "renamed", "missing"]
    approved: str | None
    """Digest of the approved definition: of a renamed tool, under its old name."""
    found: str | None
    """Digest of what is, or once was, in its place."""
    listed: str | None
    """Digest of what the server lists now. As approved: the tool has changed back, and waits all the same."""
    was: str | None
    """The old name of a renamed tool."""
    is_whole: bool
    """The diff shows a whole definition: nothing was approved, or what was is not kept any more."""
    diff: list[str]
    """A unified diff of both definitions as JSON, from the approved one. Empty: one of them is not kept, or
    there are too many lines: name the tool."""


class PinDiffAnswer(ResponseShape, frozen=True, kw_only=True):
    """How what a pinned server lists differs from what was approved."""

    revision: Revision
    server_id: str
    tools: list[ToolDifferenceShown]


class TrialAnswer(ResponseShape, frozen=True, kw_only=True):
    """What came of connecting to a server once, beside the connection in use."""

    ok: bool
    connect_ms: int | None
    list_ms: int | None
    era: str | None
    version: str | None
    tools: list[str]
    quarantined: dict[str, str]
    """Tool name to why its definition was refused."""
    error: str
    hint: str
    """What to do about the error."""
    stderr_tail: str


class RefreshAnswer(ResponseShape, frozen=True, kw_only=True):
    """A server after its tools were listed again."""

    server_id: str
    health: ServerHealth
    tools: list[str]
    visible: list[str]
    """Those of them that callers can see: allowed by the record and, on a pinned server, as approved."""
    quarantined: dict[str, str]
    """Tool name to why its definition was refused."""


# Logins: a code goes in, and no token comes out.


class LoginSent(StrictBody):
    """A login to be begun."""

    redirect_uri: Annotated[str, Field(max_length=200)]
    """Where the browser comes back to: `http://127.0.0.1:PORT/callback`, on the machine of who logs in."""
    shared: bool = False
    """For the gateway as a whole, which needs the role `admin`, though each principal logs in for itself."""
    scopes: list[OAuthScope] = Field(default_factory=list, max_length=64)
    """To ask for, beside those of the login before."""


class LoginFinishSent(StrictBody):
    """What the browser came back with."""

    state: Annotated[str, Field(max_length=200)]
    code: Annotated[str, Field(min_length=1, max_length=4_096)]
    iss: Annotated[str, Field(max_length=4_096)] | None = None
    """Who it says it is from."""
    shared: bool = False
    """As it was begun."""


class ClientShown(ResponseShape, frozen=True, kw_only=True):
    """A client's metadata (RFC 7591), under the URL that is its id."""

    client_id: str
    client_name: str
    client_uri: str
    application_type: str
    redirect_uris: list[str]
    grant_types: list[str]
    response_types: list[str]
    token_endpoint_auth_method: str


class LoginBegun(ResponseShape, frozen=True, kw_only=True):
    """A login that waits for somebody to agree."""

    authorization_url: str
    """To be opened in a browser."""
    state: str
    """By which the answer is recognised."""
    expires_in_s: int


class LoginFinished(ResponseShape, frozen=True, kw_only=True):
    """The gateway may use the server."""

    server_id: str
    login: Login


class LoginEnded(ResponseShape, frozen=True, kw_only=True):
    """The gateway may use the server no more."""

    server_id: str
    revoked: bool
    """Whether the authorization server says that it took the token back. Else it may still be good."""


# Keys: made here, shown once.


class KeySent(StrictBody):
    """A key to be made. Its secret is chosen by the gateway."""

    key_id: Name
    """The principal's name in audit and logs."""
    role: Role
    """At most the role of who makes it."""
    ceiling: CeilingBody = CeilingBody()
    """The most it may ever reach; within the ceiling of who makes it."""
    default_task: Name | None = None
    """The task of a request that names none."""
    expires_at_s: UnixTime | None = None
    """Unix time after which it proves nothing."""
    budgets: QuotasBody | None = None
    """What all who use it may use over time, together."""
    integrations: IntegrationState = "on"
    """What its callers have of each server before they choose for themselves: `on` all its tools, `read_only`
    those marked as read-only, `off` nothing."""


class KeyShown(KeySent):
    """A key without its secret, which nobody can show again."""

    revision: Revision


class KeyMade(KeyShown):
    """A new key. This answer is the only place its secret ever stands in."""

    secret: str
    warnings: list[str]


class KeyList(ResponseShape, frozen=True, kw_only=True):
    """A page of the keys, at one revision."""

    revision: Revision
    digest: Digest = ""
    keys: list[KeyShown]
    next_cursor: NextCursor


class ReloadAnswer(ResponseShape, frozen=True, kw_only=True):
    """What the directory of server files did to the registry, or, in a dry run, would do."""

    revision: Revision
    applied: list[str]
    """`+` added, `~` changed, `-` removed, each with its file."""
    kept: list[str]
    """Servers that stay as they were last good, because their file is wrong now."""
    warnings: list[str]
    problems: list[str]
    """What is wrong with files, each with its place."""
