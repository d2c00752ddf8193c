"""The index in SQLite: records in, positions out.

The table `words` (FTS5, without the texts) has a row for each record with its words and, in the
column `tags`, a word for its role and one for its session. The number of a row begins with the time
of its record: the newest rows and those of a span of time are found without looking at others.
FTS5 cannot take a row without text out again. A record that is gone loses its row in `records`, and
is passed over from then on; once most rows are such, or a session was deleted, the index is made
anew: the words of what was deleted are not kept.
"""

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from zlib import crc32

from steno_protocol.errors import BadRequest, Busy, Incompatible, StorageFailed
from steno_protocol.limits import KIB, MIB
from steno_search.limits import (
    BUSY_TIMEOUT_S,
    CACHE_BYTES,
    COUNTED_MAX,
    QUERY_TIMEOUT_S,
    RANKED_MAX,
    SESSIONS_BY_WORD_MAX,
    UNUSED_RECORDS_MIN,
)
from steno_search.query import Filters, Order, terms
from steno_search.words import BEGIN, END, joined, separated

try:
    import sqlite3
except ImportError as _missing:
    raise Incompatible(
        f"this Python has no SQLite ({_missing}), which the search index needs: use another Python,"
        " or `steno grep` without --index"
    ) from None

VERSION: Final = 2
"""The version of the tables, part of the name of the file."""

_APPLICATION_ID: Final = 0x73746E6F
_NUMBER_BITS: Final = 21
_NUMBER_MASK: Final = (1 << _NUMBER_BITS) - 1
_TIME_MS_MAX: Final = (1 << 41) - 1
"""The year 2039; keys may claim any time, and a row has 62 bits."""

_CORRUPT_CODES: Final = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_STEPS: Final = 5000
"""Steps of SQLite between two looks at the clock, about a tenth of a millisecond."""

_TABLES: Final = (
    (
        "CREATE VIRTUAL TABLE words USING fts5("
        "text, tags, content='', tokenize='unicode61 remove_diacritics 2')"
    ),
    (
        "CREATE TABLE sessions(number INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE,"
        " incarnation TEXT NOT NULL, generation INTEGER NOT NULL, lines INTEGER NOT NULL,"
        " bytes INTEGER NOT NULL, modified_at REAL NOT NULL)"
    ),
    (
        "CREATE TABLE records(row INTEGER PRIMARY KEY, session INTEGER NOT NULL,"
        " line INTEGER NOT NULL, offset INTEGER, crc INTEGER NOT NULL)"
    ),
    "CREATE INDEX places ON records(session, line)",
    "CREATE TABLE counts(name TEXT PRIMARY KEY, value INTEGER NOT NULL)",
    "INSERT INTO counts VALUES('rows', 0), ('complete', 0), ('masks', 0), ('gone', 0)",
    f"INSERT INTO words(words, rank) VALUES('hashsize', {16 * MIB})",
    "INSERT INTO words(words, rank) VALUES('rank', 'bm25(1.0, 0.0)')",
)

_BEGINNING: Final = "SELECT number FROM sessions WHERE substr(id, 1, length(?)) = ?"
"""The sessions whose id begins so."""


