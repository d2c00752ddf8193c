"""Commands of clients, tagged by the field `command`.

Each command is a frozen struct, and a request contains the JSON of one. The records of an append
travel as lines of their own, so they are not encoded twice. PROTOCOL.md describes each command and
its fields (sections 7 and 8); a test compares the two.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

import msgspec

from steno_protocol import limits

PositionText = Annotated[str, msgspec.Meta(pattern=r"^(0|[1-9][0-9]{0,8}):(0|[1-9][0-9]{0,14})\Z")]
"""A position as text, `generation:line`."""

Durability = Literal["synced", "written", "replicated"]
"""State of the bytes at the reply. `synced`: on the disk. `written`: in the page cache, synced
within a second. `replicated`: on a majority of the cluster's servers."""

Key = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")]
"""The caller's idempotency key."""

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.@:/+-]{1,64}\Z")]
"""A client's name."""

Why = Annotated[str, msgspec.Meta(max_length=limits.WHY_CHARS_MAX)]
"""A reason, kept in the timeline."""

StreamName = Annotated[str, msgspec.Meta(pattern=r"^(?!(?:context|wire)\Z)[a-z0-9._-]{1,64}\Z")]
"""A stream's name."""

FileName = Annotated[
    str, msgspec.Meta(pattern=r"^(?:context|wire|stream-(?!(?:context|wire)\Z)[a-z0-9._-]{1,64})\Z")
]
"""A session's file that can be followed, without its ending: `context`, `wire` or a stream."""

Title = Annotated[str, msgspec.Meta(max_length=limits.TITLE_CHARS_MAX)]
"""A session's title for people."""

Label = Annotated[str, msgspec.Meta(pattern=r"^[^\x00-\x1f\x7f-\x9f,]{1,64}\Z")]
"""A word by which `list` filters sessions."""

Count = Annotated[int, msgspec.Meta(ge=0, le=limits.COUNT_MAX)]
"""A number that is exact in every language that has JSON."""


