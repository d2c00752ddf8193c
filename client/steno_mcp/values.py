"""The arguments and the results of the tools, from which their JSON schemas are made."""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from steno.parts import HANDLE_PATTERN
from steno_mcp import limits
from steno_protocol.limits import (
    COUNT_MAX,
    DMAIL_CHARS_MAX,
    KEY_CHARS_MAX,
    LABELS_MAX,
    SESSION_ID_CHARS_MAX,
    TITLE_CHARS_MAX,
    WHY_CHARS_MAX,
)

SessionId = Annotated[
    str,
    Meta(
        description="Id of a session, segments joined by '/'.",
        min_length=1,
        max_length=SESSION_ID_CHARS_MAX,
    ),
]
PositionText = Annotated[str, Meta(description="A position, generation:line, such as 0:12.")]
Expected = Annotated[
    str,
    Meta(
        description="The head that you have seen. If the session has another one, nothing is"
        " changed, and the error names the new head: read what is new, then decide again."
    ),
]
Key = Annotated[
    str,
    Meta(
        description="Idempotency key: a call that is repeated with its key is applied once.",
        min_length=1,
        max_length=KEY_CHARS_MAX,
    ),
]
Why = Annotated[
    str, Meta(description="The reason, kept in the timeline.", max_length=WHY_CHARS_MAX)
]
CheckpointId = (
    Annotated[int, Meta(description="Id of a checkpoint.", ge=0, le=COUNT_MAX)]
    | Annotated[str, Meta(description="Handle from create_checkpoint.", pattern=HANDLE_PATTERN)]
)
Generation = Annotated[
    int, Meta(description="Number of a past generation: a revert from 0:12 leaves 0.", ge=0,
              le=COUNT_MAX),
]  # fmt: skip
Prefix = Annotated[
    str,
    Meta(description="Only sessions whose id begins with this.", max_length=SESSION_ID_CHARS_MAX),
]


Repairs = Annotated[
    list[str],
    Meta(description="What the daemon changed when it opened the files after a crash or half a"
         " line of another program, and where the bytes are that it cut off."),
]  # fmt: skip


