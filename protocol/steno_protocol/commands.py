"""Commands of clients, tagged by the field `command`.

Each command is a frozen struct, and a request contains the JSON of one. The records of an append
travel as lines of their own, so they are not encoded twice. PROTOCOL.md describes each command; a
test compares the two.
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
    """Ask for the daemon's counters since its start.

    Attributes:
        sessions: the reply has the counters of each open session, too.
    """

    sessions: bool = False


class Configuration(Command, frozen=True, kw_only=True):
    """Ask for the options in force and the source of each value."""


class List(Command, frozen=True, kw_only=True):
    """List sessions, ordered by id.

    Attributes:
        prefix: only ids that begin with this.
        after: only ids after this one.
        archived: leave archived sessions out (`no`), list only those (`only`), or list all.
        labels: only sessions that have all of these.
        title: only sessions whose title contains this, whatever its case.
        records: count the records of each session, where few bytes have to be read for that.
        limit: the number of sessions in the reply.
    """

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
    """Open the session for writing; create it unless `create` is false.

    Attributes:
        create: create the session if it does not exist.
        exclusive: refuse with `exists` if it exists.
        stamp: whether lines get `_id` and `_by`; fixed when the daemon first opens the session.
        by: the client that creates it.
        claim: the name that it claims, as in a mutation.
        key: the idempotency key of this call: a retry of the creation gets `created` again.
    """

    create: bool = True
    exclusive: bool = False
    stamp: bool = True
    by: Name | None = None
    claim: Name | None = None
    key: Key | None = None


class Append(Mutation, frozen=True, kw_only=True):
    """Append the records of the request as one atomic batch.

    Attributes:
        after_key: the key of a mutation that must be applied before; otherwise the reply is
            `conflict`. A series in flight stays in order, and ends at its first failure.
    """

    after_key: Key | None = None


class Checkpoint(Mutation, frozen=True, kw_only=True):
    """Append a checkpoint with the next id; `add_user_message` shows it to the model."""

    add_user_message: bool = False


class RevertTo(Mutation, frozen=True, kw_only=True):
    """Drop a checkpoint, or the line at a position, and everything after it.

    Attributes:
        checkpoint_id: the checkpoint; None with a position.
        position: a line of the present generation, the first one that is dropped.
        checkpoint_at: the position at which its line was created, from the ack of its creation;
            the command is refused if another line has the id now.
        incarnation: the incarnation that the position belongs to, from the same ack.
        drop_damaged: also drop damaged lines before it, as kimi-cli does.
        why: the reason, for the timeline.
    """

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

    Attributes:
        lease: the caller's name for this compaction.
        preserve: how many of the last user and assistant messages stay as they are.
        lease_ms: the time after which the lease expires unless it is renewed.
        by: the compactor.
        claim: the name that it claims, as in a mutation.
    """

    lease: Key
    preserve: Annotated[int, msgspec.Meta(le=limits.PRESERVED_MESSAGES_MAX)] = 2
    lease_ms: Annotated[int, msgspec.Meta(ge=1, le=limits.COMPACTION_LEASE_MS_MAX)] = (
        limits.COMPACTION_LEASE_MS
    )
    by: Name | None = None
    claim: Name | None = None