def _tag(name: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()


class Command(
    msgspec.Struct,
    frozen=True,
    kw_only=True,
    forbid_unknown_fields=True,
    omit_defaults=True,
    tag_field="command",
    tag=_tag,
    gc=False,  # text and numbers cannot form a cycle, and creation is twice as fast
):
    """Base of all commands.

    Attributes:
        deadline_ms: time on the daemon's clock (see `hello`) after which the command is refused
            with `expired`. None: no deadline.
    """

    deadline_ms: Count | None = None


class SessionCommand(Command, frozen=True, kw_only=True):
    """Base of the commands about one session."""

    session: str


class Mutation(SessionCommand, frozen=True, kw_only=True):
    """Base of the commands that change a session.

    Attributes:
        key: the idempotency key; a command with the same key is answered and not applied again.
        repeat: the command may have been applied before, so its key is looked up in the files.
        expect: the head that the caller expects; with another head the reply is `conflict`.
        durability: state of the bytes when the reply is sent.
        by: the author, stored in the line as `_by`; of a client on another machine the daemon
            stores the name of its key.
        claim: the name that the author claims, stored as `_claim` beside `_by`; of a client on
            another machine the daemon stores its `by`.
    """

    key: Key
    repeat: bool = False
    expect: PositionText | None = None
    durability: Durability = "synced"
    by: Name | None = None
    claim: Name | None = None


class Hello(Command, frozen=True, kw_only=True):
    """Ask for the daemon's identity and limits; the first request on a connection."""

    protocol: int
    name: Name | None = None
    pid: Count | None = None


class Status(Command, frozen=True, kw_only=True):
    """Ask for the daemon's state."""


class Stats(Command, frozen=True, kw_only=True):
    """Ask for the daemon's counters since its start."""

    sessions: bool = False


class Configuration(Command, frozen=True, kw_only=True):
    """Ask for the options in force and the source of each value."""


class List(Command, frozen=True, kw_only=True):
    """List sessions, ordered by id."""

    prefix: str = ""
    after: str = ""
    archived: Literal["no", "only", "all"] = "all"
    labels: tuple[Label, ...] = ()
    title: str = ""
    records: bool = False
    limit: Annotated[int, msgspec.Meta(ge=1, le=limits.LIST_SESSIONS_MAX)] = (
        limits.LIST_PAGE_SESSIONS_MAX
    )


class Stat(SessionCommand, frozen=True, kw_only=True):
    """Ask for one session's numbers, without opening it for writing."""


class Open(SessionCommand, frozen=True, kw_only=True):
    """Open the session for writing; create it unless `create` is false."""

    create: bool = True
    exclusive: bool = False
    stamp: bool = True
    by: Name | None = None
    claim: Name | None = None
    key: Key | None = None


class Append(Mutation, frozen=True, kw_only=True):
    """Append the records of the request as one atomic batch."""

    after_key: Key | None = None


class Checkpoint(Mutation, frozen=True, kw_only=True):
    """Append a checkpoint with the next id; `add_user_message` shows it to the model."""

    add_user_message: bool = False


class RevertTo(Mutation, frozen=True, kw_only=True):
    """Drop a checkpoint, or the line at a position, and everything after it."""

    checkpoint_id: int | None = None
    position: PositionText | None = None
    checkpoint_at: PositionText | None = None
    incarnation: str | None = None
    drop_damaged: bool = False
    why: Why | None = None


class Clear(Mutation, frozen=True, kw_only=True):
    """Drop everything."""

    why: Why | None = None


class UpdateTokenCount(Mutation, frozen=True, kw_only=True):
    """Append a token count."""

    token_count: Count


class WriteSystemPrompt(Mutation, frozen=True, kw_only=True):
    """Put the system prompt first; on a session with content this is a rewrite."""

    prompt: str


class RestoreGeneration(Mutation, frozen=True, kw_only=True):
    """Make a past generation the present one again; the present one becomes a past one."""

    generation: Annotated[int, msgspec.Meta(ge=0)]
    why: Why | None = None


class CompactBegin(SessionCommand, frozen=True, kw_only=True):
    """Begin a compaction: ask for the lines to summarise, and take the lease.

    The reply names the lines that the summary replaces; `read` returns them. Others may write
    meanwhile. The same command with the same lease renews the lease.
    """

    lease: Key
    preserve: Annotated[int, msgspec.Meta(le=limits.PRESERVED_MESSAGES_MAX)] = 2
    lease_ms: Annotated[int, msgspec.Meta(ge=1, le=limits.COMPACTION_LEASE_MS_MAX)] = (
        limits.COMPACTION_LEASE_MS
    )
    by: Name | None = None
    claim: Name | None = None


class CompactCommit(Mutation, frozen=True, kw_only=True):
    """Replace the summarised lines with the summary, the one record of the request."""

    lease: Key
    cut: PositionText
    at: PositionText
    checkpoint_id: Count
    incarnation: str | None = None
    summary_tokens: Count | None = None
    why: Why | None = None


class CompactAbort(SessionCommand, frozen=True, kw_only=True):
    """Release the lease of a compaction, if it is under way."""

    lease: Key


class SendDmail(Mutation, frozen=True, kw_only=True):
    """Send a message back to a checkpoint; it is pending until a client delivers it.

    The command's key is the mail's id.
    """

    checkpoint_id: int
    checkpoint_at: PositionText | None = None
    incarnation: str | None = None
    message: Annotated[str, msgspec.Meta(min_length=1, max_length=limits.DMAIL_CHARS_MAX)]
    replaces: Key | None = None


class PendingDmail(SessionCommand, frozen=True, kw_only=True):
    """Ask for the pending D-Mail."""


class DeliverDmail(Mutation, frozen=True, kw_only=True):
    """Revert to the mail's checkpoint, set a new one, and append the message: one rewrite."""

    mail_id: Key
    add_user_message: bool = False


class Fork(SessionCommand, frozen=True, kw_only=True):
    """Create a session from this one at an instant; context and wire file are cut at the same one.

    At most one of `at`, `checkpoint_id`, `turn` and `undo` is given; the default is now.
    """

    new_session: str
    key: Key
    at: PositionText | None = None
    checkpoint_id: int | None = None
    checkpoint_at: PositionText | None = None
    incarnation: str | None = None
    turn: Annotated[int, msgspec.Meta(ge=-1, le=limits.COUNT_MAX)] | None = None
    undo: Annotated[int, msgspec.Meta(ge=1, le=limits.COUNT_MAX)] | None = None
    title: Title | None = None
    by: Name | None = None
    claim: Name | None = None


class Describe(SessionCommand, frozen=True, kw_only=True):
    """Set a session's metadata; a field that is None stays as it is."""

    title: Title | None = None
    labels: Annotated[tuple[Label, ...], msgspec.Meta(max_length=limits.LABELS_MAX)] | None = None
    archived: bool | None = None
    replace_damaged: bool = False


class Delete(SessionCommand, frozen=True, kw_only=True):
    """Move a session and the sessions below it to the trash, where they expire."""

    key: Key
    by: Name | None = None


class Undelete(SessionCommand, frozen=True, kw_only=True):
    """Restore a deleted session, and the sessions deleted with it, from the trash."""

    key: Key
    trash: str | None = None


class TakeIn(SessionCommand, frozen=True, kw_only=True):
    """Make a folder that the client prepared a session, by one move."""

    key: Key


class Trash(Command, frozen=True, kw_only=True):
    """List the deleted sessions in the trash, the latest deletion first."""

    prefix: str = ""
    after: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=limits.LIST_SESSIONS_MAX)] = 1000


