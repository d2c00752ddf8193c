"""Reads the found records from their sessions, and marks the words in them.

The index only says where to look. A record that is no longer at its place in the present generation
of its session is no result.
"""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

from steno import BlockingClient
from steno.values import Record
from steno_protocol.commands import Read
from steno_protocol.errors import (
    Busy,
    NotFound,
    OutcomeUnknown,
    StenoError,
    StorageFailed,
    Unreachable,
)
from steno_protocol.positions import Position
from steno_protocol.replies import Lines
from steno_search.filling import Reading, read_line, read_place
from steno_search.index import Index, Place, marker
from steno_search.limits import PAGE_MAX, RESULTS_MAX, TEXT_CHARS_MAX
from steno_search.query import Filters, Order

Shown = Callable[[Record], Record]
"""What is shown of a record: the one place where parts of it can be masked."""


@dataclass(frozen=True, slots=True)
class Search:
    """A search.

    Attributes:
        typed: the words.
        filters: what else limits it.
        order: the order of the results.
    """

    typed: str
    filters: Filters = field(default_factory=Filters)
    order: Order = "relevance"


@dataclass(frozen=True, slots=True)
class Hit:
    """A record that was found.

    Attributes:
        session: its session.
        record: the record, as it is shown.
        role: its role.
        at: Unix time in seconds of its request; None if it is unknown.
        marked: its text in parts, of which every second one is a found word.
    """

    session: str
    record: Record
    role: str
    at: float | None
    marked: list[str]


@dataclass(frozen=True, slots=True)
class Page:
    """A page of results.

    Attributes:
        hits: the results.
        count: how many records the index found in all, at most `COUNTED_MAX`.
        is_ranked: they are ordered by relevance; otherwise the newest come first.
        next: where the next page begins; None at the end.
    """

    hits: list[Hit]
    count: int
    is_ranked: bool
    next: int | None


def unmasked(record: Record) -> Record:
    """All of a record."""
    return record


class Searcher:
    """Searches in an index, with the sessions as the truth.

    Args:
        client: a client of the daemon.
        read: reads the text of a record, as it was read for the index.
        shown: what is shown of a record; called before its words are marked and its text is cut.
    """

    def __init__(self, client: BlockingClient, read: Reading, shown: Shown = unmasked) -> None:
        self._client = client
        self._read = read
        self._shown = shown

    def page(self, index: Index, search: Search, offset: int, limit: int) -> Page:
        """One page of results, at most `PAGE_MAX`.

        Raises:
            BadRequest: the query has no word, or takes too long.
            Unreachable: the daemon is away.
        """
        limit = min(limit, PAGE_MAX)
        found = index.find(search.typed, search.filters, search.order, offset, 2 * limit)
        hits: list[Hit] = []
        seen = 0
        generations: dict[str, int | None] = {}
        with marker(search.typed) as mark:
            for place in found.places:
                if len(hits) == limit:
                    break
                seen += 1
                hit = self._hit(index, place, generations, mark)
                if hit is not None:
                    hits.append(hit)
        is_end = seen == len(found.places) and seen < 2 * limit
        after = None if is_end or offset + seen >= RESULTS_MAX else offset + seen
        return Page(hits, found.count, found.is_ranked, after)

    def _hit(
        self,
        index: Index,
        place: Place,
        generations: dict[str, int | None],
        mark: Callable[[str], list[str]],
    ) -> Hit | None:
        session = place.session
        try:
            generation = generations.get(session)
            if session not in generations:
                record, generation = self._first_record(place)
                generations[session] = generation
            elif generation is None:
                return None
            else:
                record = read_line(self._client, place, generation)
        except (Unreachable, OutcomeUnknown):
            raise
        except StenoError:
            # It was deleted, or is damaged: `steno verify` says why.
            generations[session] = None
            return None
        if record is None:
            # Only a note for the next pass: this search goes on without it.
            with suppress(Busy, StorageFailed):
                index.doubt(session, generation)
            return None
        shown = self._shown(record)
        says = self._read(shown)
        return Hit(session, shown, says.role, says.at, mark(says.text[:TEXT_CHARS_MAX]))

    def _first_record(self, place: Place) -> tuple[Record | None, int]:
        """The first record of a session on this page, and the session's present generation.

        That is one request, because nearly always the indexed generation is the present one.
        """
        with suppress(NotFound):
            record, is_present = read_place(self._client, place, place.generation)
            if is_present:
                return record, place.generation
        generation = self._generation(place.session)
        return read_line(self._client, place, generation), generation

    def _generation(self, session: str) -> int:
        """The present generation of a session, without reading the session to its end."""
        reply, _ = self._client.request(Read(session=session, bytes_max=1), Lines)
        return Position.parse(reply.next).generation
