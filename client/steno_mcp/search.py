"""A search for a text in the messages of sessions, in answers of bounded size and time."""

import time
from collections.abc import AsyncIterator, Iterator

from steno import Client
from steno.values import Record
from steno_mcp.bounded import around
from steno_mcp.limits import (
    HIT_CHARS_MAX,
    LIST_PAGE_MAX,
    SEARCH_S,
)
from steno_mcp.turns import in_turns
from steno_mcp.values import Hit, Hits, SearchSessions
from steno_protocol.errors import BadRequest, NotFound
from steno_protocol.limits import ROLE_BYTES_MAX
from steno_protocol.paths import split_session
from steno_protocol.positions import Position
from steno_redact.records import masked_record
from steno_redact.redactor import Redactor
from steno_search.matching import matches


async def search_sessions(client: Client, redactor: Redactor, asked: SearchSessions) -> Hits:
    """Search sessions in the order of their ids, each from its first record.

    A plain text, because a regular expression of a peer could keep the process busy for ever.
    The records are searched with their secrets masked: a hit inside of one would spell it out.
    """
    if "\n" in asked.text:
        raise BadRequest("the text has a line break, and lines are searched: search for one line")
    until = time.monotonic() + SEARCH_S
    first, position = _parsed(asked.cursor)
    wanted = _Wanted(asked)
    hits: list[Hit] = []
    async for session in _sessions(client, asked.prefix, first):
        start = position if session == first else None
        try:
            async for record in in_turns(client.session(session).records(start)):
                found = list(wanted.hits(session, masked_record(redactor, record)))
                # The hits of one record stay together, so that a position continues the search.
                is_full = len(hits) > 0 and len(hits) + len(found) > asked.limit
                if is_full or time.monotonic() > until:
                    return Hits(hits=hits, next=f"{record.cursor} {session}")
                hits += found[: asked.limit]
        except NotFound:
            # It was deleted or rewritten meanwhile.
            continue
    return Hits(hits=hits, next=None)


async def _sessions(client: Client, prefix: str, first: str | None) -> AsyncIterator[str]:
    after = ""
    if first is not None:
        yield first
        after = first
    while True:
        page = await client.sessions(prefix, after=after, limit=LIST_PAGE_MAX)
        for entry in page:
            yield entry.session
        if len(page) < LIST_PAGE_MAX:
            return
        after = page[-1].session


def _parsed(cursor: str | None) -> tuple[str | None, Position | None]:
    if cursor is None:
        return None, None
    position, _, session = cursor.partition(" ")
    try:
        split_session(session)
        return session, Position.parse(position)
    except BadRequest:
        raise BadRequest(
            f"{cursor[:80]!r} is no cursor of a search: use `next` of an answer"
        ) from None


class _Wanted:
    def __init__(self, asked: SearchSessions) -> None:
        self._text = asked.text.casefold() if asked.ignore_case else asked.text
        self._ignores_case = asked.ignore_case
        self._role = asked.role

    def hits(self, session: str, record: Record) -> Iterator[Hit]:
        """The lines of a record that contain the text."""
        role = str(record.record.get("role"))
        if self._role is not None and role != self._role:
            return
        for match in matches(record.record, self._find):
            yield Hit(
                session=session,
                cursor=str(record.cursor),
                role=role[:ROLE_BYTES_MAX],
                line=around(*match, HIT_CHARS_MAX),
            )

    def _find(self, text: str) -> tuple[int, int] | None:
        start = (text.casefold() if self._ignores_case else text).find(self._text)
        return None if start < 0 else (start, start + len(self._text))