class Rename(SessionCommand, frozen=True, kw_only=True):
    """Give a session, and the sessions below it, another id in the same tree."""

    new_session: str
    key: Key
    by: Name | None = None
    claim: Name | None = None


class Verify(SessionCommand, frozen=True, kw_only=True):
    """Check all files of a session for damage; nothing is opened for writing or repaired."""


class Repair(Mutation, frozen=True, kw_only=True):
    """Repair a session's context in one rewrite: separate welded records, leave out damage.

    The repair covers the first `bytes` bytes, if they are still those that `verify` checked; later
    lines are kept as they are.
    """

    generation: Annotated[int, msgspec.Meta(ge=0)]
    bytes: Count
    crc: Annotated[int, msgspec.Meta(ge=0, le=limits.CRC_MAX)]
    why: Why | None = None


class Read(SessionCommand, frozen=True, kw_only=True):
    """Read whole lines from a position on, undecoded."""

    after: PositionText | None = None
    until: PositionText | None = None
    bytes_max: Annotated[int, msgspec.Meta(ge=1, le=limits.SUBSCRIPTION_WINDOW_BYTES_MAX)] = (
        limits.BLOCK_BYTES
    )
    offset: Count | None = None
    opened: str | None = None


class AppendWire(Mutation, frozen=True, kw_only=True):
    """Append the wire events of the request as one atomic batch of `wire.jsonl`.

    `expect` is a position of the wire file. With durability `written`, the default, the bytes are
    synced within a second, or within 50 ms while the file has subscribers.
    """

    durability: Durability = "written"
    header: dict[str, Any] | None = None


class ReadWire(Read, frozen=True, kw_only=True):
    """Read whole lines of `wire.jsonl`; all its positions have generation 0."""


class AppendStream(Mutation, frozen=True, kw_only=True):
    """Append the records of the request, any JSON objects, as one atomic batch of a stream.

    `expect` is a position of the stream. The first append creates the stream.
    """

    stream: StreamName


class ReadStream(Read, frozen=True, kw_only=True):
    """Read whole lines of a stream; one that does not exist reads as an empty one."""

    stream: StreamName
    last: Annotated[int, msgspec.Meta(ge=0, le=limits.COUNT_MAX)] | None = None


class Streams(SessionCommand, frozen=True, kw_only=True):
    """List a session's streams, ordered by name."""

    stream: StreamName | None = None


class DeleteStream(SessionCommand, frozen=True, kw_only=True):
    """Delete a stream; its file keeps its lines under another name until it expires."""

    stream: StreamName
    key: Key
    expect: PositionText | None = None
    by: Name | None = None
    successor: StreamName | None = None


class Timeline(SessionCommand, frozen=True, kw_only=True):
    """Ask for the session's timeline."""