class CompactCommit(Mutation, frozen=True, kw_only=True):
    """Replace the summarised lines with the summary, the one record of the request.

    Attributes:
        lease: the name given to `compact_begin`.
        cut: the end of the lines that the summary replaces, from the reply to `compact_begin` or
            by the caller's own rule.
        at: the head at `compact_begin`; later lines are kept.
        checkpoint_id: the id that `compact_begin` reserved.
        incarnation: from the reply to `compact_begin`; a session recreated since is not compacted.
        summary_tokens: the summary's size as reported by the model; None for an estimate from its
            text.
        why: the reason, for the timeline.
    """

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

    Attributes:
        checkpoint_id: the checkpoint that the delivery reverts to.
        checkpoint_at: as in `revert_to`.
        incarnation: as in `revert_to`.
        message: the text.
        replaces: the id of the pending mail that this one replaces.
    """

    checkpoint_id: int
    checkpoint_at: PositionText | None = None
    incarnation: str | None = None
    message: Annotated[str, msgspec.Meta(min_length=1, max_length=limits.DMAIL_CHARS_MAX)]
    replaces: Key | None = None


class PendingDmail(SessionCommand, frozen=True, kw_only=True):
    """Ask for the pending D-Mail."""


class DeliverDmail(Mutation, frozen=True, kw_only=True):
    """Revert to the mail's checkpoint, set a new one, and append the message: one rewrite.

    Attributes:
        mail_id: the id of the mail; another one is never delivered.
        add_user_message: show the new checkpoint to the model.
    """

    mail_id: Key
    add_user_message: bool = False


class Fork(SessionCommand, frozen=True, kw_only=True):
    """Create a session from this one at an instant; context and wire file are cut at the same one.

    At most one of `at`, `checkpoint_id`, `turn` and `undo` is given; the default is now.

    Attributes:
        new_session: the id of the new session.
        key: the idempotency key; a repeat gets the first answer.
        at: a position of any generation.
        checkpoint_id: before this checkpoint, as after a revert to it.
        checkpoint_at: as in `revert_to`.
        incarnation: as in `revert_to`.
        turn: after this turn, counted from 0; -1 is before the first.
        undo: before this many of the last turns.
        title: the title of the new session; None derives it from the source's.
        by: the client that forks.
        claim: the name that it claims, as in a mutation.
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
    """Set a session's metadata; a field that is None stays as it is.

    Attributes:
        title: its title; the empty text removes it.
        labels: all of its labels.
        archived: whether lists leave it out by default.
        replace_damaged: keep a damaged `state.json` under another name and begin a new one;
            otherwise the command is refused.
    """

    title: Title | None = None
    labels: Annotated[tuple[Label, ...], msgspec.Meta(max_length=limits.LABELS_MAX)] | None = None
    archived: bool | None = None
    replace_damaged: bool = False


class Delete(SessionCommand, frozen=True, kw_only=True):
    """Move a session and the sessions below it to the trash, where they expire.

    Attributes:
        key: the idempotency key; a repeat gets the first answer, even if a session with the same
            id was created since.
        by: the client that deletes.
    """

    key: Key
    by: Name | None = None


class Undelete(SessionCommand, frozen=True, kw_only=True):
    """Restore a deleted session, and the sessions deleted with it, from the trash.

    Attributes:
        key: the idempotency key; a repeat gets the first answer.
        trash: the name of its folder in the trash; None is the latest deletion of this id.
    """

    key: Key
    trash: str | None = None


class TakeIn(SessionCommand, frozen=True, kw_only=True):
    """Make a folder that the client prepared a session, by one move.

    Attributes:
        key: the idempotency key, which also names the place of the prepared folder; a repeat gets
            the session as it is then.
    """

    key: Key


class Trash(Command, frozen=True, kw_only=True):
    """List the deleted sessions in the trash, the latest deletion first.

    Attributes:
        prefix: only ids that begin with this.
        after: only entries after this one, given by the path of its folder.
        limit: the number of entries in the reply.
    """

    prefix: str = ""
    after: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=limits.LIST_SESSIONS_MAX)] = 1000


class Rename(SessionCommand, frozen=True, kw_only=True):
    """Give a session, and the sessions below it, another id in the same tree.

    Attributes:
        new_session: the new id.
        key: the idempotency key; a repeat gets the first answer, even if a session with the old id
            was created since.
        by: the client that renames.
        claim: the name that it claims, as in a mutation.
    """

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

    Attributes:
        generation: the generation that was verified.
        bytes: the number of its bytes that were verified.
        crc: their CRC-32.
        why: the reason, for the timeline.
    """

    generation: Annotated[int, msgspec.Meta(ge=0)]
    bytes: Count
    crc: Annotated[int, msgspec.Meta(ge=0, le=limits.CRC_MAX)]
    why: Why | None = None


class Read(SessionCommand, frozen=True, kw_only=True):
    """Read whole lines from a position on, undecoded.

    Attributes:
        after: the position to begin at; None is the start of the present generation.
        until: the position to end at; None is the end.
        bytes_max: bytes of lines in the reply; one line is always returned, however long.
        offset: the `offset` of an earlier reply that ended at `after`, which saves the daemon
            counting lines; an offset inside a line is refused.
        opened: identity of a file that the reader has opened: if it contains the lines, the reply
            has no lines, and its `source` has the readable length.
    """

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

    Attributes:
        header: further fields of the header line, if this append creates the file.
    """

    durability: Durability = "written"
    header: dict[str, Any] | None = None


