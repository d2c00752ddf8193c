"""Requests of clients: one frozen struct per command, tagged by the field `command`.

A request has the JSON of one of these; the records of an append travel as lines of their own and
are never encoded twice. PROTOCOL.md describes each command; a test ties the two together.
"""

import re
from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

import msgspec

from steno_protocol import limits

PositionText = Annotated[str, msgspec.Meta(pattern=r"^(0|[1-9][0-9]{0,8}):(0|[1-9][0-9]{0,14})\Z")]
"""A position as text, `generation:line`."""

Durability = Literal["synced", "written"]
"""`synced`: on the disk before the reply. `written`: in the page cache, synced soon after."""

Key = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,64}\Z")]
"""The caller's idempotency key."""

Name = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.@:/+-]{1,64}\Z")]
"""A client's name."""

Why = Annotated[str, msgspec.Meta(max_length=limits.WHY_CHARS_MAX)]
"""A reason, kept in the timeline."""

Title = Annotated[str, msgspec.Meta(max_length=limits.TITLE_CHARS_MAX)]
"""What a person calls a session."""

Label = Annotated[str, msgspec.Meta(pattern=r"^[^\x00-\x1f\x7f-\x9f,]{1,64}\Z")]
"""A word that sessions are found by."""

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
    gc=False,  # its fields are text and numbers, which cannot make a cycle; twice as fast to make
):
    """Any request.

    Attributes:
        deadline_ms: on the daemon's clock (see `hello`); past it the command is refused with
            `expired` instead of being applied late. None: no deadline.
    """

    deadline_ms: Count | None = None


class SessionCommand(Command, frozen=True, kw_only=True):
    """A request about one session."""

    session: str


class Mutation(SessionCommand, frozen=True, kw_only=True):
    """A request that changes a session.

    Attributes:
        key: names this command for ever; sent again it is answered, not applied again.
        repeat: the command may have been applied before, so look in the files too.
        expect: the head that the caller believes in; another head is answered with `conflict`.
        durability: what must be true of the bytes when the reply leaves.
        by: the author, stored in the line as `_by`.
    """

    key: Key
    repeat: bool = False
    expect: PositionText | None = None
    durability: Durability = "synced"
    by: Name | None = None


class Hello(Command, frozen=True, kw_only=True):
    """Ask for the daemon's identity and limits; the first request on a connection."""

    protocol: int
    name: Name | None = None
    pid: Count | None = None


class Status(Command, frozen=True, kw_only=True):
    """How is the daemon?"""


class Stats(Command, frozen=True, kw_only=True):
    """What did the daemon do since it started, in numbers?"""


class Configuration(Command, frozen=True, kw_only=True):
    """Which options are in force, and where did each value come from?"""


class List(Command, frozen=True, kw_only=True):
    """Which sessions are there, ordered by id, after `after` and beginning with `prefix`?

    Attributes:
        archived: whether archived sessions are left out, the only ones, or among the others.
        labels: only sessions that bear all of these.
        title: only sessions whose title contains this, whatever its case.
    """

    prefix: str = ""
    after: str = ""
    archived: Literal["no", "only", "all"] = "all"
    labels: tuple[Label, ...] = ()
    title: str = ""
    limit: Annotated[int, msgspec.Meta(ge=1, le=limits.LIST_SESSIONS_MAX)] = 1000


class Stat(SessionCommand, frozen=True, kw_only=True):
    """What is known of one session, without opening it for writing."""


class Open(SessionCommand, frozen=True, kw_only=True):
    """Make the session ready for writing; create it unless `create` is false.

    Attributes:
        create: make the session when there is none.
        exclusive: refuse with `exists` when it is there already.
        stamp: for a session that the daemon did not know: whether the lines that it writes bear
            `_id` and `_by`. Never changed later.
        by: the client that creates it.
        key: the idempotency key of this call: a retry is again answered as the creation.
    """

    create: bool = True
    exclusive: bool = False
    stamp: bool = True
    by: Name | None = None
    key: Key | None = None