class Arguments(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of any tool."""


class ListSessions(Arguments, frozen=True, kw_only=True):
    """Which sessions are listed."""

    prefix: Prefix = ""
    title: Annotated[
        str,
        Meta(description="Only titles that contain this, ignoring case.",
             max_length=TITLE_CHARS_MAX),
    ] = ""  # fmt: skip
    labels: Annotated[
        list[str], Meta(description="Only sessions with all of these.", max_length=LABELS_MAX)
    ] = []
    archived: Annotated[
        Literal["no", "only", "all"], Meta(description="Whether archived sessions are listed.")
    ] = "no"
    after: Annotated[
        str, Meta(description="`next` of the page before.", max_length=SESSION_ID_CHARS_MAX)
    ] = ""
    limit: Annotated[
        int, Meta(description="Sessions of a page.", ge=1, le=limits.LIST_PAGE_MAX)
    ] = limits.LIST_PAGE


class OneSession(Arguments, frozen=True, kw_only=True):
    """A session."""

    session: SessionId


class ReadSession(OneSession, frozen=True, kw_only=True):
    """Which records are read."""

    after: (
        Annotated[
            str,
            Meta(
                description="Where to begin: a position, `next` of an earlier answer, or 'start'."
                " Without it, the last records are read."
            ),
        ]
        | None
    ) = None
    limit: Annotated[
        int, Meta(description="Records of the answer at most.", ge=1, le=limits.RECORDS_MAX)
    ] = limits.RECORDS


class SearchSessions(Arguments, frozen=True, kw_only=True):
    """What is searched for, and where."""

    text: Annotated[
        str,
        Meta(
            description="The text to find, as it is: no regular expression.",
            min_length=1,
            max_length=limits.QUERY_CHARS_MAX,
        ),
    ]
    prefix: Prefix = ""
    role: Annotated[str, Meta(description="Only in messages of this role.")] | None = None
    ignore_case: bool = True
    cursor: Annotated[str, Meta(description="`next` of the answer before.")] | None = None
    limit: Annotated[int, Meta(description="Hits of the answer.", ge=1, le=limits.HITS_MAX)] = (
        limits.HITS
    )


class Change(OneSession, frozen=True, kw_only=True):
    """A session, the state in which it is changed, and the key of the change."""

    expect: Expected | None = None
    key: Key | None = None


class AppendMessages(Change, frozen=True, kw_only=True):
    """Messages, and the session that they are appended to."""

    messages: Annotated[
        list[dict[str, Any]],
        Meta(
            description="Messages, each an object with `role` (user, assistant, system, tool) and"
            " `content` (a text, or a list of parts). They are stored as one atomic batch.",
            min_length=1,
            max_length=limits.MESSAGES_MAX,
        ),
    ]
    create: Annotated[
        bool, Meta(description="Create the session if there is none, but not in a mount.")
    ] = True


class CreateCheckpoint(Change, frozen=True, kw_only=True):
    """A checkpoint at the end of a session."""

    add_user_message: Annotated[
        bool, Meta(description="Append a message, too, that shows the checkpoint to the model.")
    ] = False


class RevertSession(Change, frozen=True, kw_only=True):
    """The checkpoint that a session goes back to."""

    checkpoint: CheckpointId
    why: Why | None = None


class RestoreGeneration(Change, frozen=True, kw_only=True):
    """The past generation that a session returns to."""

    generation: Generation
    why: Why | None = None


class SendDmail(Change, frozen=True, kw_only=True):
    """A message to an earlier checkpoint."""

    checkpoint: CheckpointId
    message: Annotated[
        str,
        Meta(description="The text of the D-Mail.", min_length=1, max_length=DMAIL_CHARS_MAX),
    ]
    replaces: Annotated[str, Meta(description="Id of the pending D-Mail to replace.")] | None = None


class DeliverDmail(Change, frozen=True, kw_only=True):
    """A pending D-Mail."""

    mail_id: Annotated[str, Meta(description="Id of the pending D-Mail.")]
    add_user_message: Annotated[bool, Meta(description="Show the new checkpoint to the model.")] = (
        False
    )


class ForkSession(OneSession, frozen=True, kw_only=True):
    """The new session, and the instant of the old one; at most one of `at` and `checkpoint`."""

    new_session: SessionId
    at: (
        Annotated[str, Meta(description="A position of any generation; without it, now.")] | None
    ) = None
    checkpoint: CheckpointId | None = None
    title: (
        Annotated[str, Meta(description="Title of the new one.", max_length=TITLE_CHARS_MAX)] | None
    ) = None
    key: Key | None = None


class SessionEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A session of a list; `modified_at` is Unix time in seconds."""

    session: str
    title: str
    labels: list[str]
    archived: bool
    bytes: int
    modified_at: float
    forked_from: str | None
    live: bool


class SessionPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the list; `next` is null on the last one."""

    sessions: list[SessionEntry]
    next: str | None


class StreamEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A stream of a session."""

    name: str
    head: PositionText
    records: int
    bytes: int


class MailEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A pending D-Mail."""

    mail_id: str
    checkpoint: int
    message: str
    by: str | None
    at: float


class OriginEntry(msgspec.Struct, frozen=True, kw_only=True):
    """The program and the file that a session comes from; `resume` is a line for a shell."""

    program: str
    path: str | None
    id: str | None
    work_dir: str | None
    branch: str | None
    model: str | None
    resume: str | None


class SessionState(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers of a session at its head, its streams, its pending D-Mail and its origin."""

    session: str
    head: PositionText
    bytes: int
    token_count: int
    next_checkpoint: Annotated[
        int, Meta(description="Id of the next checkpoint; existing ones have smaller ids.")
    ]
    title: str
    labels: list[str]
    archived: bool
    forked_from: str | None
    pending_dmail: MailEntry | None
    streams: list[StreamEntry]
    origin: Annotated[
        OriginEntry | None, Meta(description="The program of an imported session; null for others.")
    ] = None
    repairs: Repairs = msgspec.field(default_factory=list[str])


class RecordEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A record and its position; `cut` is true if texts or all but its role were left out."""

    cursor: PositionText
    record: dict[str, Any]
    cut: bool


class RecordPage(msgspec.Struct, frozen=True, kw_only=True):
    """Records of one generation; a read after `next` continues, also when `more` is false."""

    session: str
    head: PositionText
    records: list[RecordEntry]
    next: PositionText
    more: bool
    damaged: int


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A line of text that contains the searched text."""

    session: str
    cursor: PositionText
    role: str
    line: str


class Hits(msgspec.Struct, frozen=True, kw_only=True):
    """Hits; `next` continues the search, and is null at its end."""

    hits: list[Hit]
    next: str | None


class Changed(msgspec.Struct, frozen=True, kw_only=True):
    """A change that is on the disk; `duplicate` is true if an earlier call had made it."""

    session: str
    head: PositionText
    first: PositionText
    last: PositionText
    duplicate: bool
    key: str
    checkpoint: int | None = None
    handle: Annotated[
        str | None,
        Meta(description="Names the checkpoint beyond doubt: a call with it is refused if another"
             " checkpoint has the id by then."),
    ] = None  # fmt: skip
    kept_generation: Annotated[
        int | None, Meta(description="The generation that a rewrite left behind.")
    ] = None
    mail_id: str | None = None
    repairs: Repairs = msgspec.field(default_factory=list[str])


class Forked(msgspec.Struct, frozen=True, kw_only=True):
    """The new session."""

    session: str
    head: PositionText
    title: str
    forked_from: str | None


_REFERENCE: Final = "#/$defs/{name}"


def schema_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """The JSON schema of a type: an object at its root, as MCP demands."""
    _, parts = msgspec.json.schema_components([kind], ref_template=_REFERENCE)
    root = dict(parts.pop(kind.__name__))
    if parts:
        root["$defs"] = parts
    return root