class Subscribe(SessionCommand, frozen=True, kw_only=True):
    """Follow a session: first the backlog after `after`, then each commit as it becomes durable."""

    subscription: Key
    file: FileName = "context"
    after: str = "start"
    window: Annotated[int, msgspec.Meta(ge=1024, le=limits.SUBSCRIPTION_WINDOW_BYTES_MAX)] = (
        limits.SUBSCRIPTION_WINDOW_BYTES
    )
    incarnation: str | None = None
    pace_ms: Annotated[int, msgspec.Meta(ge=0, le=limits.SUBSCRIPTION_PACE_MS_MAX)] = 0


class Grant(Command, frozen=True, kw_only=True):
    """Grant credit for `bytes` more; this is the only command without a reply."""

    subscription: Key
    bytes: Annotated[int, msgspec.Meta(ge=1, le=limits.SUBSCRIPTION_WINDOW_BYTES_MAX)]


class Unsubscribe(Command, frozen=True, kw_only=True):
    """End a subscription."""

    subscription: Key


class Gc(Command, frozen=True, kw_only=True):
    """Remove past generations, expired trash and what the rules of retention name.

    Only the kinds that the fields name are removed.
    """

    prefix: str = ""
    dry_run: bool = False
    generations_older_s: Count | None = None
    keep_generations: Annotated[int, msgspec.Meta(ge=1, le=limits.COUNT_MAX)] | None = None
    with_lineage: bool = False
    trash: bool = False
    retention: bool = False


class Clients(Command, frozen=True, kw_only=True):
    """List the connected clients and their subscriptions."""

    session: str | None = None


class Cluster(Command, frozen=True, kw_only=True):
    """Report the cluster of the daemon: its hosts, its journal's servers, and who owns sessions."""

    prefix: str = ""
    after: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=0, le=limits.LIST_SESSIONS_MAX)] = 0


class HandOver(SessionCommand, frozen=True, kw_only=True):
    """Give a session to another daemon of the cluster; that has its files before the reply."""

    host: str


class Drain(Command, frozen=True, kw_only=True):
    """Refuse further commands, write and sync the queued ones, and exit."""


AnyCommand = (
    Hello | Status | Stats | Configuration | List | Stat | Open | Append | Checkpoint | RevertTo
    | Clear | UpdateTokenCount | WriteSystemPrompt | RestoreGeneration | Read | Timeline
    | Verify | Repair
    | AppendWire | ReadWire
    | AppendStream | ReadStream | Streams | DeleteStream
    | CompactBegin | CompactCommit | CompactAbort
    | SendDmail | PendingDmail | DeliverDmail
    | Fork | Describe | Delete | Undelete | TakeIn | Trash | Rename
    | Subscribe | Grant | Unsubscribe | Gc | Clients | Cluster | HandOver | Drain
)  # fmt: skip

WholeCommand = (
    Stat | Open | Describe | Fork | Delete | Undelete | TakeIn | Rename | Verify | Streams
    | DeleteStream
)  # fmt: skip
"""Commands about a session as a whole."""

SignedCommand = Mutation | Open | CompactBegin | Fork | Rename
"""Commands with an author, which the files record."""

SlowCommand = (
    WholeCommand
    | List | Trash | Read | ReadWire | ReadStream | Timeline | Subscribe | CompactBegin
    | PendingDmail | Gc | Cluster | HandOver
)  # fmt: skip
"""Commands that read files before the reply; their number at a time is bounded."""

COMMANDS: Final[dict[str, type[Command]]] = {
    str(cls.__struct_config__.tag): cls for cls in AnyCommand.__args__
}
"""Every command by its name on the wire."""

COMMAND_NAMES: Final[dict[type[Command], str]] = {cls: name for name, cls in COMMANDS.items()}
"""The name of every command on the wire."""

_decode: Callable[[bytes], AnyCommand] = msgspec.json.Decoder(AnyCommand).decode
_encode = msgspec.json.Encoder().encode


def decode_command(header: bytes) -> AnyCommand:
    """Decode a command; raises msgspec's errors, which `messages` turns into replies."""
    return _decode(header)


def encode_command(command: Command) -> bytes:
    """Encode a command."""
    return _encode(command)


def command_name(command: Command | type[Command]) -> str:
    """Return the name of a command on the wire."""
    return COMMAND_NAMES[command if isinstance(command, type) else type(command)]