class Append(Mutation, frozen=True, kw_only=True):
    """Append the message records that follow: one atomic batch."""


class Checkpoint(Mutation, frozen=True, kw_only=True):
    """Append a checkpoint with the next id, with or without the message that shows it."""

    add_user_message: bool = False


class RevertTo(Mutation, frozen=True, kw_only=True):
    """Drop a checkpoint and all that follows it.

    Attributes:
        drop_damaged: drop the lines before it that are no records, too, as kimi-cli does.
    """

    checkpoint_id: int
    drop_damaged: bool = False
    why: Why | None = None


class Clear(Mutation, frozen=True, kw_only=True):
    """Drop everything; checkpoint ids restart at 0."""

    why: Why | None = None


class UpdateTokenCount(Mutation, frozen=True, kw_only=True):
    """Append a token count."""

    token_count: Count


class WriteSystemPrompt(Mutation, frozen=True, kw_only=True):
    """Put the system prompt first; on a session that has content this is a rewrite."""

    prompt: str


class RestoreGeneration(Mutation, frozen=True, kw_only=True):
    """Bring back a generation that a rewrite left behind; what is there now is left behind."""

    generation: Annotated[int, msgspec.Meta(ge=0)]
    why: Why | None = None


class CompactBegin(SessionCommand, frozen=True, kw_only=True):
    """Ask for the messages to summarise, and take the lease of the compaction.

    The answer says which lines the summary is to replace; they are read with `read`. Nothing is
    kept from writing meanwhile. Sent again with the same lease it renews the lease.

    Attributes:
        lease: the caller's name for this compaction.
        preserve: how many of the last user and assistant messages stay as they are.
        lease_ms: after how long without a word the compaction counts as abandoned.
        by: the compactor.
    """

    lease: Key
    preserve: Annotated[int, msgspec.Meta(le=limits.PRESERVED_MESSAGES_MAX)] = 2
    lease_ms: Annotated[int, msgspec.Meta(ge=1, le=limits.COMPACTION_LEASE_MS_MAX)] = (
        limits.COMPACTION_LEASE_MS
    )
    by: Name | None = None


class CompactCommit(Mutation, frozen=True, kw_only=True):
    """Put a summary, the one record that follows as a frame, in place of what it summarises.

    Attributes:
        lease: the name given to `compact_begin`.
        cut: where the lines that the summary replaces end, as `compact_begin` answered or by a
            rule of the caller's own.
        at: where the session ended then; what came after it is kept whole.
        checkpoint_id: the id that `compact_begin` reserved.
        incarnation: from the reply to `compact_begin`; a session recreated since is not compacted.
        summary_tokens: the summary's size as reported by the model; None for an estimate from its
            text.
    """

    lease: Key
    cut: PositionText
    at: PositionText
    checkpoint_id: Count
    incarnation: str | None = None
    summary_tokens: Count | None = None
    why: Why | None = None


class CompactAbort(SessionCommand, frozen=True, kw_only=True):
    """Give a compaction up; one that is not under way is no error."""

    lease: Key


class SendDmail(Mutation, frozen=True, kw_only=True):
    """Send a message back to a checkpoint; it is pending until a client delivers it.

    The command's key is the mail's id.

    Attributes:
        replaces: the mail that waits, to be given up for this one.
    """

    checkpoint_id: int
    message: Annotated[str, msgspec.Meta(min_length=1, max_length=limits.DMAIL_CHARS_MAX)]
    replaces: Key | None = None


class PendingDmail(SessionCommand, frozen=True, kw_only=True):
    """Which D-Mail waits? Only looks."""


class DeliverDmail(Mutation, frozen=True, kw_only=True):
    """Revert to the mail's checkpoint, set a new one, and append the message: one rewrite.

    Attributes:
        mail_id: which mail; it is never another one that is delivered.
        add_user_message: show the new checkpoint to the model.
    """

    mail_id: Key
    add_user_message: bool = False