class Damaged(Exception):
    """The file is no index of this version, or is damaged: it is made anew."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A record to be indexed.

    Attributes:
        line: its line.
        offset: its first byte in the file; None if it is unknown.
        crc: of its bytes.
        role: its role.
        at: Unix time in seconds.
        text: its searchable text.
    """

    line: int
    offset: int | None
    crc: int
    role: str
    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Indexed:
    """What the index has of a session.

    Attributes:
        incarnation: the incarnation that was read.
        generation: the generation that was read.
        lines: how many lines were read.
        bytes: the size that the list of the sessions had before.
        modified_at: the time that it had; 0.0 lets the next pass look again.
    """

    incarnation: str
    generation: int
    lines: int
    bytes: int
    modified_at: float


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a session: new entries, and what the index has of the session with them.

    Attributes:
        session: its id.
        kept: lines that stay; the entries of later ones are taken out.
        entries: the new entries.
        indexed: what the index has afterwards.
    """

    session: str
    kept: int
    entries: Sequence[Entry]
    indexed: Indexed


@dataclass(frozen=True, slots=True)
class Place:
    """Where a record was when it was indexed.

    Attributes:
        session: its session.
        line: its line.
        offset: its first byte in the file; None if it is unknown.
        crc: of its bytes.
        generation: the generation of the session that was indexed.
    """

    session: str
    line: int
    offset: int | None
    crc: int
    generation: int


@dataclass(frozen=True, slots=True)
class Found:
    """The answer to a query.

    Attributes:
        places: the found records in order.
        count: how many there are in all, at most `COUNTED_MAX`.
        is_ranked: they are ordered by relevance; otherwise the newest come first.
    """

    places: list[Place]
    count: int
    is_ranked: bool


def crc_of(line: bytes) -> int:
    """The crc of a line, without its newline."""
    return crc32(line.rstrip(b"\n"))


class Index:
    """An open index; for one thread at a time.

    Args:
        path: the file; created if it is missing and `creates`.
        creates: the caller has the lock and fills it.

    Raises:
        Damaged: the file is another one, or damaged.
        Incompatible: this SQLite lacks FTS5.
        StorageFailed: the disk is full, or the file cannot be written.
    """

    def __init__(self, path: Path, *, creates: bool = False) -> None:
        mode = "rwc" if creates else "rw"
        with _translated():
            self._base = sqlite3.connect(
                f"{path.as_uri()}?mode={mode}",
                uri=True,
                timeout=BUSY_TIMEOUT_S,
                isolation_level=None,
                check_same_thread=False,
            )
        try:
            with _translated():
                self._prepare(creates=creates)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file; closing twice is harmless."""
        self._base.close()

    def __enter__(self) -> "Index":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- filling ----------------------------------------------------------------------------------

    def sessions(self) -> dict[str, Indexed]:
        """What the index has of each session."""
        with _translated():
            rows = self._base.execute(
                "SELECT id, incarnation, generation, lines, bytes, modified_at FROM sessions"
            ).fetchall()
        return {row[0]: Indexed(*row[1:]) for row in rows}

    def last_before(self, session: str, line: int) -> Place | None:
        """The last record of a session before a line that the index has."""
        with _translated():
            row = self._base.execute(
                "SELECT line, offset, crc, (SELECT generation FROM sessions WHERE id = ?)"
                " FROM records WHERE line < ?"
                " AND session = (SELECT number FROM sessions WHERE id = ?)"
                " ORDER BY line DESC LIMIT 1",
                (session, line, session),
            ).fetchone()
        return None if row is None else Place(session, *row)

    def add(self, parts: Iterable[Part]) -> None:
        """Take in parts of sessions, all or nothing."""
        with self._transaction():
            rows: list[tuple[float, int, Entry]] = []
            for part in parts:
                number = self._put(part)
                rows += [(entry.at, number, entry) for entry in part.entries]
            # In the order of their numbers, as FTS5 wants them.
            rows.sort(key=lambda row: (row[0], row[1], row[2].line))
            self._insert(rows)

    def forget(self, sessions: Iterable[str]) -> None:
        """Take sessions out."""
        with self._transaction():
            for session in sessions:
                number = self._number(session)
                if number is not None:
                    self._base.execute("DELETE FROM records WHERE session = ?", (number,))
                    self._base.execute("DELETE FROM sessions WHERE number = ?", (number,))
                    self._base.execute("UPDATE counts SET value = 1 WHERE name = 'gone'")

    def doubt(self, session: str, generation: int) -> None:
        """Let the next pass read a session from its beginning.

        Nothing changes if the index has another generation of it: the next pass reads it anyway.
        """
        with self._transaction():
            self._base.execute(
                "UPDATE sessions SET incarnation = '', modified_at = 0"
                " WHERE id = ? AND generation = ?",
                (session, generation),
            )

    def note_complete(self) -> None:
        """Note that every session was read once."""
        with _translated():
            self._base.execute("UPDATE counts SET value = 1 WHERE name = 'complete'")

    @property
    def is_complete(self) -> bool:
        """Every session was read once."""
        with _translated():
            return bool(self._count("complete"))

    @property
    def masks(self) -> int:
        """The fingerprint of the patterns that masked its texts; 0 in a new one."""
        with _translated():
            return self._count("masks")

    def note_masks(self, masks: int) -> None:
        """Note the fingerprint of the patterns."""
        with _translated():
            self._base.execute("UPDATE counts SET value = ? WHERE name = 'masks'", (masks,))

    @property
    def is_worn(self) -> bool:
        """It has words of a deleted session, or most of its rows are of records that are gone."""
        with _translated():
            if self._count("gone"):
                return True
            rows = self._count("rows")
            (used,) = self._base.execute("SELECT count(*) FROM records").fetchone()
        return rows - int(used) > max(UNUSED_RECORDS_MIN, int(used))

    # --- searching --------------------------------------------------------------------------------

    def find(self, typed: str, filters: Filters, order: Order, offset: int, limit: int) -> Found:
        """Find records.

        Raises:
            BadRequest: the query has no word, or takes too long.
            Damaged: the index has to be made anew.
        """
        asked = " ".join(terms(typed))
        with _translated(), self._deadline():
            self._base.execute("BEGIN")
            try:
                return self._find(asked, filters, order, (offset, limit))
            finally:
                self._base.execute("ROLLBACK")

    def _find(self, asked: str, filters: Filters, order: Order, page: tuple[int, int]) -> Found:
        clauses, values = self._limits(asked, filters)
        matching = "FROM words CROSS JOIN records ON records.row = words.rowid WHERE " + clauses
        (count,) = self._base.execute(
            f"SELECT count(*) FROM (SELECT 1 {matching} LIMIT {COUNTED_MAX})",  # noqa: S608
            values,
        ).fetchone()
        is_ranked = order == "relevance" and count <= RANKED_MAX
        first = "rank, words.rowid DESC" if is_ranked else "words.rowid DESC"
        offset, limit = page
        rows = self._base.execute(
            f"SELECT records.session, line, offset, crc {matching}"
            f" ORDER BY {first} LIMIT ? OFFSET ?",
            (*values, limit, offset),
        ).fetchall()
        # Only for the rows of the page: the query above sorts every match.
        known = {number: self._session(number) for number in {row[0] for row in rows}}
        places: list[Place] = []
        for number, line, at, crc in rows:
            session, generation = known[number]
            places.append(Place(session, line, at, crc, generation))
        return Found(places, count, is_ranked)

    def _session(self, number: int) -> tuple[str, int]:
        found = self._base.execute(
            "SELECT id, generation FROM sessions WHERE number = ?", (number,)
        ).fetchone()
        return found[0], found[1]

    def _limits(self, asked: str, filters: Filters) -> tuple[str, list[object]]:
        """The conditions of a query, and their values."""
        tags: list[str] = [] if filters.role is None else [f'"{_role_word(filters.role)}"']
        clauses, values = list[str](), list[object]()
        if filters.session:
            prefix = filters.session.encode("utf-8", "replace").decode()
            numbers = self._base.execute(
                f"{_BEGINNING} LIMIT {SESSIONS_BY_WORD_MAX + 1}", (prefix, prefix)
            ).fetchall()
            if len(numbers) <= SESSIONS_BY_WORD_MAX:
                words = [f'"{_session_word(number)}"' for (number,) in numbers] or ['"none"']
                tags.append(f"({' OR '.join(words)})")
            else:
                clauses.append(f"records.session IN ({_BEGINNING})")
                values += [prefix, prefix]
        if filters.since is not None:
            clauses.append("words.rowid >= ?")
            values.append(_first_row(filters.since))
        if filters.until is not None:
            clauses.append("words.rowid < ?")
            values.append(_first_row(filters.until))
        match = f"{{text}} : ({asked})"
        if tags:
            match = f"({match}) AND {{tags}} : ({' AND '.join(tags)})"
        return " AND ".join(["words MATCH ?", *clauses]), [match, *values]

    # --- inside -----------------------------------------------------------------------------------

    def _prepare(self, *, creates: bool) -> None:
        base = self._base
        base.execute(f"PRAGMA cache_size = -{CACHE_BYTES // KIB}")
        # What is removed is overwritten.
        base.execute("PRAGMA secure_delete = ON")
        if self._is_new():
            if not creates:
                raise Damaged("it has no tables yet")
            base.execute("PRAGMA journal_mode = WAL")
            with self._transaction():
                # Another process had the lock before, and may have made them.
                if self._is_new():
                    self._create()
        (found,) = base.execute("PRAGMA application_id").fetchone()
        (version,) = base.execute("PRAGMA user_version").fetchone()
        if (found, version) != (_APPLICATION_ID, VERSION):
            raise Damaged(f"application {found:#x}, version {version}")
        base.execute("PRAGMA synchronous = NORMAL")
        base.execute("SELECT value FROM counts, sessions, records LIMIT 0")

    def _is_new(self) -> bool:
        (tables,) = self._base.execute("SELECT count(*) FROM sqlite_master").fetchone()
        return int(tables) == 0

    def _create(self) -> None:
        for statement in _TABLES:
            self._base.execute(statement)
        self._base.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
        self._base.execute(f"PRAGMA user_version = {VERSION}")

    def _put(self, part: Part) -> int:
        """Note what the index has of a session, and return the session's number."""
        number = self._number(part.session)
        values = part.indexed
        fields = (
            values.incarnation, values.generation, values.lines,
            values.bytes, values.modified_at,
        )  # fmt: skip
        if number is None:
            cursor = self._base.execute(
                "INSERT INTO sessions(id, incarnation, generation, lines, bytes, modified_at)"
                " VALUES(?, ?, ?, ?, ?, ?)",
                (part.session, *fields),
            )
            assert cursor.lastrowid is not None
            return cursor.lastrowid
        self._base.execute(
            "DELETE FROM records WHERE session = ? AND line >= ?", (number, part.kept)
        )
        self._base.execute(
            "UPDATE sessions SET incarnation = ?, generation = ?, lines = ?, bytes = ?,"
            " modified_at = ? WHERE number = ?",
            (*fields, number),
        )
        return number

    def _insert(self, rows: Sequence[tuple[float, int, Entry]]) -> None:
        made = self._count("rows")
        for at, session, entry in rows:
            row = _first_row(at) | (made & _NUMBER_MASK)
            made += 1
            self._base.execute(
                "INSERT INTO records VALUES(?, ?, ?, ?, ?)",
                (row, session, entry.line, entry.offset, entry.crc),
            )
            self._base.execute(
                "INSERT INTO words(rowid, text, tags) VALUES(?, ?, ?)",
                (row, separated(entry.text), f"{_role_word(entry.role)} {_session_word(session)}"),
            )
        self._base.execute("UPDATE counts SET value = ? WHERE name = 'rows'", (made,))

    def _number(self, session: str) -> int | None:
        row = self._base.execute("SELECT number FROM sessions WHERE id = ?", (session,)).fetchone()
        return None if row is None else int(row[0])

    def _count(self, name: str) -> int:
        row = self._base.execute("SELECT value FROM counts WHERE name = ?", (name,)).fetchone()
        if row is None:
            raise Damaged(f"it has no count of {name}")
        return int(row[0])

    @contextmanager
    def _transaction(self) -> Generator[None]:
        with _translated():
            self._base.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                if self._base.in_transaction:
                    self._base.execute("ROLLBACK")
                raise
            self._base.execute("COMMIT")

    @contextmanager
    def _deadline(self) -> Generator[None]:
        """Let SQLite end a query that takes too long."""
        end = time.monotonic() + QUERY_TIMEOUT_S
        self._base.set_progress_handler(lambda: time.monotonic() > end, _STEPS)
        try:
            yield
        finally:
            self._base.set_progress_handler(None, 0)


