"""What a page shows, as Markdown or as one JSON document."""

import json
import re
from collections.abc import AsyncGenerator
from typing import Literal

import msgspec

from steno._async.session import Session
from steno.cli.render import contract
from steno.cli.render.markdown import Markdown, head_of
from steno_protocol.positions import Position

Format = Literal["markdown", "json"]

_ENDINGS = {"markdown": "md", "json": "json"}


def file_name(session: str, end: Position, form: Format) -> str:
    """A name for the file of an export, of letters, digits and dashes."""
    name = re.sub(r"[^A-Za-z0-9]+", "-", session).strip("-")[:80] or "session"
    return f"{name}-{end.generation}-{end.line}.{_ENDINGS[form]}"


async def exported(session: Session, end: Position, form: Format) -> AsyncGenerator[bytes]:
    """The text of one state of a session, piece by piece."""
    stat = msgspec.structs.replace(await session.stat(), head=str(end), generation=end.generation)
    records = session.records(Position(end.generation, 0), end)
    if form == "markdown":
        yield _encoded("\n".join(head_of(stat)))
        rendering = Markdown()
        async for record in records:
            yield _encoded("\n".join(rendering.record(record)) + "\n")
        return
    fields = contract.reply(stat)
    head = {name: fields[name] for name in contract.EXPORT_HEAD}
    yield _encoded(json.dumps(head, ensure_ascii=False)[:-1] + ',"records":[\n')
    between = b""
    async for record in records:
        yield between + contract.record(record).rstrip(b"\n")
        between = b",\n"
    yield b'],"damaged":%d}\n' % records.damaged


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "backslashreplace")