class Fork(SessionCommand, frozen=True, kw_only=True):
    """Make a new session of what this one was at an instant, its wire file cut at the same one.

    At most one of `at`, `checkpoint_id`, `turn` and `undo` is given; none is now.

    Attributes:
        new_session: the id of the new session.
        key: names this fork for ever; sent again it gets the first answer.
        at: a position of any generation.
        checkpoint_id: before this checkpoint, as a revert to it leaves the session.
        turn: after this turn, counted from 0; -1 is before the first.
        undo: before the last so many turns.
        title: of the new session; None is made of the source's.
        by: the client that forks.
    """

    new_session: str
    key: Key
    at: PositionText | None = None
    checkpoint_id: int | None = None
    turn: Annotated[int, msgspec.Meta(ge=-1, le=limits.COUNT_MAX)] | None = None
    undo: Annotated[int, msgspec.Meta(ge=1, le=limits.COUNT_MAX)] | None = None
    title: Title | None = None
    by: Name | None = None


class Describe(SessionCommand, frozen=True, kw_only=True):
    """Set what people know a session by; what is None stays as it is.

    Attributes:
        title: its title; the empty text removes it.
        labels: all of its labels.
        archived: whether lists leave it out unless they are asked not to.
        replace_damaged: a `state.json` that is damaged is kept under another name, and a new one
            begins; else such a file is refused.
    """

    title: Title | None = None
    labels: Annotated[tuple[Label, ...], msgspec.Meta(max_length=limits.LABELS_MAX)] | None = None
    archived: bool | None = None
    replace_damaged: bool = False


class Delete(SessionCommand, frozen=True, kw_only=True):
    """Move a session to the trash, with the sessions below it, from where it expires.

    Attributes:
        key: names this deletion for ever; sent again it gets the first answer, also when a
            session of the same id was made since.
    """

    key: Key
    by: Name | None = None


class Verify(SessionCommand, frozen=True, kw_only=True):
    """Look through all files of a session for damage; nothing is opened for writing or repaired."""


class Repair(Mutation, frozen=True, kw_only=True):
    """Part welded records of a session's context and leave out what is no record: one rewrite.

    What was found by `verify` in the first `bytes` bytes is repaired, if they are still what they
    were then; what was appended since is kept as it is.

    Attributes:
        generation: the generation that was verified.
        bytes: how many of its bytes were.
        crc: their CRC-32.
    """

    generation: Annotated[int, msgspec.Meta(ge=0)]
    bytes: Count
    crc: Annotated[int, msgspec.Meta(ge=0, le=limits.CRC_MAX)]
    why: Why | None = None


class Read(SessionCommand, frozen=True, kw_only=True):
    """Read whole lines from a position on, undecoded, at most about `bytes_max` of them.

    Attributes:
        after: where to begin; None is the start of the present generation.
        until: the position to end at; None is the end.
        bytes_max: bytes of lines wanted; one line is always given, however long.
        offset: the `offset` of an earlier reply to this reader at exactly `after`, which saves the
            daemon counting lines; a wrong one is noticed when it is no start of a line.
        opened: identity of a file that the reader has opened by itself: if the lines lie in that
            one, none are given, and the `source` of the reply has its readable length.
    """

    after: PositionText | None = None
    until: PositionText | None = None
    bytes_max: Annotated[int, msgspec.Meta(ge=1, le=limits.SUBSCRIPTION_WINDOW_BYTES_MAX)] = (
        limits.BLOCK_BYTES
    )
    offset: Count | None = None
    opened: str | None = None


class AppendWire(Mutation, frozen=True, kw_only=True):
    """Append the wire events that follow: one atomic batch of `wire.jsonl`.

    `expect` is a position of the wire file. Its durability is `written` unless it says otherwise:
    the bytes are synced within a second, within 50 ms while the file has subscribers.

    Attributes:
        header: further fields of the header line, if this append begins the file.
    """

    durability: Durability = "written"
    header: dict[str, Any] | None = None


class ReadWire(Read, frozen=True, kw_only=True):
    """Read whole lines of `wire.jsonl`; its positions are all of generation 0."""


class Timeline(SessionCommand, frozen=True, kw_only=True):
    """What ever happened to the session."""