@contextmanager
def marker(typed: str) -> Generator[Callable[[str], list[str]]]:
    """Yields the function that finds the words of a query in a text.

    It returns the parts of the text; every second one is a found word.
    """
    asked = " OR ".join(terms(typed))
    with _translated():
        base = sqlite3.connect(":memory:", check_same_thread=False)

    def marked(text: str) -> list[str]:
        with _translated():
            base.execute("DELETE FROM shown")
            base.execute("INSERT INTO shown VALUES(?)", (separated(text),))
            row = base.execute(
                "SELECT highlight(shown, 0, ?, ?) FROM shown WHERE shown MATCH ?",
                (BEGIN, END, asked),
            ).fetchone()
        if row is None:
            return [joined(separated(text))]
        return joined(row[0].replace(END, BEGIN)).split(BEGIN)

    try:
        with _translated():
            base.execute(
                "CREATE VIRTUAL TABLE shown"
                " USING fts5(text, tokenize='unicode61 remove_diacritics 2')"
            )
        yield marked
    finally:
        base.close()


def _first_row(at: float) -> int:
    """The first number of a row at a time."""
    milliseconds = max(0.0, min(at * 1000, float(_TIME_MS_MAX)))
    return int(milliseconds) << _NUMBER_BITS


def _role_word(role: str) -> str:
    """The word for a role: as hexadecimal digits, which are one word whatever the role has."""
    return f"r{role.encode('utf-8', 'replace').hex()}"


def _session_word(number: int) -> str:
    return f"s{number}"


@contextmanager
def _translated() -> Generator[None]:
    """Errors of SQLite as those of steno."""
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if "fts5" in str(error) and "no such module" in str(error):
            raise Incompatible(
                f"the SQLite {sqlite3.sqlite_version} of this Python has no full-text search"
                " (FTS5): use a Python whose sqlite3 has it, or `steno grep` without --index"
            ) from None
        if code == sqlite3.SQLITE_INTERRUPT:
            raise BadRequest(
                f"the search took longer than {QUERY_TIMEOUT_S:.0f} s: use more words, or filters"
            ) from None
        if code == sqlite3.SQLITE_BUSY:
            raise Busy(
                "another process holds the search index: repeat the search in a moment"
            ) from None
        if code in {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_READONLY,
                    sqlite3.SQLITE_CANTOPEN}:  # fmt: skip
            raise StorageFailed(
                f"the search index cannot be written: {error}; make room in the cache folder, or"
                " set XDG_CACHE_HOME"
            ) from None
        if code in _CORRUPT_CODES or isinstance(error, sqlite3.DatabaseError):
            raise Damaged(str(error)) from None
        raise
