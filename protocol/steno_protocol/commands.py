"""What a client can ask: one frozen struct a command, told apart by the field `command`.

A header is the JSON of one of these; the records of an append are frames of their own and are
never encoded twice. PROTOCOL.md describes each command; a test ties the two together.
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
        deadline_ms: on the daemon's clock (`hello` tells it); past it the command is refused with
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
        by: who writes, kept in the line as `_by`.
    """

    key: Key
    repeat: bool = False
    expect: PositionText | None = None
    durability: Durability = "synced"
    by: Name | None = None


class Hello(Command, frozen=True, kw_only=True):
    """Who are you, and how do you speak? The first request on a connection."""

    protocol: int
    name: Name | None = None
    pid: Count | None = None


class Status(Command, frozen=True, kw_only=True):
    """How is the daemon?"""


class List(Command, frozen=True, kw_only=True):
    """Which sessions are there, ordered by id, after `after` and beginning with `prefix`?"""

    prefix: str = ""
    after: str = ""
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
        by: who creates it.
    """

    create: bool = True
    exclusive: bool = False
    stamp: bool = True
    by: Name | None = None


class Append(Mutation, frozen=True, kw_only=True):
    """Append the message records that follow as frames: one atomic batch."""


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
    why: Annotated[str, msgspec.Meta(max_length=1000)] | None = None


class Clear(Mutation, frozen=True, kw_only=True):
    """Drop everything; checkpoint ids restart at 0."""

    why: Annotated[str, msgspec.Meta(max_length=1000)] | None = None


class UpdateTokenCount(Mutation, frozen=True, kw_only=True):
    """Append a token count."""

    token_count: Count


class WriteSystemPrompt(Mutation, frozen=True, kw_only=True):
    """Put the system prompt first; on a session that has content this is a rewrite."""

    prompt: str


class RestoreGeneration(Mutation, frozen=True, kw_only=True):
    """Bring back a generation that a rewrite left behind; what is there now is left behind."""

    generation: Annotated[int, msgspec.Meta(ge=0)]
    why: Annotated[str, msgspec.Meta(max_length=1000)] | None = None


class Read(SessionCommand, frozen=True, kw_only=True):
    """Read whole lines from a position on, undecoded, at most about `bytes_max` of them.

    Attributes:
        after: where to begin; None is the start of the present generation.
        until: the position to end at; None is the end.
        bytes_max: bytes of lines wanted; one line is always given, however long.
        offset: the `offset` of an earlier reply to this reader at exactly `after`, which saves the
            daemon counting lines; a wrong one is noticed when it is no start of a line.
    """

    after: PositionText | None = None
    until: PositionText | None = None
    bytes_max: Annotated[int, msgspec.Meta(ge=1, le=limits.SUBSCRIPTION_WINDOW_BYTES_MAX)] = (
        limits.BLOCK_BYTES
    )
    offset: Count | None = None


class AppendWire(Mutation, frozen=True, kw_only=True):
    """Append the wire events that follow as frames: one atomic batch of `wire.jsonl`.

    `expect` is a position of the wire file. Its durability is `written` unless it says otherwise:
    the bytes are synced within a second, within 50 ms while somebody subscribes.
    """

    durability: Durability = "written"


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


class Clients(Command, frozen=True, kw_only=True):
    """Who is connected, and to what?"""

    session: str | None = None


class Drain(Command, frozen=True, kw_only=True):
    """Take no more commands, finish what is queued, sync it, and end."""


AnyCommand = (
    Hello | Status | List | Stat | Open | Append | Checkpoint | RevertTo | Clear
    | UpdateTokenCount | WriteSystemPrompt | RestoreGeneration | Read | Timeline
    | AppendWire | ReadWire
    | Subscribe | Grant | Unsubscribe | Clients | Drain
)  # fmt: skip

COMMANDS: Final[dict[str, type[Command]]] = {
    str(cls.__struct_config__.tag): cls for cls in AnyCommand.__args__
}
"""Every command by its name on the wire."""

_decode: Callable[[bytes], AnyCommand] = msgspec.json.Decoder(AnyCommand).decode
_encode = msgspec.json.Encoder().encode


def decode_command(header: bytes) -> AnyCommand:
    """Decode a request header; raises what msgspec raises, which `frames` turns into errors."""
    return _decode(header)


def encode_command(command: Command) -> bytes:
    """Encode a request header."""
    return _encode(command)


def command_name(command: Command | type[Command]) -> str:
    """The name of a command on the wire."""
    config: Any = command.__struct_config__
    return str(config.tag)
