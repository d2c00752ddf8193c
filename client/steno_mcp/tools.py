"""The tools: each maps its arguments to one method of the client, and the result to its answer."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from steno import Client, Session
from steno.parts import encode_records
from steno.values import Ack, Checkpoint, Mail
from steno_agents.origin import Origin, fetch_origin
from steno_mcp.bounded import bounded
from steno_mcp.limits import ANSWER_BYTES_MAX
from steno_mcp.search import search_sessions
from steno_mcp.values import (
    AppendMessages,
    Arguments,
    Changed,
    CreateCheckpoint,
    DeliverDmail,
    Forked,
    ForkSession,
    Hits,
    ListSessions,
    MailEntry,
    OneSession,
    OriginEntry,
    ReadSession,
    RecordEntry,
    RecordPage,
    RestoreGeneration,
    RevertSession,
    SearchSessions,
    SendDmail,
    SessionEntry,
    SessionPage,
    SessionState,
    StreamEntry,
)
from steno_present.repairs import repair
from steno_protocol.errors import NotFound
from steno_protocol.positions import Position
from steno_protocol.records import check_message
from steno_redact.redactor import Redactor


@dataclass(frozen=True, slots=True)
class Source:
    """Where the answers come from.

    Attributes:
        client: the client of the daemon.
        redactor: masks the secrets in records, before their texts are cut or searched.
    """

    client: Client
    redactor: Redactor


@dataclass(frozen=True, slots=True)
class Tool:
    """A tool.

    Attributes:
        name: its name.
        title: its name for people.
        description: what it does, for a model.
        arguments: the type of its arguments.
        result: the type of its result.
        run: the function that carries it out.
        is_change: it changes a session; a server with `--read-only` leaves it out.
        is_destructive: it removes records from the present state of a session.
        is_idempotent: a repeated call with the same arguments changes nothing more.
    """

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    result: type[msgspec.Struct]
    run: Callable[[Source, Any], Awaitable[msgspec.Struct]]
    is_change: bool = True
    is_destructive: bool = False
    is_idempotent: bool = False


async def list_sessions(source: Source, asked: ListSessions) -> SessionPage:
    """A page of the sessions, ordered by id."""
    found = await source.client.sessions(
        asked.prefix, archived=asked.archived, labels=asked.labels, title=asked.title,
        after=asked.after, limit=asked.limit + 1,
    )  # fmt: skip
    shown = found[: asked.limit]
    return SessionPage(
        sessions=msgspec.convert(shown, list[SessionEntry], from_attributes=True),
        next=shown[-1].session if len(found) > len(shown) else None,
    )


async def get_session(source: Source, asked: OneSession) -> SessionState:
    """The numbers of a session."""
    session = source.client.session(asked.session)
    stat = await session.stat()
    return SessionState(
        session=stat.session,
        head=stat.head,
        bytes=stat.bytes,
        token_count=stat.token_count_with_pending,
        next_checkpoint=stat.n_checkpoints,
        title=stat.title,
        labels=list(stat.labels),
        archived=stat.archived,
        forked_from=stat.forked_from,
        pending_dmail=_mail(await session.pending_dmail()),
        streams=[
            StreamEntry(name=each.name, head=str(each.head), records=each.records, bytes=each.bytes)
            for each in await session.streams()
        ],
        origin=_origin(await fetch_origin(session), source.redactor),
        repairs=_repairs(session),
    )


async def read_session(source: Source, asked: ReadSession) -> RecordPage:
    """Records from a position on, or the last ones."""
    session = source.client.session(asked.session)
    head = Position.parse((await session.stat()).head)
    start = _start(asked, head)
    # What comes after the head that the answer names is left to the next read.
    records = session.records(start, head if start.generation == head.generation else None)
    found: list[RecordEntry] = []
    size, after, more = 0, start, False
    async for each in records:
        record, bytes_, is_cut = bounded(source.redactor.value(each.record), len(each.raw))
        size += bytes_
        if found and (len(found) == asked.limit or size > ANSWER_BYTES_MAX):
            more = True
            break
        found.append(RecordEntry(cursor=str(each.cursor), record=record, cut=is_cut))
        after = Position(each.cursor.generation, each.cursor.line + 1)
    return RecordPage(
        session=asked.session,
        head=str(head),
        records=found,
        next=str(after),
        more=more,
        damaged=records.damaged,
    )


async def append_messages(source: Source, asked: AppendMessages) -> Changed:
    """Append messages as one batch; a missing session is created if that is wanted."""
    session = source.client.session(asked.session)
    try:
        ack = await _append(session, asked)
    except NotFound:
        # With another `expect` the append would fail, and leave an empty session behind. A mount
        # belongs to another program, which creates its sessions.
        is_wanted = asked.create and asked.expect in {None, _BEGINNING}
        if not is_wanted or ":" in asked.session:
            raise
        # Neither must a refused message leave one behind.
        for record in encode_records(asked.messages):
            check_message(record)
        await source.client.open(asked.session, follow=False)
        ack = await _append(session, asked)
    return _changed(source, asked.session, ack)


async def create_checkpoint(source: Source, asked: CreateCheckpoint) -> Changed:
    """Append a checkpoint."""
    ack = await source.client.session(asked.session).checkpoint(
        asked.add_user_message, key=asked.key, expect=asked.expect
    )
    return _changed(source, asked.session, ack)


async def revert_session(source: Source, asked: RevertSession) -> Changed:
    """Go back to a checkpoint."""
    ack = await source.client.session(asked.session).revert_to(
        asked.checkpoint, why=asked.why, key=asked.key, expect=asked.expect
    )
    return _changed(source, asked.session, ack)


async def restore_generation(source: Source, asked: RestoreGeneration) -> Changed:
    """Return to a past generation."""
    ack = await source.client.session(asked.session).restore_generation(
        asked.generation, why=asked.why, key=asked.key, expect=asked.expect
    )
    return _changed(source, asked.session, ack)


async def send_dmail(source: Source, asked: SendDmail) -> Changed:
    """Send a D-Mail."""
    sent = await source.client.session(asked.session).send_dmail(
        asked.checkpoint, asked.message,
        replaces=asked.replaces, key=asked.key, expect=asked.expect,
    )  # fmt: skip
    return msgspec.structs.replace(_changed(source, asked.session, sent), mail_id=sent.id)


async def deliver_dmail(source: Source, asked: DeliverDmail) -> Changed:
    """Deliver the pending D-Mail."""
    ack = await source.client.session(asked.session).deliver_dmail(
        asked.mail_id, add_user_message=asked.add_user_message, key=asked.key, expect=asked.expect
    )
    return msgspec.structs.replace(_changed(source, asked.session, ack), mail_id=asked.mail_id)


async def fork_session(source: Source, asked: ForkSession) -> Forked:
    """Create a session from a state of another one."""
    made = await source.client.session(asked.session).fork(
        asked.new_session, at=asked.at, checkpoint=asked.checkpoint, title=asked.title,
        key=asked.key,
    )  # fmt: skip
    return msgspec.convert(await made.stat(), Forked, from_attributes=True)


async def _search(source: Source, asked: SearchSessions) -> Hits:
    """Search the records as they are shown."""
    return await search_sessions(source.client, source.redactor, asked)


_BEGINNING: Final = "0:0"

_AGAIN: Final = "repeat it with the same key if its outcome is unknown."

TOOLS: Final = (
    Tool(
        "list_sessions", "List sessions",
        "List sessions ordered by id, a page at a time. Returns their titles, labels and sizes.",
        ListSessions, SessionPage, list_sessions, is_change=False,
    ),
    Tool(
        "get_session", "Session state",
        "Show the head of a session (for `expect`), its size, streams and pending D-Mail, and for a"
        " session of another program its directory and how to resume it.",
        OneSession, SessionState, get_session, is_change=False,
    ),
    Tool(
        "read_session", "Read a session",
        "Read records of a session with their positions: the last ones, or those after a position."
        " Continue after `next`. Long texts are cut.",
        ReadSession, RecordPage, read_session, is_change=False,
    ),
    Tool(
        "search_sessions", "Search sessions",
        "Find a text in the messages of all sessions, or of those with a prefix. Continue with"
        " `next` as the cursor.",
        SearchSessions, Hits, _search, is_change=False,
    ),
    Tool(
        "append_messages", "Append messages",
        "Append messages to the end of a session as one atomic batch, on the disk when this"
        " returns. With `expect` nothing is written if another agent was faster. With a `key`,"
        f" {_AGAIN}",
        AppendMessages, Changed, append_messages,
    ),
    Tool(
        "create_checkpoint", "Create a checkpoint",
        "Mark the end of a session, so that revert_session, send_dmail and fork_session can name"
        " it. Returns the id of the checkpoint and its handle.",
        CreateCheckpoint, Changed, create_checkpoint,
    ),
    Tool(
        "revert_session", "Revert a session",
        "Remove a checkpoint and everything after it, for all readers. The removed records stay as"
        " `kept_generation`, and restore_generation returns to them. Give `expect`, so that no"
        " record is removed that you have not seen.",
        RevertSession, Changed, revert_session, is_destructive=True,
    ),
    Tool(
        "restore_generation", "Restore a generation",
        "Return a session to a past generation, which a revert left behind. The present one is kept"
        " like it.",
        RestoreGeneration, Changed, restore_generation, is_destructive=True,
    ),
    Tool(
        "send_dmail", "Send a D-Mail",
        "Send a message back to a checkpoint. It is pending until deliver_dmail delivers it.",
        SendDmail, Changed, send_dmail,
    ),
    Tool(
        "deliver_dmail", "Deliver a D-Mail",
        "Remove everything after the checkpoint of the pending D-Mail, and append its message"
        " there. The removed records stay as `kept_generation`.",
        DeliverDmail, Changed, deliver_dmail, is_destructive=True,
    ),
    Tool(
        "fork_session", "Fork a session",
        "Create a new session from the present state of another one, or from its state at a"
        " position or before a checkpoint. The other one does not change.",
        ForkSession, Forked, fork_session,
    ),
)  # fmt: skip
"""The tools in the order of their list."""


async def _append(session: Session, asked: AppendMessages) -> Ack:
    return await session.append_message(asked.messages, key=asked.key, expect=asked.expect)


def _start(asked: ReadSession, head: Position) -> Position:
    if asked.after is None:
        return Position(head.generation, max(0, head.line - asked.limit))
    if asked.after == "start":
        return Position(head.generation, 0)
    return Position.parse(asked.after)


def _mail(mail: Mail | None) -> MailEntry | None:
    if mail is None:
        return None
    return MailEntry(
        mail_id=mail.id, checkpoint=mail.checkpoint_id, message=mail.message, by=mail.by, at=mail.at
    )


def _origin(found: Origin | None, redactor: Redactor) -> OriginEntry | None:
    if found is None:
        return None
    return msgspec.convert(found.masked(redactor.text), OriginEntry, from_attributes=True)


def _repairs(session: Session) -> list[str]:
    return list(map(repair, session.repaired))


def _changed(source: Source, session: str, ack: Ack) -> Changed:
    return Changed(
        session=session,
        head=str(ack.head),
        first=str(ack.first),
        last=str(ack.last),
        duplicate=ack.duplicate,
        key=ack.key,
        checkpoint=ack.checkpoint_id,
        handle=ack.handle if isinstance(ack, Checkpoint) else None,
        kept_generation=None if ack.rotated is None else ack.head.generation - 1,
        repairs=_repairs(source.client.session(session)),
    )
