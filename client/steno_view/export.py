"""What a page shows, as Markdown, as HTML or as one JSON document, with its secrets masked."""

import enum
import json
import re
import time
from collections.abc import AsyncGenerator, Callable, Sequence

import anyio.to_thread
import msgspec

from steno import Session
from steno.parts import RecordStream
from steno.values import Record
from steno_present import contract, tree
from steno_present.markdown import Markdown, head_of
from steno_protocol.errors import BadRequest, NotFound
from steno_protocol.positions import Position
from steno_protocol.replies import SessionStat
from steno_redact.records import masked_record, masked_stat
from steno_redact.redactor import Redactor
from steno_view.document import Document
from steno_view.limits import EXPORT_BATCH_BYTES


class Format(enum.Enum):
    """A format, with the ending and the media type of its files."""

    MARKDOWN = ("markdown", "md", "text/markdown; charset=utf-8")
    HTML = ("html", "html", "text/html; charset=utf-8")
    JSON = ("json", "json", "application/json")

    @classmethod
    def asked(cls, name: str) -> "Format":
        """The format of a name.

        Raises:
            BadRequest: there is none.
        """
        for form in cls:
            if form.value[0] == name:
                return form
        raise BadRequest(f"{name[:40]!r} is no format: use markdown, html or json")

    @property
    def media_type(self) -> str:
        """The media type of its files."""
        return self.value[2]

    def file_name(self, session: str, end: Position) -> str:
        """A name for the file of an export, of letters, digits and dashes."""
        name = re.sub(r"[^A-Za-z0-9]+", "-", session).strip("-")[:80] or "session"
        return f"{name}-{end.generation}-{end.line}.{self.value[1]}"


async def exported(
    session: Session, end: Position, form: Format, redactor: Redactor
) -> AsyncGenerator[bytes]:
    """The text of one state of a session, piece by piece.

    The first piece has records: a state that is not there is an error before it.
    """
    present = await session.stat()
    made = tree.grow(await session.timeline(), Position.parse(present.head)).get(end.generation)
    if made is not None and made.lines is not None and made.lines < end.line:
        raise NotFound(
            f"there is no state {end}: generation {end.generation} ends at line {made.lines}",
            session=session.id,
        )
    stat = msgspec.structs.replace(present, head=str(end), generation=end.generation)
    stat = masked_stat(redactor, stat)
    records = session.records(Position(end.generation, 0), end)
    match form:
        case Format.MARKDOWN:
            pieces = _markdown(stat, records, redactor)
        case Format.HTML:
            pieces = _html(stat, records, redactor)
        case Format.JSON:
            pieces = _json(stat, records, redactor)
    head = await anext(pieces)
    yield (head + await anext(pieces, "")).encode("utf-8", "backslashreplace")
    async for text in pieces:
        yield text.encode("utf-8", "backslashreplace")


async def _rendered(
    records: RecordStream, render: Callable[[Record], str], between: str = ""
) -> AsyncGenerator[str]:
    """The texts of records, made by a thread: a record may take a second, and other pages wait."""

    def texts(batch: Sequence[Record]) -> str:
        return between.join(map(render, batch))

    batch: list[Record] = []
    size, before = 0, ""
    async for record in records:
        batch.append(record)
        size += len(record.raw)
        if size >= EXPORT_BATCH_BYTES:
            yield before + await anyio.to_thread.run_sync(texts, batch)
            batch, size, before = [], 0, between
    if batch:
        yield before + await anyio.to_thread.run_sync(texts, batch)


async def _markdown(
    stat: SessionStat, records: RecordStream, redactor: Redactor
) -> AsyncGenerator[str]:
    rendering = Markdown()

    def text(record: Record) -> str:
        return "\n".join(rendering.record(masked_record(redactor, record))) + "\n"

    yield "\n".join(head_of(stat)) + "\n"
    async for piece in _rendered(records, text):
        yield piece


async def _html(
    stat: SessionStat, records: RecordStream, redactor: Redactor
) -> AsyncGenerator[str]:
    document = Document(stat, time.monotonic)

    def text(record: Record) -> str:
        return document.record(masked_record(redactor, record), record)

    yield document.head()
    async for piece in _rendered(records, text):
        yield piece
    yield document.foot(records.damaged)


async def _json(
    stat: SessionStat, records: RecordStream, redactor: Redactor
) -> AsyncGenerator[str]:
    fields = contract.document(stat)
    head = {name: fields[name] for name in contract.EXPORT_HEAD}
    yield json.dumps(head, ensure_ascii=False)[:-1] + ',"records":[\n'

    def text(record: Record) -> str:
        return contract.record(masked_record(redactor, record)).decode().rstrip("\n")

    async for piece in _rendered(records, text, ",\n"):
        yield piece
    yield f'],"damaged":{records.damaged}}}\n'