class ReadWire(Read, frozen=True, kw_only=True):
    """Read whole lines of `wire.jsonl`; all its positions have generation 0."""


class AppendStream(Mutation, frozen=True, kw_only=True):
    """Append the records of the request, any JSON objects, as one atomic batch of a stream.

    `expect` is a position of the stream. The first append creates the stream.

    Attributes:
        stream: the stream's name.
    """

    stream: StreamName


class ReadStream(Read, frozen=True, kw_only=True):
    """Read whole lines of a stream; one that does not exist reads as an empty one.

    Attributes:
        stream: the stream's name.
        last: begin this many lines before the end, instead of at `after`.
    """

    stream: StreamName
    last: Annotated[int, msgspec.Meta(ge=0, le=limits.COUNT_MAX)] | None = None


class Streams(SessionCommand, frozen=True, kw_only=True):
    """List a session's streams, ordered by name.

    Attributes:
        stream: only the stream of this name.
    """

    stream: StreamName | None = None


class DeleteStream(SessionCommand, frozen=True, kw_only=True):
    """Delete a stream; its file keeps its lines under another name until it expires.

    Attributes:
        stream: the stream's name.
        successor: another stream of the session, which gets this name at the instant of the
            deletion and loses its own.
        key: the idempotency key; a repeat gets the first answer, even if a stream of this name was
            created since.
        expect: the head that the caller expects; with another head the reply is `conflict`.
        by: the client that deletes.
    """

    stream: StreamName
    key: Key
    expect: PositionText | None = None
    by: Name | None = None
    successor: StreamName | None = None


class Timeline(SessionCommand, frozen=True, kw_only=True):
    """Ask for the session's timeline."""


class Subscribe(SessionCommand, frozen=True, kw_only=True):
    """Follow a session: first the backlog after `after`, then each commit as it becomes durable.

    Attributes:
        subscription: the caller's name for it, unique among its own.
        file: the file to follow.
        after: a position of that file, `start` (of the present generation) or `now`.
        window: bytes that may be in flight before the subscriber grants more.
        incarnation: the incarnation of `after`; for another one the events start over with
            `reset`.
        pace_ms: shortest time between two `records` events after `live`, unless a block is full or
            another event follows; lines of the meantime are sent together.
    """

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

    Attributes:
        prefix: only sessions whose id begins with this.
        dry_run: only report the files that would be removed.
        generations_older_s: generations that were replaced longer ago than this.
        keep_generations: all but this many of the newest; with `generations_older_s` only
            generations that fulfil both.
        with_lineage: also generations with checkpoints from before a compaction.
        trash: deleted sessions that have expired.
        retention: what the rules of `[retention]` in the configuration name: generations, trash,
            and cold sessions, which go to the trash.
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
    """Report the cluster of the daemon: its hosts, its journal's servers, and who owns sessions.

    Attributes:
        prefix: only sessions whose id begins with this.
        after: only sessions after this id.
        limit: the number of sessions in the reply; 0 for none, which asks the servers less.
    """

    prefix: str = ""
    after: str | None = None
    limit: Annotated[int, msgspec.Meta(ge=0, le=limits.LIST_SESSIONS_MAX)] = 0


class HandOver(SessionCommand, frozen=True, kw_only=True):
    """Give a session to another daemon of the cluster; that has its files before the reply.

    Attributes:
        host: the identity of the other daemon's root, or its endpoint.
    """

    host: str


class Join(Command, frozen=True, kw_only=True):
    """Bring sessions that the cluster of the daemon lacks into it, many at a time.

    Attributes:
        sessions: their ids.
    """

    sessions: Annotated[tuple[str, ...], msgspec.Meta(max_length=limits.JOIN_SESSIONS_MAX)]


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
    | Subscribe | Grant | Unsubscribe | Gc | Clients | Cluster | HandOver | Join
    | Drain
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
    | PendingDmail | Gc | Cluster | HandOver | Join
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