class Subscribe(SessionCommand, frozen=True, kw_only=True):
    """Follow a session: the backlog after `after`, then everything as it becomes durable.

    Attributes:
        subscription: the caller's name for it, one of its own at a time.
        file: which of the session's files.
        after: a position of that file, `start` (of the present generation) or `now`.
        window: bytes that may be under way before the subscriber grants more.
        incarnation: of the session that `after` speaks of; another one starts over with `reset`.
    """

    subscription: Key
    file: Literal["context", "wire"] = "context"
    after: str = "start"
    window: Annotated[int, msgspec.Meta(ge=1024, le=limits.SUBSCRIPTION_WINDOW_BYTES_MAX)] = (
        limits.SUBSCRIPTION_WINDOW_BYTES
    )
    incarnation: str | None = None


class Grant(Command, frozen=True, kw_only=True):
    """The subscriber has taken in `bytes` more; this command alone has no reply."""

    subscription: Key
    bytes: Annotated[int, msgspec.Meta(ge=1, le=limits.SUBSCRIPTION_WINDOW_BYTES_MAX)]


class Unsubscribe(Command, frozen=True, kw_only=True):
    """End a subscription."""

    subscription: Key


class Gc(Command, frozen=True, kw_only=True):
    """Give up what is named here, and nothing else.

    Attributes:
        prefix: only sessions whose id starts with it.
        dry_run: only say what would go.
        generations_older_s: generations that were left behind longer ago than this.
        keep_generations: all but so many of the newest; with `generations_older_s` only what both
            let go.
        with_lineage: also generations that checkpoints from before a compaction lie in.
        trash: deleted sessions that have expired.
    """

    prefix: str = ""
    dry_run: bool = False
    generations_older_s: Count | None = None
    keep_generations: Annotated[int, msgspec.Meta(ge=1, le=limits.COUNT_MAX)] | None = None
    with_lineage: bool = False
    trash: bool = False


class Clients(Command, frozen=True, kw_only=True):
    """List the connected clients and their subscriptions."""

    session: str | None = None


class Drain(Command, frozen=True, kw_only=True):
    """Take no more commands, finish what is queued, sync it, and end."""


AnyCommand = (
    Hello | Status | Stats | Configuration | List | Stat | Open | Append | Checkpoint | RevertTo
    | Clear | UpdateTokenCount | WriteSystemPrompt | RestoreGeneration | Read | Timeline
    | Verify | Repair
    | AppendWire | ReadWire
    | CompactBegin | CompactCommit | CompactAbort
    | SendDmail | PendingDmail | DeliverDmail
    | Fork | Describe | Delete
    | Subscribe | Grant | Unsubscribe | Gc | Clients | Drain
)  # fmt: skip

WholeCommand = Stat | Open | Describe | Fork | Delete | Verify
"""What is about a session as a whole."""

SlowCommand = (
    WholeCommand
    | List | Read | ReadWire | Timeline | Subscribe | CompactBegin | PendingDmail | Gc
)  # fmt: skip
"""What the daemon has to look at files for before it answers; so many at a time are bounded."""

COMMANDS: Final[dict[str, type[Command]]] = {
    str(cls.__struct_config__.tag): cls for cls in AnyCommand.__args__
}
"""Every command by its name on the wire."""

COMMAND_NAMES: Final[dict[type[Command], str]] = {cls: name for name, cls in COMMANDS.items()}
"""The name of every command on the wire."""

_decode: Callable[[bytes], AnyCommand] = msgspec.json.Decoder(AnyCommand).decode
_encode = msgspec.json.Encoder().encode


def decode_command(header: bytes) -> AnyCommand:
    """Decode a request header; raises what msgspec raises, which `messages` turns into errors."""
    return _decode(header)


def encode_command(command: Command) -> bytes:
    """Encode a request header."""
    return _encode(command)


def command_name(command: Command | type[Command]) -> str:
    """The name of a command on the wire."""
    return COMMAND_NAMES[command if isinstance(command, type) else type(command)]
